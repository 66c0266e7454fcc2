"""A model's KV cache of all layers, with the tokens that it holds, and rounds on all of them at once.

The caches of the layers are those of `round_cache`, or stock ones where it does not support a type. Where several ranks
compute the model, each change is reported to them (`Mirror`). All calls belong to the engine thread.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models import cache as stock
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError
from rdchat.inference.api import ImageSpan, shift_before
from rdchat.inference.verification.round_cache import (
    NO_ROWS,
    AttentionRows,
    RoundArraysCache,
    RoundKVCache,
    RoundRows,
    UnsupportedCacheError,
    has_all_rows,
    leaves,
    round_cache,
    take_waits,
)
from rdchat.inference.verification.state_round import TreePaths

Operation = IntEnum(
    "Operation", "DROP OPEN_ROUND CLOSE_ROUND ROLLBACK TRIM MARK_STATE REMEMBER STEP_BACK COMPACT START_AT"
)
"""What happens to a cache between two calls; all but `DROP` are methods of `KVCache`."""

type Tree = tuple[mx.array, mx.array, int, int]
"""Depths, ancestors, deepest and leaves of a round's tree; see `KVCache.open_round`."""
type Mirror = Callable[[Operation, list[Any], Sequence[int], Tree | None], None]
"""Takes what happens to the cache with these layers, so that other ranks repeat it; see `rank_messages`."""


