"""How many prompt tokens one call of the network takes."""

from typing import Self

MOST_TOKENS = 2048  # as mlx-lm's; larger chunks need more memory and gain nothing
_SLOW_S = 0.4  # a chunk that takes longer is followed by a shorter one
_WANTED_S = 0.3  # that shorter one's time, if time grows with the tokens
_QUICK_S = 0.2  # a chunk that takes no longer is followed by one of twice its tokens


class PrefillPace:
    """Picks the tokens of the next chunk by the time of the last one.

    Stop is looked at between two chunks, and shall take half a second at most. Long chunks keep a GPU busy, above all
    with a mixture of experts, where each expert sees a few of a chunk's tokens only. So a chunk is as long as Stop
    allows: a power of two times the shortest, so that the same prompt is mostly read in the same chunks.

    Args:
        first: Tokens of the first chunk.
        least: The shortest chunk, which may take longer than half a second.
        most: The longest one.

    Attributes:
        chunk: Tokens of the next chunk.
    """

    def __init__(self, first: int, least: int = 8, most: int = MOST_TOKENS) -> None:
        self.chunk = first
        self._least, self._most = least, most

    @classmethod
    def fixed(cls, chunk: int) -> Self:
        """Return one that always takes `chunk` tokens."""
        return cls(chunk, chunk, chunk)

    def note(self, tokens: int, seconds: float) -> None:
        """Take in how long a chunk took; one shorter than `chunk`, as the last of a prompt is, can only slow down."""
        if seconds > _SLOW_S:
            fitting = tokens * _WANTED_S / seconds
            while self.chunk > max(fitting, self._least):
                self.chunk //= 2
            self.chunk = max(self.chunk, self._least)
        elif tokens == self.chunk and seconds <= _QUICK_S:
            self.chunk = min(2 * self.chunk, self._most)
