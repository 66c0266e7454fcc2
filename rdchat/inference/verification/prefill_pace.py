"""Chooses how many prompt tokens to feed in one call."""

# As in mlx-lm; larger chunks need more memory and gain nothing.
MAX_TOKENS = 2048
# After a chunk that took longer, the next one is shorter.
_SLOW_S = 0.4
# Target time of the shorter chunk, if time grows with the tokens.
_TARGET_S = 0.3
# After a chunk that took no longer, the next one has twice its tokens.
_QUICK_S = 0.2
_MIN_SHARE = 1 / 8
# Chunks that were not stopped, after which chunks may take twice the time again.
_RECOVERS = 64


class PrefillPace:
    """Chooses the next chunk's size by the time of the last one.

    Cancelling is possible between chunks and must take half a second at most. Long chunks keep a GPU busy, above all
    with a mixture of experts, where each expert sees only a few tokens of a chunk. So a chunk is as long as that
    allows. Its size is the first one times a power of two, so that the same prompt is mostly split in the same way.

    Args:
        first: Tokens of the first chunk.
        shortest: The shortest chunk, which may take longer than half a second.
        longest: The longest one.

    Attributes:
        chunk: Tokens of the next chunk.
    """

    def __init__(self, first: int, shortest: int = 8, longest: int = MAX_TOKENS) -> None:
        self.chunk = first
        self._shortest, self._longest = shortest, longest
        # Share of the times above; it is halved when the system stops a chunk.
        self._share = 1.0
        # Chunks since it stopped one.
        self._unstopped = 0

    def note(self, tokens: int, seconds: float) -> None:
        """Record the time of a chunk. One shorter than `chunk`, as at a prompt's end, can only shorten the next."""
        self._unstopped += 1
        if self._unstopped % _RECOVERS == 0:
            self._share = min(2 * self._share, 1.0)
        seconds /= self._share
        if seconds > _SLOW_S:
            fitting = tokens * _TARGET_S / seconds
            while self.chunk > max(fitting, self._shortest):
                self.chunk //= 2
            self.chunk = max(self.chunk, self._shortest)
        elif tokens == self.chunk and seconds <= _QUICK_S:
            self.chunk = min(2 * self.chunk, self._longest)

    def shorten(self) -> None:
        """Halve the next chunk, and the time that chunks may take: the system stopped one, mostly for its length."""
        self.chunk = max(self.chunk // 2, self._shortest)
        self._share = max(self._share / 2, _MIN_SHARE)
        self._unstopped = 0
