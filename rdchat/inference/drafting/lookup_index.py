"""An index of where a text's ending occurred before, updated token by token. No MLX here."""

from typing import NamedTuple

LONGEST, SHORTEST = 8, 2  # tokens of an ending that is looked up
_AGREEMENT = 32  # tokens compared before both places, to see how far they agree


class Guess(NamedTuple):
    """A token of a continuation, and the evidence for it."""

    token: int
    match: int  # how many tokens before it equal those before the place it is copied from; at most 32 of the text


class LookupIndex:
    """Index of where each run of 2 to 8 tokens last ended; updated at each lookup.

    Args:
        tokens: The conversation so far.
    """

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = list(tokens)
        self._noted = 0  # runs that end at or before this index are in `_ends`
        self._ends: dict[tuple[int, ...], int] = {}  # run -> index after its last occurrence that has a successor

    def extend(self, tokens: list[int]) -> None:
        """Add tokens at the end."""
        self._tokens += tokens

    def continuation(self, length: int) -> list[int]:
        """Return what followed the longest earlier occurrence of the ending: `length` tokens, or none.

        A continuation that reaches the end of the text continues with itself, as a loop does.
        """
        start = self._find()
        return [] if start is None else self._copied(start, length)

    def guesses(self, length: int) -> list[Guess]:
        """Return `continuation` with the evidence for each of its tokens."""
        start = self._find()
        if start is None:
            return []
        match = self._alike(start)
        return [Guess(token, match + depth) for depth, token in enumerate(self._copied(start, length))]

    def _copied(self, start: int, length: int) -> list[int]:
        copied, apart = self._tokens[start : start + length], len(self._tokens) - start
        while len(copied) < length:
            copied.append(copied[len(copied) - apart])
        return copied

    def _alike(self, start: int) -> int:
        """Return how many tokens, up to 32, before `start` equal those at the end of the text."""
        tokens, held = self._tokens, len(self._tokens)
        most = min(_AGREEMENT, start)
        return next((run for run in range(most) if tokens[start - 1 - run] != tokens[held - 1 - run]), most)

    def _find(self) -> int | None:
        self._note_endings()
        runs = range(min(LONGEST, len(self._tokens)), SHORTEST - 1, -1)
        found = (self._ends.get(tuple(self._tokens[-run:])) for run in runs)
        return next((start for start in found if start is not None), None)

    def _note_endings(self) -> None:
        """Index the runs that end before the last token, which has no successor yet."""
        for end in range(self._noted + 1, len(self._tokens)):
            for run in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(self._tokens[end - run : end])] = end
        self._noted = max(self._noted, len(self._tokens) - 1)