class KVCache:
    """A model's KV cache together with the tokens it holds.

    `trim_to` shortens both. A cache that cannot be shortened (a rotating window that wrapped, recurrent state) is
    emptied instead; one with recurrent state can go back to where it was marked. A model with cache types that
    rounds do not support keeps the stock ones, for plain decoding.

    Attributes:
        layers: The argument for the network: a cache for each layer, or a list of caches.
        tokens: Ids that the network has been fed.
        images: The images of the text that its tokens begin, in order; they may end before or inside some of them.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._mirror = mirror_of(network)
        self.images: Sequence[ImageSpan] = ()
        self.drop_tokens()

    @property
    def goes_back(self) -> bool:
        """Whether it can be cut at any token: no layer has state or a window."""
        return not self.has_state and all(map(has_all_rows, self._leaves))

    def drop_tokens(self) -> None:
        """Forget all tokens."""
        self.layers: list[Any] = make_prompt_cache(self._network)
        # If one layer is not supported, all keep their stock caches.
        with suppress(UnsupportedCacheError):
            self.layers = [round_cache(layer) for layer in self.layers]
        self._leaves = leaves(self.layers)
        self.tokens: list[int] = []
        # What `mark_prompt` noted: a number of tokens, and after them the state of each layer that has state. Without a
        # note, no tokens.
        self._mark = 0, list[list[Any]]()

    def mark_prompt(self) -> None:
        """Remember the state after the present tokens, so that `trim_to` can go back. After `evaluate`.

        It does so only where some layer has state, all other layers have all rows, and no other rank has a part.
        """
        kinds = [isinstance(each, RoundArraysCache) or has_all_rows(each) for each in self._leaves]
        if self.has_state and not self._mirror and all(kinds):
            states = [list(each.cache) for each in self._leaves if isinstance(each, RoundArraysCache)]
            self._mark = len(self.tokens), states

    def reach(self, length: int) -> int:
        """Return how many tokens, at most `length`, `trim_to` can keep.

        That is `length` itself, or else the marked number of tokens if it is not above `length`, or else none.
        """
        if self.can_trim_to(length):
            return length
        marked = self._mark[0]
        return marked if marked <= length else 0

    def trim_to(self, length: int) -> None:
        """Keep the first `length` tokens, or none where that is impossible."""
        surplus = len(self.tokens) - length
        if not self.can_trim_to(length):
            self.drop_tokens()
        elif surplus > 0:
            if self.has_state:
                self._go_back(surplus)
            else:
                self.trim(surplus)
            del self.tokens[length:]
            self._shift()

    def _go_back(self, count: int) -> None:
        """Drop the last `count` positions, and restore the marked state, which has the same length.

        It is not reported: no state is marked where other ranks have a part.
        """
        states = iter(self._mark[1])
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.cache = list(next(states))
            else:
                cache.trim(count)

    def trim(self, count: int) -> None:
        """Drop the last `count` positions, not the tokens."""
        self._report(Operation.TRIM, count)
        for cache in self._leaves:
            cache.trim(count)

    def start_at(self, position: int) -> None:
        """Have an empty cache begin at a position far into a text."""
        self._report(Operation.START_AT, position)
        for cache in self._leaves:
            if isinstance(cache, AttentionRows):
                cache.length = position
                cache.buffer.first = position

    def can_trim_to(self, length: int) -> bool:
        """Return whether `trim_to` can keep the first `length` tokens.

        With recurrent state it can keep all of them, or as many as were marked. Else it can keep any number, as long as
        no image that may not be divided is cut, and each layer with a window still has enough rows.
        """
        surplus = len(self.tokens) - length
        if surplus <= 0:
            return True
        if self.has_state:
            return 0 < length == self._mark[0]
        return not self.cuts_image(length) and all(_can_trim(cache, surplus) for cache in self._leaves)

    def keep_prefix_of(self, prompt: list[int]) -> None:
        """Keep the common prefix with a prompt, without the prompt's last token."""
        self.trim_to(shared_prefix(self.tokens, prompt))

    def copy_from(self, start: int) -> list[list[mx.array]] | None:
        """Return a copy of all layers' rows from position `start` on; None where a layer cannot give them.

        Nor can a layer whose rows are on other ranks.
        """
        if self._mirror or not all(map(has_all_rows, self._leaves)):
            return None
        return [cache.copy_from(start) for cache in self._leaves]

    def append(self, tokens: list[int], rows: list[list[mx.array]]) -> None:
        """Append tokens with the rows that `copy_from` gave for them."""
        for cache, part in zip(self._leaves, rows, strict=True):
            cache.append(part)
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Note tokens, perhaps of images, whose rows the layers have."""
        self.tokens += tokens
        self._shift()

    # Images

    def cuts_image(self, length: int) -> bool:
        """Return whether the first `length` tokens have only a part of an image that may not be divided."""
        return any(image.bidirectional and image.start < length < image.end for image in self.images)

    def _shift(self) -> None:
        """Give the layers what the images that they hold add to positions; see `ImageSpan.shift`."""
        shift = shift_before(self.images, len(self.tokens))
        for cache in self._leaves:
            if isinstance(cache, AttentionRows):
                cache.shift = shift

    @contextmanager
    def seeing(self, blocks: mx.array, *, windows_only: bool = False) -> Iterator[None]:
        """Within the block, rows of one image see each other in a call.

        Args:
            blocks: (n,) integers: the image's number for each row of the call, -1 for rows of text.
            windows_only: Whether that concerns only layers with a window.
        """
        layers = [cache for cache in self._leaves if isinstance(cache, AttentionRows)]
        layers = [cache for cache in layers if not (windows_only and cache.holds_all)]
        for cache in layers:
            cache.blocks = blocks
        try:
            yield
        finally:
            for cache in layers:
                cache.blocks = None

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        if not self.tokens:
            return 0
        arrays = tree_flatten([*(layer.state for layer in self.layers), self._mark[1]])
        return sum(array.nbytes for _, array in arrays if isinstance(array, mx.array))

    def take_waits(self) -> int:
        """Return how often growing buffers waited for the device since the last call."""
        return take_waits(cache.buffer for cache in self._leaves if isinstance(cache, AttentionRows))

    def evaluate(self) -> None:
        """Wait until the cache's arrays are computed; no round may be open."""
        if self.has_state:
            self.compact()
        mx.eval([layer.state for layer in self.layers])

    def compact(self) -> None:
        """Copy small parts of large arrays: a window of a few inputs would otherwise keep all inputs of its call."""
        self._report(Operation.COMPACT)
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.compact()

    @property
    def has_state(self) -> bool:
        """Whether some layer has recurrent or convolutional state."""
        return any(isinstance(cache, stock.ArraysCache) for cache in self._leaves)

    # Rounds; see `round_cache`

    def open_round(
        self,
        depths: mx.array | None = None,
        ancestors: mx.array | None = None,
        deepest: int = 0,
        leaves: int = 1,
    ) -> None:
        """Open a round; see `AttentionRows.open_round`.

        Args:
            depths: As there.
            ancestors: As there.
            deepest: Of a tree: upper bound of the depths.
            leaves: Of a tree: upper bound of the number of leaves.
        """
        tree = None if depths is None or ancestors is None else (depths, ancestors, deepest, leaves)
        self._report(Operation.OPEN_ROUND, tree=tree)
        paths = TreePaths(*tree) if tree and self.has_state else None
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.open_round(paths)
            else:
                cache.open_round(depths, ancestors)

    def mark_state(self) -> None:
        """Note the state after each call of a round with one row a call, so that a part of them can be committed."""
        self._report(Operation.MARK_STATE)
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.mark_state()

    @property
    def can_commit_part(self) -> bool:
        """Whether `close_round` can keep fewer rows than were fed; see `RoundArraysCache`."""
        return all(cache.can_commit_part for cache in self._leaves if isinstance(cache, RoundArraysCache))

    def close_round(self, path: list[int]) -> None:
        """Close the round; keep the rows of `path`, node indices from the root on in ascending order.

        These must be all that were fed unless `can_commit_part`.
        """
        self._report(Operation.CLOSE_ROUND, *path)
        rows = RoundRows.for_path(path)
        for cache in self._leaves:
            cache.close_round(rows)

    def rollback(self) -> None:
        """Close the round; keep none of it."""
        self._report(Operation.ROLLBACK)
        for cache in self._leaves:
            cache.close_round(NO_ROWS)

    # Undoing a single token of plain decoding, whose call was queued before the token was certain

    @property
    def can_step_back(self) -> bool:
        """Whether the last token can always be taken back; a cache of chunks may have dropped rows that this needs."""
        return all(isinstance(cache, RoundKVCache | RoundArraysCache) for cache in self._leaves)

    def remember(self) -> None:
        """Prepare for `step_back`."""
        self._report(Operation.REMEMBER)
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.save()

    def step_back(self) -> None:
        """Take back the one token that was fed since `remember`."""
        self._report(Operation.STEP_BACK)
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.close_round(NO_ROWS)
            else:
                cache.trim(1)

    # Other ranks

    def _report(self, operation: Operation, *arguments: int, tree: Tree | None = None) -> None:
        if self._mirror is not None:
            self._mirror(operation, self.layers, arguments, tree)

    def repeat(self, operation: Operation, arguments: Sequence[int]) -> None:
        """Carry out an operation that another rank's cache reported.

        A round opens without its tree here; `Follower` opens it again with the tree that the next call brings.
        """
        if operation is Operation.CLOSE_ROUND:
            self.close_round([*arguments])
        else:
            getattr(self, operation.name.lower())(*arguments)


