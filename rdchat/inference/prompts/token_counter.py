"""Counts the tokens of a conversation while the engine's thread is busy."""

from collections.abc import Sequence

from rdchat.inference.api.requests import ChatMessage
from rdchat.inference.prompts.model_prompts import PromptEncoder, encoded

_BEYOND = 4  # contexts: what is longer is not counted to its end


class TokenCounter:
    """Counts by a model's own tokenizer and chat template. It holds nothing of the model's weights.

    Args:
        prompts: The model's.
        context_length: In tokens.
    """

    def __init__(self, prompts: PromptEncoder, context_length: int) -> None:
        self._prompts, self._limit = prompts, _BEYOND * context_length

    def count(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of a conversation that is open for a reply; 0 for none. From any thread.

        Raises:
            PromptTooLongError: If they are far more than the context.
            ModelError: If the chat template refuses the conversation.
        """
        if not messages:
            return 0
        return encoded(lambda those: self._prompts.count(those, self._limit, lambda: None), messages)
