"""The target: an unmodified mlx-lm model with its tokenizer, and what decoding needs to know of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.model_card import Capability
from rdchat.inference.api.requests import ChatMessage, ThinkingChoice
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.prefill_pace import PrefillPace


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory."""

    network: nn.Module  # mlx-lm's module; called with (1, n) token ids and a cache it returns (1, n, vocabulary) logits
    tokenizer: Any  # mlx-lm's tokenizer wrapper; prompts come from `prompts` instead
    info: ModelInfo  # its name, sizes, precision and device
    pace: PrefillPace  # chooses the prompt tokens of one call; cancelling is possible between calls
    hooks: ModelHooks  # give packed positions and record hidden states
    # Returns what the model can verify in one call; runs `check_capability` the first time.
    try_out: Callable[[], Capability]
    prompts: ModelPrompts  # makes token ids of conversations
    _texts: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def capability(self) -> Capability:
        """What the model can verify in one call; checked at first use, in some 25 calls of the model."""
        return self.try_out()

    @property
    def prefill_chunk(self) -> int:
        """Prompt tokens of the next call."""
        return self.pace.chunk

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids of tokens that end a reply."""
        return frozenset(self.tokenizer.eos_token_ids)

    def decode(self, token_ids: list[int], /) -> str:
        """Return the text of tokens, special ones included."""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def token_text(self, token_id: int) -> str:
        """Return the text of a token inside a text, with its leading space; cached."""
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
            continue_last: Continue the last message, an assistant's, instead of opening a new one. Its text follows the
                template's opening of a reply unchanged, since templates drop or rewrite thoughts in a message.
            waiting: Called now and then during the work; an exception that it raises ends the work.
            thinking: Whether or how much the model thinks; None leaves it to the chat template.

        Raises:
            ModelError: If the template refuses the conversation, or makes no text of it.
            PromptTooLongError: If the conversation is far longer than the context.
        """
        unfinished = messages[-1] if continue_last else None
        turns = messages[:-1] if continue_last else messages
        ids = self.prompts.encode(turns, unfinished, self.info.context_length, waiting, thinking)
        if not ids:
            raise ModelError(
                "The model's chat template produced no text for this chat.", "Choose an instruction-tuned model."
            )
        if not 0 <= min(ids) <= max(ids) < self.info.vocabulary_size:
            raise ModelError(
                f"The prompt has a token {max(ids):,}, for which {self.info.name} has no embedding.",
                "Its tokenizer belongs to another model. Download the model again, or choose another one.",
            )
        return ids
