"""KV caches with rounds: a round is opened, then one path of it is committed, or all of it rolled back.

A round verifies the packed nodes of a prefix tree in one target call. Every cache writes their rows behind its
committed ones and also keeps them in hand. A path that is contiguous in packed order is committed by setting the
length; otherwise the accepted rows are written again where they belong, as a part of the next call's graph. The buffer
is never gathered from in the evaluation that writes it, and no view of it is kept while it is written to, since either
makes MLX copy all of it. So the cost of a commit does not depend on the context. Recurrent state is committed in
another way; see `state_round`.

Each class replaces one of mlx-lm's, for unmodified models.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as stock

from rdchat.inference.verification.state_round import StateRound, TreePaths

# Smallest growth of a buffer, in rows.
_STEP = 256
# Smallest growth of a buffer, as 1/n of its rows.
_GROWTH_SHARE = 4
# Smaller buffers may be held twice in all layers at once.
_LARGE_BYTES = 2**20


class UnsupportedCacheError(Exception):
    """A cache type that rounds do not support; the message names it."""


class RowBuffer:
    """Rows of keys and values in order of position, in buffers that grow by a quarter.

    Attributes:
        arrays: The buffers, each (1, heads, capacity, width); none before the first write.
        first: Position of the first row that is kept.
        rows: Number of rows that are in use, from `first` on.
        waits: Times that growing waited for the device.
    """

    def __init__(self) -> None:
        self.arrays: list[mx.array] = []
        self.first = 0
        self.rows = 0
        self.waits = 0

    def append_rows(self, parts: Sequence[mx.array], keep_from: int) -> None:
        """Append rows.

        Args:
            parts: Arrays (1, heads, n, width), one for each buffer.
            keep_from: Rows of earlier positions may be dropped where the buffer must grow.
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
        """Forget the first `count` rows.

        The slices may be views of the buffers, but nothing is written into them: they have no room for another row, so
        the next append copies them into larger buffers. Only a cache of chunks does this, and has one chunk to copy.
        """
        self.arrays = [array[..., count : self.rows, :] for array in self.arrays]
        self.first += count
        self.rows = self.rows - count

    def _grow(self, parts: Sequence[mx.array], added: int, keep_from: int) -> None:
        dropped = min(max(keep_from - self.first, 0), self.rows)
        remaining = self.rows - dropped
        capacity = -(-(remaining + max(added, remaining // _GROWTH_SHARE, _STEP)) // _STEP) * _STEP
        grown = [mx.zeros((*part.shape[:2], capacity, part.shape[3]), part.dtype) for part in parts]
        if remaining:
            for new, old in zip(grown, self.arrays, strict=True):
                new[..., :remaining, :] = old[..., dropped : self.rows, :]
        self.arrays = grown
        self.first += dropped
        self.rows = remaining
        if remaining and grown[0].nbytes >= _LARGE_BYTES:
            self.waits += 1
            # This frees the old buffers before the next layer grows, in whatever order the call is computed.
            mx.eval(grown)


def take_waits(buffers: Iterable[RowBuffer]) -> int:
    """Return the waits of buffers since the last call."""
    grown = [buffer for buffer in buffers if buffer.waits]
    waits = sum(buffer.waits for buffer in grown)
    for buffer in grown:
        buffer.waits = 0
    return waits


@dataclass(frozen=True, slots=True)
class RoundRows:
    """The rows of a round that a commit keeps; made once for all layers.

    Attributes:
        count: Number of rows.
        unmoved: Number of the first ones that are contiguous, so that they are where they belong.
        others: Index of the others among the round's rows; a slice costs no launch.
        last: Index of the last one among the round's rows; -1 without rows.
    """

    count: int
    unmoved: int
    others: slice | mx.array | None
    last: int

    @classmethod
    def for_path(cls, path: list[int]) -> "RoundRows":
        """Return those of a path: node indices from the root on in ascending order."""
        unmoved = next((i for i, node in enumerate(path) if node != i), len(path))
        others = path[unmoved:]
        last = path[-1] if path else -1
        if not others:
            return cls(len(path), unmoved, None, last)
        run = last - others[0] == len(others) - 1
        return cls(len(path), unmoved, slice(others[0], last + 1) if run else mx.array(others), last)


NO_ROWS = RoundRows.for_path([])
"""Those of a round that is rolled back."""


class AttentionRows:
    """The part that all attention caches share: rounds, masks and trimming.

    Attributes:
        length: Number of committed tokens; within a round, after its update, of all fed ones. Windows count these.
        shift: Is added to the positions of further tokens: an image may take fewer of them than it has tokens.
        blocks: (n,) integers, for a call of n rows: rows with the same number see each other, those with -1 do not;
            None in other calls.
        buffer: The rows.
    """

    def __init__(self, window: int | None = None) -> None:
        self.length = 0
        self.shift = 0
        self.blocks: mx.array | None = None
        self.buffer = RowBuffer()
        self._window = window
        # First position that the last call could attend to.
        self._view_start = 0
        # Whether a round is open, and the arguments of `open_round`.
        self._open = False
        self._depths: mx.array | None = None
        self._ancestors: mx.array | None = None
        # Position of the round's first row.
        self._base = 0
        # Keys and values of the round's last update, as they were appended; empty before the first. Of a tree they are
        # all its rows. Of a chain they may be fewer, but none of them is needed: its path is always contiguous.
        self._round_rows: list[mx.array] = []

    @property
    def offset(self) -> int:
        """Position of the next token; networks read it for rope."""
        return self.length + self.shift

    def open_round(self, depths: mx.array | None = None, ancestors: mx.array | None = None) -> None:
        """Open a round. The next update has all its nodes; those of a chain may come in several updates, in order.

        Args:
            depths: (nodes,) int32 distance of each node from the root; not needed for a chain.
            ancestors: (nodes, nodes) bool: whether row i may see row j; None for a chain, which is plain causal order.
        """
        self._open = True
        self._depths = depths
        self._ancestors = ancestors
        self._base = self.length
        self._round_rows = []

    def close_round(self, rows: RoundRows) -> None:
        """Close the round; keep some of its rows. There are none if no call was made in it."""
        assert self._round_rows or not rows.count
        if self._round_rows:
            self.buffer.cut(self._base + rows.unmoved)
            if rows.others is not None:
                self.buffer.append_rows([part[..., rows.others, :] for part in self._round_rows], 0)
            self.length = self._base + rows.count
        self._open = False
        self._depths = None
        self._ancestors = None
        self._round_rows = []

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append the rows of one call, (1, heads, n, head_dim); return all rows that it may attend to.

        With a and b committed, a round whose root c has the children d and e feeds c, d, e and gets a, b, c, d, e.
        After a commit of c and e the buffer holds a, b, c, e; the next call, with f, gets a, b, c, e, f.
        """
        parts = [keys, values]
        if self._open:
            self._round_rows = parts
        self._view_start = self._first_visible()
        # After a rollback the next row is at the root's position again, so the rows that the root sees must stay.
        self.buffer.append_rows(parts, self._first_visible(self._base) if self._open else self._view_start)
        self.length = self.buffer.first + self.buffer.rows
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Return all rows that the last call may attend to; layers that share another layer's rows call it too."""
        keys, values = self.buffer.view(self._view_start)
        return keys, values

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:  # noqa: N803
        """Return the mask of a call with N rows, as the stock cache does; within a round, the tree's; or of `blocks`.

        With 2 committed rows and a root with 2 children (`parents` [-1, 0, 0]) the mask is, left without a window and
        right with a window of 3 positions:

            1 1 1 0 0    1 1 1 0 0
            1 1 1 1 0    0 1 1 1 0
            1 1 1 0 1    0 1 1 0 1

        Returns:
            (N, visible rows + N) bool; where they mean the same, "causal", or None for a single row.
        """
        window = window_size or self._window
        is_causal = self._ancestors is None and self.blocks is None
        if N == 1 and is_causal and window is None:
            return None
        start = self._first_visible()
        held = self.length - start
        if is_causal and (window is None or held + N <= window):
            if N == 1:
                return None
            return mx.tril(mx.ones((N, held + N), mx.bool_), held) if return_array else "causal"
        depths, seen = self._seen_in_call(N)
        visible = mx.concatenate([mx.ones((N, held), mx.bool_), seen], axis=1)
        if window is None:
            return visible
        rows = self.length + depths
        columns = mx.concatenate([mx.arange(start, self.length), rows])
        return visible & (rows[:, None] - columns[None] < window)

    def _seen_in_call(self, count: int) -> tuple[mx.array, mx.array]:
        """Return the distance of a call's rows from its first one, (count,), and which of them each sees, as bool."""
        if self._depths is not None and self._ancestors is not None:
            return self._depths, self._ancestors
        seen = mx.tril(mx.ones((count, count), mx.bool_))
        if self.blocks is not None:
            seen = seen | ((self.blocks[:, None] == self.blocks) & (self.blocks >= 0))
        return mx.arange(count), seen

    def is_trimmable(self) -> bool:
        return True

    def can_trim(self, count: int) -> bool:
        """Return whether the remaining rows would still fill the window."""
        return self._window is None or self.buffer.first <= max(self.length - count - self._window + 1, 0)

    def trim(self, count: int) -> int:
        count = min(self.length, count)
        self.length -= count
        self.buffer.cut(self.length)
        return count

    @property
    def holds_all(self) -> bool:
        """Whether it has the rows of all positions, and never drops any."""
        return self._window is None and self.buffer.first == 0

    def copy_from(self, start: int, end: int | None = None) -> list[mx.array]:
        """Return a copy of the rows from position `start` on, or to `end`: keys and values, (1, heads, n, width)."""
        # It is a gather, since a slice may be a view of the buffer, and is evaluated before the buffer is written
        # again.
        first = self.buffer.first
        positions = mx.arange(start - first, (self.length if end is None else end) - first)
        rows = [array[..., positions, :] for array in self.buffer.arrays]
        mx.eval(rows)
        return rows

    def append(self, rows: list[mx.array]) -> None:
        """Append rows that `copy_from` gave, at the positions that they had."""
        if rows and rows[0].shape[2]:
            self.buffer.append_rows(rows, self.buffer.first)
        self.length = self.buffer.first + self.buffer.rows

    def first_needed(self, position: int) -> int:
        """Return the first position whose rows a call at `position` needs."""
        return 0 if self._window is None else max(position - self._window + 1, 0)

    def replace_rows(self, rows: list[mx.array], position: int) -> None:
        """Hold just these rows, as `copy_from` gave them; `position` follows the last one."""
        self.buffer = RowBuffer()
        self.buffer.first = position - (rows[0].shape[2] if rows else 0)
        self.append(rows)
        self.length = position

    @property
    def state(self) -> list[mx.array]:
        return self.buffer.arrays

    def _first_visible(self, position: int | None = None) -> int:
        """Return the first position that a row at `position`, by default the next one, may attend to."""
        if self._window is None:
            return self.buffer.first
        return max(self.buffer.first, (self.length if position is None else position) - self._window + 1)


class RoundKVCache(AttentionRows, stock.KVCache):
    """Replaces `KVCache` and, with a window, `RotatingKVCache`: its rows slide instead of rotating."""

    def __init__(self, window: int | None = None) -> None:
        AttentionRows.__init__(self, window)
        if window is not None:
            self.max_size = window

    # DeepSeek-V3.2's layers read and replace the buffers, to tie one cache's computation to another's
    @property
    def keys(self) -> mx.array | None:
        return self.buffer.arrays[0] if self.buffer.arrays else None

    @keys.setter
    def keys(self, array: mx.array) -> None:
        self.buffer.arrays[0] = array

    @property
    def values(self) -> mx.array | None:
        return self.buffer.arrays[1] if self.buffer.arrays else None

    @values.setter
    def values(self, array: mx.array) -> None:
        self.buffer.arrays[1] = array


class RoundChunkedKVCache(AttentionRows, stock.ChunkedKVCache):
    """Replaces `ChunkedKVCache`, whose model drops old chunks and makes its own masks."""

    def __init__(self, chunk_size: int) -> None:
        AttentionRows.__init__(self)
        self.chunk_size = chunk_size

    @property
    def start_position(self) -> int:
        return self.buffer.first

    def can_trim(self, count: int) -> bool:
        """Return whether the remaining rows would still reach back to the start of their chunk."""
        remaining = self.length - count
        return self.buffer.first <= remaining - remaining % self.chunk_size

    def first_needed(self, position: int) -> int:
        return position - position % self.chunk_size

    def maybe_trim_front(self) -> None:
        surplus = self.buffer.rows - self.chunk_size
        if surplus > 0:
            self.buffer.drop_front(surplus)


class RoundArraysCache(stock.ArraysCache):
    """Replaces `ArraysCache`: recurrent and convolutional state.

    Models replace the arrays in this list and never write into them, so a copy of the list is a snapshot.

    Attributes:
        round: The open round, else None; the layer's hook records there what the state is computed from.
    """

    def __init__(self, arrays: list[Any]) -> None:
        super().__init__(len(arrays))
        self.cache = arrays
        self.round: StateRound | None = None
        # What `save` noted, until a round is closed or `compact` forgets it; empty otherwise.
        self._saved: list[Any] = []
        # The state after each call of an open round that was marked.
        self._marked: list[list[Any]] = []

    def save(self) -> None:
        """Prepare for a `close_round` that keeps nothing."""
        self._saved = list(self.cache)

    def open_round(self, paths: TreePaths | None = None) -> None:
        """Open a round.

        Args:
            paths: Of its tree; None for a chain.
        """
        self.save()
        self.round = StateRound(paths)
        self._marked = []

    def mark_state(self) -> None:
        """Note the state after a call of one row, so that `close_round` can end with it."""
        self._marked.append(list(self.cache))

    def compact(self) -> None:
        """Between rounds: forget what `save` noted, and copy arrays that are a small part of a buffer, lazily."""
        self._saved = []
        self.cache = [None if array is None else mx.contiguous(array) for array in self.cache]

    @property
    def can_commit_part(self) -> bool:
        """Whether `close_round` can keep fewer rows than were fed: by marks, or where hooks recorded the one call."""
        return bool(self._marked) or (self.round is not None and self.round.is_complete(self.cache))

    def close_round(self, rows: RoundRows) -> None:
        """Close the round; keep some of its rows, and all of them where a part cannot be kept.

        Without an open round, `step_back` has the state of `save` restored in this way.
        """
        if not rows.count:
            self.cache = self._saved
        elif self._marked:
            self.cache = self._marked[rows.count - 1]
        elif self.round is not None:
            self.cache = self.round.after_rows(self.cache, rows.count, rows.last)
        self._saved = []
        self._marked = []
        self.round = None


def round_cache(cache: Any) -> Any:
    """Return an empty cache with rounds that replaces `cache`, an empty one of mlx-lm's.

    Raises:
        UnsupportedCacheError: If rounds do not support its type.
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
        return stock.CacheList(*(round_cache(part) for part in cache.caches))
    raise UnsupportedCacheError(f"its cache type {type(cache).__name__} does not support removing rejected drafts")


def has_all_rows(cache: Any) -> bool:
    """Return whether a cache is one of rows, and has those of all positions."""
    return type(cache) is RoundKVCache and cache.holds_all


def leaves(caches: Sequence[Any]) -> list[Any]:
    """Return the caches of all layers, with those inside a `CacheList` one by one."""
    found = list[Any]()
    for cache in caches:
        found += leaves(cache.caches) if isinstance(cache, stock.CacheList) else [cache]
    return found