def first_offset(layers: Sequence[Any] | None) -> int:
    """Return the position after the rows of the first attention layer; 0 without one."""
    return next((cache.offset for cache in leaves(layers or ()) if hasattr(cache, "offset")), 0)


def mirror_of(network: nn.Module) -> Mirror | None:
    """Return what reports changes of a network's caches to other ranks; None for one that is computed here alone."""
    mirror: Mirror | None = getattr(type(network), "mirror", None)
    return mirror


def check_images(network: nn.Module) -> None:
    """Check that a network can be fed the rows of images.

    Raises:
        ModelError: If several Macs run it: the calls that they repeat have tokens alone.
    """
    if mirror_of(network) is not None:
        raise ModelError("A model that several Macs run cannot see images.", "Choose a model on this Mac.")


def shared_prefix(tokens: list[int], prompt: list[int]) -> int:
    """Return the length of the common prefix of tokens and a prompt, without the prompt's last token."""
    limit = min(len(tokens), len(prompt) - 1)
    if tokens[:limit] == prompt[:limit]:
        return limit
    return next(i for i, (ours, theirs) in enumerate(zip(tokens, prompt, strict=False)) if ours != theirs)


def _can_trim(cache: Any, count: int) -> bool:
    return bool(cache.can_trim(count) if hasattr(cache, "can_trim") else cache.is_trimmable())
