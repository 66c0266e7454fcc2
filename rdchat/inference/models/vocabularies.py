"""Compares the vocabularies of target and draft model: nearly all token ids must mean the same to both.

It does not matter how a tokenizer splits text: only the target's reads the conversation. Nor do the width of the logits
and the names of reserved tokens, which differ within a family of models: drafts are verified.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.inference.api import LoadProgress, OnProgress
from rdchat.inference.models.model_files import check_model_folder, display_name, resolve_model
from rdchat.inference.prompts.model_prompts import PADDING, read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess

# Of the ids that both models have, the share that may be other tokens.
_MAX_OTHERS = 0.01


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The result of a comparison.

    Attributes:
        target: Name of the target.
        draft: Name of the draft model.
        shared_tokens: Ids below this one are the same tokens in both, but for `other_tokens`; 0 if they are no pair.
        differences: Why they are no pair, as sentences; empty if they are one.
        other_tokens: Ids that mean something else to each, or nothing to one.
    """

    target: str
    draft: str
    shared_tokens: int
    differences: tuple[str, ...] = ()
    other_tokens: tuple[int, ...] = ()

    @property
    def compatible(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.compatible:
            others = f" {len(self.other_tokens):,} others are never drafted." if self.other_tokens else ""
            same = self.shared_tokens - len(self.other_tokens)
            return f"{self.draft} can draft for {self.target}: both have the same {same:,} tokens.{others}"
        return f"{self.draft} cannot draft for {self.target}: {' '.join(self.differences)}"


def tokenizer_of(
    model: str | Path, process: TokenizerProcess, on_progress: OnProgress = lambda _: None
) -> tuple[Any, str]:
    """Return the tokenizer of a model whose weights are not loaded, and its name.

    Raises:
        ModelError: If the model is missing or damaged.
    """
    folder = resolve_model(str(model), on_progress)
    check_model_folder(folder)
    tokenizer = read_tokenizer(folder, process, lambda: on_progress(LoadProgress("Comparing", None)))
    return tokenizer, display_name(model, folder)


def compare_vocabularies(target: Any, draft: Any, target_name: str, draft_name: str) -> PairVerdict:
    """Compare two tokenizers token by token.

    Args:
        target: The target's tokenizer, with transformers' `get_vocab`.
        draft: The draft model's tokenizer.
        target_name: For the sentences.
        draft_name: For the sentences.
    """
    target_texts = _texts(target)
    draft_texts = _texts(draft)
    shared = target_texts.keys() & draft_texts.keys()
    differing = [token for token in sorted(shared) if target_texts[token] != draft_texts[token]]
    if not shared or len(differing) > _MAX_OTHERS * len(shared):
        differences = [f"{len(differing):,} of the {len(shared):,} ids that both have are different tokens."]
        for token in differing[:1]:
            ours = repr(target_texts[token])
            theirs = repr(draft_texts[token])
            differences.append(f"Token {token:,} is {ours} in {target_name} and {theirs} in {draft_name}.")
        return PairVerdict(target_name, draft_name, 0, tuple(differences))
    size = 1 + max(shared.difference(differing))
    below = (token for token in target_texts.keys() | draft_texts.keys() if token < size)
    other_tokens = sorted(token for token in below if target_texts.get(token) != draft_texts.get(token))
    return PairVerdict(target_name, draft_name, size, (), tuple(other_tokens))


def _texts(tokenizer: Any) -> dict[int, str]:
    """Return the vocabulary's spelling of every token with a meaning, by id."""
    return {token: text for text, token in tokenizer.get_vocab().items() if not PADDING.fullmatch(text)}
