"""Where a text's own ending occurred before, token by token. No MLX here."""

from enum import IntEnum
from typing import NamedTuple

LONGEST, SHORTEST = 8, 2  # tokens of an ending that is looked up
_AGREEMENT = 32  # tokens before both places that are compared, to tell how much alike they are
_DIFFERENT = -1  # in place of a token


class Before(IntEnum):
    """How the text went on at earlier places of the two tokens before a guess."""

    ONCE = 0  # there is one place only
    ALIKE = 1  # with the guessed token at all places
    VARIED = 2  # with different tokens


class Guess(NamedTuple):
    """A token of a continuation, and the evidence for it.

    Attributes:
        token: Its id.
        match: Number of tokens before it that equal those before the place it is copied from; at most 32 of the text.
        before: How the text went on at earlier places of the last two of these.
    """

    token: int
    match: int
    before: Before


class LookupIndex:
    """Index of where every run of 2 to 8 tokens last ended; updated when something is looked up.

    Args:
        tokens: The conversation so far.
    """

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = list(tokens)
        self._noted = 0  # runs that end at or before here are in `_ends`
        self._ends: dict[tuple[int, ...], int] = {}  # run -> index behind its last occurrence that has a successor
        self._followers: dict[tuple[int, int], tuple[int, bool]] = {}  # two tokens -> what followed; whether only once

    def extend(self, tokens: list[int]) -> None:
        """Add tokens at the end."""
        self._tokens += tokens

    def continuation(self, length: int) -> list[int]:
        """Return what followed the longest ending that occurred before: `length` tokens, or none.

        A continuation that reaches the end of the text goes on with itself, as a loop does.
        """
        start = self._find()
        return [] if start is None else self._copied(start, length)

    def guesses(self, length: int) -> list[Guess]:
        """Return `continuation` with the evidence for each of its tokens."""
        start = self._find()
        if start is None:
            return []
        match, copied = self._alike(start), self._copied(start, length)
        firsts, seconds = [*self._tokens[-2:], *copied], [self._tokens[-1], *copied]
        return [
            Guess(token, match + depth, self._before((first, second), token))
            for depth, (first, second, token) in enumerate(zip(firsts, seconds, copied, strict=False))
        ]

    def _copied(self, start: int, length: int) -> list[int]:
        copied, apart = self._tokens[start : start + length], len(self._tokens) - start
        while len(copied) < length:
            copied.append(copied[len(copied) - apart])
        return copied

    def _alike(self, start: int) -> int:
        """Return how many tokens, up to 32, the text before `start` and its end have alike."""
        tokens, held = self._tokens, len(self._tokens)
        most = min(_AGREEMENT, start)
        return next((run for run in range(most) if tokens[start - 1 - run] != tokens[held - 1 - run]), most)

    def _before(self, pair: tuple[int, int], token: int) -> Before:
        follower, once = self._followers.get(pair, (token, True))
        if once:
            return Before.ONCE
        return Before.ALIKE if follower == token else Before.VARIED

    def _find(self) -> int | None:
        self._note_endings()
        runs = range(min(LONGEST, len(self._tokens)), SHORTEST - 1, -1)
        found = (self._ends.get(tuple(self._tokens[-run:])) for run in runs)
        return next((start for start in found if start is not None), None)

    def _note_endings(self) -> None:
        """Note the runs that end before the last token: that one has no successor yet."""
        for end in range(self._noted + 1, len(self._tokens)):
            for run in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(self._tokens[end - run : end])] = end
            if end >= SHORTEST:
                first, second, token = self._tokens[end - 2 : end + 1]
                known = self._followers.get((first, second))
                follower = token if known is None or known[0] == token else _DIFFERENT
                self._followers[first, second] = follower, known is None
        self._noted = max(self._noted, len(self._tokens) - 1)
