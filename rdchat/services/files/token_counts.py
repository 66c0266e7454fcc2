"""Counts the tokens of a text in a prompt, and takes as many passages of a file as fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rdchat.chat.attachments.choosing import Part, Passage, best_within, joined
from rdchat.errors import PromptTooLongError
from rdchat.inference.api.requests import ChatMessage, Role

FILLED = 0.75  # of the room: the rest is for what comes later in the chat
_TRIES = 4
_SAMPLE = 12_000  # characters, from which the rest is estimated
_LEAST_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A number of tokens."""

    tokens: int
    exact: bool = True  # else it is an estimate from a sample, as of far too many

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


def fitting_passages(
    passages: Sequence[Passage],
    order: Sequence[int],
    room: int,
    per_token: float,
    count: Callable[[str], TokenCount],
) -> tuple[int, Part, TokenCount]:
    """Take the best passages until three quarters of the room are filled; at least one, though it may not fit.

    Args:
        passages: All of a file.
        order: Places of those that match, the best first; not empty.
        room: Tokens.
        per_token: Characters, about.
        count: Counts the tokens of a text.

    Returns:
        How many they are, their text and its tokens.
    """
    taken = len(best_within(passages, order, int(max(room, 1) * FILLED * per_token)))
    for _ in range(_TRIES):
        part = joined(passages, order[:taken])
        tokens = count(part.text)
        if tokens.tokens <= room or taken == 1:
            break
        taken = max(int(taken * room * FILLED / tokens.tokens), 1)
    return taken, part, tokens
