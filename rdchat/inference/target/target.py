"""The target: an unmodified mlx-lm model with its tokenizer, and what the decoding loops need to know of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.requests import ChatMessage, ThinkingChoice
from rdchat.inference.prompts.model_prompts import ModelPrompts, encoded
from rdchat.inference.target.capability import Capability
from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.prefill_pace import PrefillPace


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        network: mlx-lm's module; called with (1, n) token ids and a cache it returns (1, n, vocabulary) logits.
        tokenizer: mlx-lm's tokenizer wrapper; what is fed to the model comes from `prompts`.
        info: Its name, sizes, precision and device.
        pace: Picks the prompt tokens in one call; the cancel flag is read in between.
        hooks: Take packed positions and record hidden states.
        try_out: Returns what it can verify in one call; the first time it runs `check_capability`.
        prompts: Makes token ids of conversations.
    """

    network: nn.Module
    tokenizer: Any
    info: ModelInfo
    pace: PrefillPace
    hooks: ModelHooks
    try_out: Callable[[], Capability]
    prompts: ModelPrompts
    _texts: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def capability(self) -> Capability:
        """What the model can verify in one call; checked at first use, which takes some twenty calls of the model."""
        return self.try_out()

    @property
    def prefill_chunk(self) -> int:
        """Prompt tokens in the next call."""
        return self.pace.chunk

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids of tokens that end a reply."""
        return frozenset(self.tokenizer.eos_token_ids)

    def decode(self, token_ids: list[int], /) -> str:
        """Return the text of tokens, special ones included."""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def token_text(self, token_id: int) -> str:
        """Return the text of one token inside a text, with its leading space; decoded once and kept."""
        if token_id not in self._texts:
            before = self.tokenizer.encode("a", add_special_tokens=False)
            whole, start = self.decode([*before, token_id]), len(self.decode(before))
            self._texts[token_id] = whole[start:]
        return self._texts[token_id]

    def encode_chat(
        self,
        messages: tuple[ChatMessage, ...],
        continue_last: bool,
        waiting: Callable[[], None] = lambda: None,
        thinking: ThinkingChoice | None = None,
    ) -> list[int]:
        """Apply the chat template and tokenise.

        Args:
            messages: The conversation.
            continue_last: Leave the last message, an assistant's, open instead of opening a new one. It follows the
                template's opening of a reply as it stands: templates drop or rewrite thoughts in a message of theirs.
            waiting: Called now and then meanwhile; what it raises ends the work.
            thinking: Whether or how much the model is to think; None leaves it to the chat template.

        Raises:
            ModelError: If the template refuses the conversation, or makes nothing of it.
            PromptTooLongError: If it is far longer than the context.
        """
        unfinished = messages[-1] if continue_last else None
        turns = messages[:-1] if continue_last else messages
        ids = encoded(lambda those: self._encode(those, unfinished, waiting, thinking), turns)
        if not ids:
            raise ModelError(
                "The model's chat template makes nothing of this conversation.", "Pick an instruction-tuned model."
            )
        return ids

    def _encode(
        self,
        turns: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        waiting: Callable[[], None],
        thinking: ThinkingChoice | None,
    ) -> list[int]:
        ids = self.prompts.encode(turns, unfinished, self.info.context_length, waiting, thinking)
        if ids and not 0 <= min(ids) <= max(ids) < self.info.vocabulary_size:
            raise ModelError(
                f"The prompt has a token {max(ids):,} that {self.info.name} has no embedding of.",
                "Tokenizer and weights are not of one model: fetch it again, or pick another one.",
            )
        return ids
