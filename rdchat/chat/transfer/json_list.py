"""Splits a long JSON list into its values, so that each is parsed alone by Python's `json`.

NumPy finds the ends of the values, at some 80 MB a second on a slow core. ijson was tried: its C part, yajl, is 40
times slower with many small values. It refuses numbers and lone surrogates that `json` reads, and must hold a whole
string to skip it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 1 << 17
# The title of a chat that is too long is in its beginning.
_BEGINNING = 1 << 16
_QUOTE, _OTHER, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4, 5
_MARKS = {'"': _QUOTE, ":": _OTHER, ",": _COMMA, "[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE}
_KINDS = bytes(_MARKS.get(chr(byte), 0) for byte in range(256))

type _Marks = tuple["NDArray[np.intp]", "NDArray[np.uint8]", "NDArray[np.int32]"]


class DamagedListError(ValueError):
    """The list does not end, or a value is missing."""


@dataclass(frozen=True, slots=True)
class ListValue:
    """A value of the list.

    Attributes:
        data: Its JSON in UTF-8; only the beginning if it is too long.
        too_long: Whether it exceeds the limit for one value.
        before: Bytes of the list before it.
    """

    data: bytearray
    too_long: bool
    before: int


class JsonList:
    """The values of a list, one after another.

    Args:
        read: Returns up to this many bytes of UTF-8, fewer only at the end; starts after the list's bracket.
        max_bytes: Limit for one value.

    Attributes:
        rest: After the last value: the bytes read after the list; more may follow.
    """

    def __init__(self, read: Callable[[int], bytes], max_bytes: int) -> None:
        self._read, self._max_bytes = read, max_bytes
        self.rest = b""

    def __iter__(self) -> Iterator[ListValue]:
        """Yield the values.

        Raises:
            DamagedListError: If the list is incomplete, or a value is missing before a comma.
        """
        scanner, value, length, before, count = _Scanner(depth=1), bytearray(), 0, 0, 0
        while chunk := _join_escapes(self._read):
            offsets, kinds, depths = scanner.scan(chunk)
            begin = 0
            for at in ((depths == 0) | ((depths == 1) & (kinds == _COMMA))).nonzero()[0]:
                end, is_last = int(offsets[at]), depths[at] == 0
                length += self._extend(value, length, chunk[begin:end])
                if value and not value.isspace():
                    count += 1
                    yield ListValue(value, length > self._max_bytes, before + end - length)
                elif count or not is_last:
                    raise DamagedListError
                if is_last:
                    self.rest = chunk[end + 1 :]
                    return
                value, length, begin = bytearray(), 0, end + 1
            length += self._extend(value, length, chunk[begin:])
            before += len(chunk)
        raise DamagedListError

    def _extend(self, value: bytearray, length: int, more: bytes) -> int:
        """Add more of a value after its first `length` bytes; return the number of bytes added."""
        if length + len(more) <= self._max_bytes:
            value += more
        elif length <= self._max_bytes:
            value += more[:_BEGINNING]
            del value[_BEGINNING:]
        return len(more)


def count_marks(read: Callable[[int], bytes]) -> int:
    """Return the number of brackets, commas and colons outside of strings: a measure of the memory once parsed.

    Args:
        read: Returns up to this many bytes of UTF-8, fewer only at the end.
    """
    scanner, count = _Scanner(depth=0), 0
    while chunk := _join_escapes(read):
        count += len(scanner.scan(chunk)[0])
    return count


class _Scanner:
    """Finds the marks outside of strings, a chunk at a time.

    Args:
        depth: Number of open brackets before the first chunk.
    """

    def __init__(self, depth: int) -> None:
        self._depth, self._in_string = depth, 0

    def scan(self, chunk: bytes) -> _Marks:
        r"""Return offsets, kinds and depths of a chunk's marks, each (marks,); it must not end within an escape.

        A depth is the number of open brackets after the mark.
        """
        import numpy as np  # noqa: PLC0415  the window, which imports this too, starts without it

        # In a run of backslashes each pair is one escape; an odd one escapes what follows.
        plain = chunk.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in chunk else chunk
        kinds = np.frombuffer(plain.translate(_KINDS), np.uint8)
        offsets = np.flatnonzero(kinds)
        kinds = kinds[offsets]
        quotes = kinds == _QUOTE
        if self._in_string or quotes.any():
            # The sum may wrap.
            in_string = np.cumsum(quotes, dtype=np.uint8) + np.uint8(self._in_string) & 1
            self._in_string = int(in_string[-1]) if len(in_string) else self._in_string
            outside = (in_string | quotes) == 0
            offsets, kinds = offsets[outside], kinds[outside]
        steps = (kinds == _OPEN).view(np.int8) - (kinds == _CLOSE).view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32) + np.int32(self._depth)
        self._depth = int(depths[-1]) if len(depths) else self._depth
        return offsets, kinds, depths


def _join_escapes(read: Callable[[int], bytes]) -> bytes:
    """Return a chunk, with one more byte if it would end within an escape."""
    chunk = read(_CHUNK)
    return chunk + read(1) if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 else chunk
