"""Compares the vocabularies of target and draft model: token ids must mean the same to both.

It does not matter how a tokenizer splits text: only the target's reads the conversation. Nor does the width of the
logits, which is padded differently within a family of models.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.inference.api.events import LoadProgress
from rdchat.inference.models.model_files import check_model_folder, display_name, resolve_model
from rdchat.inference.prompts.tokenizer_loading import PADDING, read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers

_SPECIAL = {"end": "eos_token_id", "beginning": "bos_token_id"}


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The result of a comparison.

    Attributes:
        target: Name of the target.
        draft: Name of the draft model.
        shared_tokens: Ids below this one are the same tokens in both; 0 where the vocabularies differ.
        differences: Each difference as a sentence; empty where there is none.
    """

    target: str
    draft: str
    shared_tokens: int
    differences: tuple[str, ...] = ()

    @property
    def compatible(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.compatible:
            return f"{self.draft} can draft for {self.target}: both have the same {self.shared_tokens:,} tokens."
        return f"{self.draft} cannot draft for {self.target}: {' '.join(self.differences)}"


def check_pair(target: str, draft: str) -> PairVerdict:
    """Compare the vocabularies of two models without loading their weights.

    Args:
        target: A model folder, or a hub id that is in the hub's cache.
        draft: The draft model, in the same form.

    Raises:
        ModelError: If one of them is missing or damaged.
    """
    (ours, name), (theirs, draft_name) = (tokenizer_of(model, shared_tokenizers()) for model in (target, draft))
    return compare_vocabularies(ours, theirs, name, draft_name)


def tokenizer_of(
    model: str | Path, process: TokenizerProcess, on_progress: Callable[[LoadProgress], None] = lambda _: None
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
    texts, others = _texts(target), _texts(draft)
    differences = []
    if len(texts) != len(others):
        differences.append(f"{target_name} has {len(texts):,} tokens, {draft_name} has {len(others):,}.")
    for token in sorted(texts.keys() | others.keys()):
        if texts.get(token) != others.get(token):
            ours, theirs = _quoted(texts, token), _quoted(others, token)
            differences.append(f"Token {token:,} is {ours} in {target_name} and {theirs} in {draft_name}.")
            break
    for role, attribute in _SPECIAL.items():
        one, other = getattr(target, attribute, None), getattr(draft, attribute, None)
        # Not every tokenizer names its first token.
        if one is None or other is None or one == other:
            continue
        ours, theirs = f"{_quoted(texts, one)} ({one})", f"{_quoted(others, other)} ({other})"
        differences.append(f"The {role} token is {ours} in {target_name} and {theirs} in {draft_name}.")
    return PairVerdict(target_name, draft_name, 0 if differences else 1 + max(texts), tuple(differences))


def _texts(tokenizer: Any) -> dict[int, str]:
    """Return the vocabulary's spelling of every token with a meaning, by id."""
    return {token: text for text, token in tokenizer.get_vocab().items() if not PADDING.fullmatch(text)}


def _quoted(texts: dict[int, str], token: int) -> str:
    return repr(texts[token]) if token in texts else "missing"
