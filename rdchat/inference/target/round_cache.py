"""KV caches that open a round, and commit one path of it or roll it back.

A round verifies the packed nodes of a prefix tree in one target call. Every cache writes their rows behind its
committed ones and keeps them at hand. Committing a path that is contiguous in packed order only sets the length;
otherwise the accepted rows are written together with the next rows, in one slice assignment: the buffer is never
gathered from in the evaluation that writes it, and no view of it is kept, since either makes MLX copy all of it. So a
commit's cost does not depend on the context.

Each class stands in for one of mlx-lm's and is handed to unmodified models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as stock

_STEP = 256  # rows a buffer grows by at least


class UnsupportedCacheError(Exception):
    """A cache type that rounds are not known to be right for; says which."""


@dataclass(frozen=True, slots=True)
class RoundShape:
    """The packed nodes of a round.

    Attributes:
        depths: (nodes,) int32: distance of each node from the root.
        ancestors: (nodes, nodes) bool: whether row i may see row j; None for a chain, which is plain causal order.
    """

    depths: mx.array
    ancestors: mx.array | None = None


class RowBuffer:
    """Rows of keys and values in order of position, in buffers that grow geometrically.

    Attributes:
        arrays: The buffers, each (1, heads, capacity, width); none before the first write.
        first: Position of the first row that is kept.
        rows: Number of rows that are in use, from `first` on.
    """

    def __init__(self) -> None:
        self.arrays: list[mx.array] = []
        self.first = 0
        self.rows = 0

    def write(self, parts: Sequence[mx.array], keep_from: int) -> None:
        """Append rows.

        Args:
            parts: Arrays (1, heads, n, width), one for each buffer.
            keep_from: Rows of earlier positions may be dropped where the buffer would have to grow.
        """
        added = parts[0].shape[2]
        if not self.arrays or self.rows + added > self.arrays[0].shape[2]:
            self._grow(parts, added, keep_from)
        end = self.rows + added
        for array, part in zip(self.arrays, parts, strict=True):
            array[..., self.rows : end, :] = part
        self.rows = end

    def view(self, start: int) -> list[mx.array]:
        """Return the rows from position `start` on: for each buffer (1, heads, n, width)."""
        return [array[..., start - self.first : self.rows, :] for array in self.arrays]

    def cut(self, position: int) -> None:
        """Forget the rows from `position` on."""
        self.rows = min(self.rows, max(position - self.first, 0))

    def drop_front(self, count: int) -> None:
        """Forget the first `count` rows."""
        self.arrays = [array[..., count : self.rows, :] for array in self.arrays]
        self.first, self.rows = self.first + count, self.rows - count

    def _grow(self, parts: Sequence[mx.array], added: int, keep_from: int) -> None:
        dropped = min(max(keep_from - self.first, 0), self.rows)
        kept = self.rows - dropped
        capacity = -(-max(kept + added, 2 * kept) // _STEP) * _STEP
        grown = [mx.zeros((*part.shape[:2], capacity, part.shape[3]), part.dtype) for part in parts]
        if kept:
            for new, old in zip(grown, self.arrays, strict=True):
                new[..., :kept, :] = old[..., dropped : self.rows, :]
        self.arrays, self.first, self.rows = grown, self.first + dropped, kept


class AttentionRows:
    """The part that all attention caches share: rounds, masks and trimming.

    Attributes:
        offset: Number of committed positions; between a round's update and its end, of all fed ones.
        buffer: The rows.
    """

    def __init__(self, window: int | None = None) -> None:
        self.offset = 0
        self.buffer = RowBuffer()
        self._window = window
        self._shown_from = 0  # first position that the last call could attend to
        self._pending: list[mx.array] | None = None  # accepted rows that are not in the buffer yet
        self._shape: RoundShape | None = None
        self._base = 0
        self._round_rows: list[mx.array] = []

    def begin(self, shape: RoundShape) -> None:
        """Open a round. The next update has all its nodes; those of a chain may come in several updates, in order."""
        self._shape, self._base, self._round_rows = shape, self.offset, []

    def commit(self, path: list[int]) -> None:
        """Close the round; keep the rows of `path`, node indices from the root on in ascending order."""
        if not self._round_rows:  # nothing was fed
            assert not path
            self._shape = None
            return
        contiguous = next((i for i, node in enumerate(path) if node != i), len(path))
        self.buffer.cut(self._base + contiguous)
        late = path[contiguous:]
        self._pending = [rows[..., mx.array(late), :] for rows in self._round_rows] if late else None
        self.offset = self._base + len(path)
        self._shape, self._round_rows = None, []

    def rollback(self) -> None:
        """Close the round; keep none of it."""
        self.commit([])

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append the rows of one call, (1, heads, n, head_dim); return all that it may attend to.

        With a and b committed, a round whose root c has the children d and e feeds c, d, e and gets a, b, c, d, e.
        After `commit([0, 2])` the buffer holds a, b, c; the next call, with f, writes e and f in one slice assignment
        and gets a, b, c, e, f.
        """
        parts = [keys, values]
        if self._shape is not None:
            self._round_rows = parts
        self._shown_from = self._first_visible()
        self._flush(parts)
        self.offset = self.buffer.first + self.buffer.rows
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Return all rows that the last call may attend to; layers that share another's rows call it too."""
        keys, values = self.buffer.view(self._shown_from)
        return keys, values

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:  # noqa: N803
        """Return the mask of a call with N rows, as the stock cache does; within a round, the tree's.

        With 2 committed rows and a root with 2 children (`parents` [-1, 0, 0]) the mask is, left without a window and
        right with a window of 3 positions:

            1 1 1 0 0    1 1 1 0 0
            1 1 1 1 0    0 1 1 1 0
            1 1 1 0 1    0 1 1 0 1

        Returns:
            (N, visible rows + N) bool; "causal", or None for a single row, where that says the same.
        """
        window = window_size or self._window
        start, held = self._first_visible(), self.offset - self._first_visible()
        ancestors = self._shape.ancestors if self._shape is not None else None
        if ancestors is None and (window is None or held + N <= window):
            if N == 1:
                return None
            return mx.tril(mx.ones((N, held + N), mx.bool_), held) if return_array else "causal"
        if self._shape is None or ancestors is None:
            depths, ancestors = mx.arange(N), mx.tril(mx.ones((N, N), mx.bool_))
        else:
            depths = self._shape.depths
        visible = mx.concatenate([mx.ones((N, held), mx.bool_), ancestors], axis=1)
        if window is None:
            return visible
        rows = self.offset + depths
        columns = mx.concatenate([mx.arange(start, self.offset), rows])
        return visible & (rows[:, None] - columns[None] < window)

    def is_trimmable(self) -> bool:
        return True

    def can_trim(self, count: int) -> bool:
        """Tell whether the rows that would remain still fill the window."""
        return self._window is None or self.buffer.first <= max(self.offset - count - self._window + 1, 0)

    def trim(self, count: int) -> int:
        self._flush()
        count = min(self.offset, count)
        self.offset -= count
        self.buffer.cut(self.offset)
        return count

    @property
    def state(self) -> list[mx.array]:
        return self.buffer.arrays

    def _flush(self, parts: list[mx.array] | None = None) -> None:
        """Write rows that were accepted late and, in the same assignment, new ones."""
        rows = [part for part in (self._pending, parts) if part is not None]
        if rows:
            together = (
                [mx.concatenate(list(both), axis=2) for both in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]
            )
            self.buffer.write(together, self._first_visible(self._base if self._shape else None))
        self._pending = None

    def _first_visible(self, position: int | None = None) -> int:
        """Return the first position that a row at `position`, by default the next one, may look at."""
        if self._window is None:
            return self.buffer.first
        return max(self.buffer.first, (self.offset if position is None else position) - self._window + 1)


