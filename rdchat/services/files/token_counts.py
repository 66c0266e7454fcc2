"""How many tokens a text takes in the prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rdchat.errors import PromptTooLongError
from rdchat.inference.api.requests import ChatMessage, Role

_SAMPLE = 12_000  # characters, of which the rest is reckoned
_LEAST_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A number of tokens.

    Attributes:
        tokens: The number.
        exact: Whether they were counted; far too many are reckoned from a sample.
    """

    tokens: int
    exact: bool = True

    @property
    def words(self) -> str:
        """`1,200 tokens`, or `about 250,000 tokens`."""
        if self.exact:
            return f"{self.tokens:,} token{'' if self.tokens == 1 else 's'}"
        magnitude = 10 ** max(len(str(self.tokens)) - 2, 0)
        return f"about {round(self.tokens / magnitude) * magnitude:,} tokens"


def tokens_of(text: str, count: Callable[[Sequence[ChatMessage]], int]) -> TokenCount:
    """Return the tokens that a text adds to a message, counted by `count` on this thread.

    Raises:
        RdchatError: If there is no model, or its template refuses any message.
    """
    around = count((ChatMessage(Role.USER, "."),)) - 1
    try:
        return TokenCount(max(count((ChatMessage(Role.USER, text),)) - around, 0))
    except PromptTooLongError:
        size = min(_SAMPLE, len(text))
        while True:
            try:
                sampled = count((ChatMessage(Role.USER, text[:size]),)) - around
            except PromptTooLongError:
                if size <= _LEAST_SAMPLE:
                    raise
                size //= 4  # the model takes hardly anything
            else:
                return TokenCount(round(sampled * len(text) / size), exact=False)
