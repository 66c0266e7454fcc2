"""Earlier replies in which prompt lookup looks: a file with a sorted index, and what was added since. No MLX here.

The file is a header, the tokens back to front as big-endian numbers, and the order of all their suffixes. Back to
front, the suffix at a place begins with the token before it. So the places whose past is most like the text's ending
are neighbours in that order: one binary search finds them.
"""

import mmap
import struct
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import override

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files.atomic_file import atomic_file
from rdchat.inference.drafting.lookup_estimate import LONGEST_MATCH
from rdchat.inference.drafting.lookup_index import DEEPEST, SEPARATOR, EarlierPlaces, Occurrences, Place

MOST_TOKENS = 5_000_000
"""Tokens of the largest file, of 40 MB."""
MOST_SINCE = 20_000
"""Tokens added since the file was made, beyond which it should be made anew; they take some 15 MB."""
_MAGIC = b"rdchat replies 1"
_HEADER = struct.Struct(">16sQ")  # the magic, and the number of tokens
_BYTES = 4  # of a token, and of a place in the order
_GAP = 2**32 - 1  # between two replies
_FIRST_IMPOSSIBLE = 2**31  # larger numbers than any token: the gap, and what a damaged file may have
_SORTED = 16  # tokens by which suffixes are sorted; beyond them their order is any
_PLACES = 12  # places that vote


def write_store(path: Path, replies: Iterable[Sequence[int]], most: int = MOST_TOKENS) -> int:
    """Write a store's file; it replaces an older one when it is whole.

    Args:
        path: The file; only this user may read it.
        replies: Token ids of each reply, newest first.
        most: Replies beyond so many tokens are left out.

    Returns:
        The number of tokens.

    Raises:
        StorageError: If the file cannot be written.
    """
    parts, count = list[npt.NDArray[np.uint32]](), 0
    for reply in replies:
        part = np.array([*reply, _GAP], np.uint32)[: most - count]
        parts.append(part)
        count += len(part)
        if count >= most:
            break
    text = np.concatenate(parts)[::-1] if parts else np.zeros(0, np.uint32)
    with atomic_file(path) as temporary:
        temporary.unlink(missing_ok=True)  # perhaps of a crash, with other rights
        temporary.touch(mode=0o600)
        with temporary.open("wb") as file:
            file.write(_HEADER.pack(_MAGIC, len(text)))
            file.write(text.astype(">u4").tobytes())
            file.write(_suffix_order(text).astype("<u4").tobytes())
    return len(text)


def _suffix_order(text: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return (tokens,) the places of a text, sorted by the `_SORTED` tokens from each on.

    Sorts by twice as many tokens each time (Manber and Myers 1990).
    """
    ranks = 1 + np.unique(text, return_inverse=True)[1].astype(np.int64)
    order, known = np.argsort(ranks, kind="stable"), 1
    while known < _SORTED:
        following = np.zeros_like(ranks)  # 0: the text has ended
        following[:-known] = ranks[known:]
        ranks = ranks * (len(text) + 1) + following
        order = np.argsort(ranks, kind="stable")
        in_order = ranks[order]
        ranks[order] = 1 + np.cumsum(np.concatenate([[False], in_order[1:] != in_order[:-1]]))
        known *= 2
    return order


class ReplyStore(EarlierPlaces):
    """Looks endings up in a store's file and in the replies since. Used from one thread.

    Args:
        path: The file.
        grows: Whether replies that end are added.

    Raises:
        ModelError: If the file is missing or damaged.
    """

    def __init__(self, path: Path, grows: bool = True) -> None:
        self._data, self._count = _read(path)
        self._grows = grows
        self._text, self._order = _HEADER.size, _HEADER.size + _BYTES * self._count  # where they begin
        self._since = Occurrences()

    @property
    def tokens(self) -> int:
        """The number of tokens in all."""
        return self._count + len(self._since.tokens)

    @property
    def memory_bytes(self) -> int:
        """The memory that it may take."""
        return len(self._data) + 750 * len(self._since.tokens)

    @override
    def add(self, reply: Sequence[int]) -> None:
        """Add a reply that the file does not have; beyond `MOST_SINCE` tokens they are not added."""
        if self._grows and len(self._since.tokens) + len(reply) < MOST_SINCE:
            self._since.tokens += [*reply, SEPARATOR]

    @override
    def places(self, ending: Sequence[int]) -> list[Place]:
        """See `EarlierPlaces`."""
        found = [Place(match, self._followed(at), True) for at, match in self._find(ending)]
        tokens = self._since.tokens
        for place, match in self._since.find(ending, _PLACES):
            following = tokens[place : place + DEEPEST]
            following = following[: following.index(SEPARATOR)] if SEPARATOR in following else following
            found.append(Place(match, following, True))
        kept = sorted((place for place in found if place.following), key=lambda place: -place.match)
        return kept[:_PLACES]

    def _find(self, ending: Sequence[int]) -> list[tuple[int, int]]:
        """Return places in the file whose past is most like an ending, and their matches."""
        past = list(islice(reversed(ending), LONGEST_MATCH))
        if not past or not self._count:
            return []
        sought = struct.pack(f">{len(past)}I", *past)
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._past(self._at(middle)) < sought:
                low = middle + 1
            else:
                high = middle
        # the best are the neighbours on both sides
        before, after = low - 1, low
        found: list[tuple[int, int]] = []
        left, right = self._match(before, sought), self._match(after, sought)
        while len(found) < _PLACES and max(left, right) > 0:
            if left >= right:
                found.append((self._at(before), left))
                before -= 1
                left = self._match(before, sought)
            else:
                found.append((self._at(after), right))
                after += 1
                right = self._match(after, sought)
        return found

    def _at(self, number: int) -> int:
        """Return the place with a number in the order."""
        start = self._order + _BYTES * number
        return int.from_bytes(self._data[start : start + _BYTES], "little")

    def _past(self, at: int) -> bytes:
        start = self._text + _BYTES * at
        return self._data[start : min(start + _BYTES * _SORTED, self._order)]

    def _match(self, number: int, sought: bytes) -> int:
        """Return how many tokens agree with what is sought; 0 beyond the order's ends."""
        if not 0 <= number < self._count:
            return 0
        start = self._text + _BYTES * self._at(number)
        past = self._data[start : min(start + len(sought), self._order)]
        low, high = 0, len(past) // _BYTES
        while low < high:
            middle = (low + high + 1) // 2
            if past[: _BYTES * middle] == sought[: _BYTES * middle]:
                low = middle
            else:
                high = middle - 1
        return low

    def _followed(self, at: int) -> list[int]:
        """Return what followed the token at a place, up to the end of its reply."""
        first = max(at - DEEPEST, 0)
        part = self._data[self._text + _BYTES * first : self._text + _BYTES * at]
        following = struct.unpack(f">{at - first}I", part)[::-1]
        return list(takewhile(lambda token: token < _FIRST_IMPOSSIBLE, following))


def _read(path: Path) -> tuple[mmap.mmap, int]:
    damaged = ModelError(f"The earlier replies in {path} are damaged.", "Clear them in Settings > General.")
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise damaged from error
    if len(data) < _HEADER.size:
        raise damaged
    magic, count = _HEADER.unpack(data[: _HEADER.size])
    if magic != _MAGIC or len(data) != _HEADER.size + 2 * _BYTES * count:
        raise damaged
    return data, count
