"""The n-gram table: which token often follows the last few, counted in many texts. No MLX here.

It drafts where nothing in the chat repeats; a person reads of "common phrases". `count_ngrams` makes the table, and
`NgramTable` looks up in it. An n-gram is a run of one to four tokens and the token that follows it. For each run that
came three times or more, a table has its most frequent followers. The chances from runs of different lengths are
blended as in Witten and Bell 1991 ("The Zero-Frequency Problem", IEEE Transactions on Information Theory 37, method C):
a run that was followed by n different tokens in its m occurrences leaves n / (n + m) of the chance to the next shorter
run. He et al. 2024 ("REST", arXiv 2311.08252) draft from a datastore of texts, too.
"""

import mmap
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rdchat.errors import StorageError
from rdchat.files import atomic_file, make_folder

# Tokens of the longest run.
LONGEST_RUN = 4
# A run must have come this often.
_MIN_COUNT = 3
# Followers of a run that are kept, the most frequent ones.
_MAX_FOLLOWERS = 8
# Of the hash that is a run's key; about 2**32 times the golden ratio's fraction. It is odd, so that no two numbers have
# the same product with it modulo 2**32.
_FACTOR = 0x9E3779B1
_MASK = 0xFFFFFFFF
# Cells before the columns: the checksum of all that follows, and the numbers of runs and of followers.
_HEADER_CELLS = 3

type Cells = npt.NDArray[np.uint32]


def count_ngrams(texts: Iterable[tuple[Sequence[int], int]]) -> Cells:
    """Count what followed each run; returns the contents of a table's file.

    A run's key is a 32-bit hash of its tokens, and runs of all lengths are listed together. Two runs that have the same
    key by chance share one entry, with the counts of both. That may make a draft worse, but never changes a reply, as
    the target checks every draft.

    Args:
        texts: Token ids of each text, and the index of its first token that counts as a follower; runs may begin
            before it.

    Returns:
        (cells,) uint32: the header; for each run, sorted, its key; for each run and once more the index of its first
        follower; for each run the chance that it leaves to the shorter run; for each follower its token; for each
        follower its chance. Chances are float32, seen as uint32.
    """
    tokens, offsets, follows = _joined(texts)
    pairs = []
    keys = np.zeros(len(tokens), np.uint32)
    for length in range(1, LONGEST_RUN + 1):
        # The key of the run of this length that ends at each token, from that of the run a token shorter before it.
        keys = (np.concatenate([np.zeros(1, np.uint32), keys[:-1]]) + tokens + np.uint32(1)) * np.uint32(_FACTOR)
        # A run of this length fits between the text's beginning and the follower, so no run crosses two texts.
        is_pair = follows[1:] & (offsets[1:] >= length)
        pairs.append(keys[:-1][is_pair].astype(np.uint64) << np.uint64(32) | tokens[1:][is_pair])
    return _with_header(*_columns(*np.unique(np.concatenate(pairs), return_counts=True)))


def _joined(texts: Iterable[tuple[Sequence[int], int]]) -> tuple[Cells, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the tokens of all texts, the index of each in its text, and whether it counts as a follower.

    Before them stands one token more, which no text has and which never counts, so that no array is empty.
    """
    tokens = [np.zeros(1, np.uint32)]
    offsets = [np.zeros(1, np.int64)]
    follows = [np.zeros(1, np.bool_)]
    for text, start in texts:
        tokens.append(np.array(text, np.uint32))
        offsets.append(np.arange(len(text)))
        follows.append(offsets[-1] >= start)
    return np.concatenate(tokens), np.concatenate(offsets), np.concatenate(follows)


def _columns(pairs: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64]) -> tuple[Cells, Cells, Cells, Cells, Cells]:
    """Return the columns of a table from the sorted pairs of a run's key and its follower, and how often each came.

    A pair is one number: the key in its upper 32 bits, the follower in the lower ones. The columns are those of
    `count_ngrams`, in its order: keys, first followers, chances left, followers, and their chances.
    """
    # `first` and `run_of` connect the pairs with the runs; a run's pairs stand together.
    keys, first, run_of = np.unique(pairs >> np.uint64(32), return_index=True, return_inverse=True)
    totals = np.add.reduceat(counts, first) if len(counts) else counts
    distinct = np.bincount(run_of, minlength=len(keys))
    # The places of all pairs, run by run as `run_of` is, which is sorted; within a run the most frequent first. So the
    # rank of a pair in its run follows from its place.
    by_count = np.lexsort((-counts, run_of))
    rank = np.arange(len(pairs)) - first[run_of]
    chosen = by_count[(totals[run_of] >= _MIN_COUNT) & (rank < _MAX_FOLLOWERS)]
    is_frequent = totals >= _MIN_COUNT
    followers = np.minimum(distinct, _MAX_FOLLOWERS)[is_frequent]
    weights = totals + distinct
    return (
        keys[is_frequent].astype(np.uint32),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(followers)]).astype(np.uint32),
        (distinct / weights)[is_frequent].astype(np.float32).view(np.uint32),
        (pairs[chosen] & np.uint64(_MASK)).astype(np.uint32),
        (counts[chosen] / weights[run_of[chosen]]).astype(np.float32).view(np.uint32),
    )


def _with_header(*columns: Cells) -> Cells:
    """Return a table's cells: the header, and the columns one after the other."""
    cells = np.concatenate([np.array([len(columns[0]), len(columns[3])], np.uint32), *columns])
    return np.concatenate([np.array([zlib.crc32(cells.tobytes())], np.uint32), cells])


def write_table(path: Path, cells: Cells) -> None:
    """Write what `count_ngrams` returned.

    Raises:
        StorageError: If it cannot be written.
    """
    make_folder(path.parent)
    with atomic_file(path) as temporary:
        temporary.write_bytes(cells.tobytes())


class NgramTable:
    """A table in a file, mapped into memory.

    Args:
        path: A file of `write_table`.

    Raises:
        StorageError: If it is damaged, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            cells = memoryview(mapped).cast("I")
            checksum, runs, followers = cells[:_HEADER_CELLS]
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"{path} cannot be read: {error}.") from error
        sizes = (runs, runs + 1, runs, followers, followers)
        if len(cells) != _HEADER_CELLS + sum(sizes) or checksum != zlib.crc32(cells[1:]):
            raise StorageError(f"{path} is damaged.")
        ends = np.cumsum((_HEADER_CELLS, *sizes)).tolist()
        keys, starts, rests, tokens, shares = (cells[start:end] for start, end in pairwise(ends))
        self._keys = keys
        self._starts = starts
        self._rests = rests.cast("B").cast("f")
        self._tokens = tokens
        self._shares = shares.cast("B").cast("f")

    def chances(self, ending: Sequence[int]) -> dict[int, float]:
        """Return tokens that often follow, with their chances, whose sum is at most 1.

        Args:
            ending: The last tokens of a text; four are enough.
        """
        chances: dict[int, float] = {}
        left = 1.0
        for length in range(min(LONGEST_RUN, len(ending)), 0, -1):
            key = 0
            for token in ending[-length:]:
                key = (key + token + 1) * _FACTOR & _MASK
            run = bisect_left(self._keys, key)
            if run == len(self._keys) or self._keys[run] != key:
                continue
            for index in range(self._starts[run], self._starts[run + 1]):
                token = self._tokens[index]
                chances[token] = chances.get(token, 0.0) + left * self._shares[index]
            left *= self._rests[run]
        return chances