class RoundKVCache(AttentionRows, stock.KVCache):
    """Stands in for `KVCache` and, with a window, for `RotatingKVCache`: its rows slide instead of rotating."""

    def __init__(self, window: int | None = None) -> None:
        AttentionRows.__init__(self, window)
        if window is not None:
            self.max_size = window


class RoundChunkedKVCache(AttentionRows, stock.ChunkedKVCache):
    """Stands in for `ChunkedKVCache`, whose model drops old chunks and makes masks by itself."""

    def __init__(self, chunk_size: int) -> None:
        AttentionRows.__init__(self)
        self.chunk_size = chunk_size

    @property
    def start_position(self) -> int:
        return self.buffer.first

    def can_trim(self, count: int) -> bool:
        """Tell whether the rows that would remain still reach back to the beginning of their chunk."""
        kept = self.offset - count
        return self.buffer.first <= kept - kept % self.chunk_size

    def maybe_trim_front(self) -> None:
        self._flush()
        surplus = self.buffer.rows - self.chunk_size
        if surplus > 0:
            self.buffer.drop_front(surplus)


class RoundArraysCache(stock.ArraysCache):
    """Stands in for `ArraysCache`: recurrent and convolutional state, which cannot be cut, only put back whole.

    Models replace the arrays of this list and never write into them, so a copy of the list is a snapshot.
    """

    def __init__(self, arrays: list[Any]) -> None:
        super().__init__(len(arrays))
        self.cache = arrays
        self._saved: list[Any] = []
        self._before: list[Any] = []  # the arrays before the last call

    def begin(self, shape: RoundShape) -> None:
        """Open a round."""
        assert shape.ancestors is None, "recurrent state follows one chain"
        self._saved = list(self.cache)

    def commit(self, _path: list[int]) -> None:
        """Keep all that was fed; to keep less, call `rollback` and feed the accepted tokens again."""
        self._saved = []

    def rollback(self) -> None:
        """Close the round; keep none of it."""
        self.cache = self._saved
        self._saved = []

    def remember(self) -> None:
        """Keep the arrays of this moment for `step_back`."""
        self._before = list(self.cache)

    def step_back(self) -> None:
        """Put back the arrays of the last `remember`."""
        self.cache = self._before


class RoundCacheList(stock.CacheList):
    """Stands in for `CacheList`."""

    def can_trim(self, count: int) -> bool:
        return all(cache.can_trim(count) if hasattr(cache, "can_trim") else False for cache in self.caches)

    def begin(self, shape: RoundShape) -> None:
        for cache in self.caches:
            cache.begin(shape)

    def commit(self, path: list[int]) -> None:
        for cache in self.caches:
            cache.commit(path)

    def rollback(self) -> None:
        for cache in self.caches:
            cache.rollback()


def round_cache(cache: Any) -> Any:
    """Return an empty cache with rounds that stands in for `cache`, an empty one of mlx-lm's.

    Raises:
        UnsupportedCacheError: If its type is not one that rounds are known to be right for.
    """
    if type(cache) is stock.KVCache:
        return RoundKVCache()
    if type(cache) is stock.RotatingKVCache and cache.keep == 0:
        return RoundKVCache(cache.max_size)
    if type(cache) is stock.ChunkedKVCache:
        return RoundChunkedKVCache(cache.chunk_size)
    if type(cache) is stock.ArraysCache:
        return RoundArraysCache(cache.cache)
    if type(cache) is stock.CacheList:
        return RoundCacheList(*(round_cache(part) for part in cache.caches))
    raise UnsupportedCacheError(f"its cache type {type(cache).__name__} is not one that drafts can be taken back from")


def has_state(caches: Sequence[Any]) -> bool:
    """Tell whether some cache holds recurrent or convolutional state, which follows chains only."""
    return any(
        isinstance(cache, stock.ArraysCache) or (isinstance(cache, stock.CacheList) and has_state(cache.caches))
        for cache in caches
    )
