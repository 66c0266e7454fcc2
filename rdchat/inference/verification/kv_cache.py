"""A model's KV cache of all layers, with the tokens that it holds."""

from contextlib import suppress
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models import cache as stock
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.verification.round_cache import (
    AttentionRows,
    RoundArraysCache,
    RoundKVCache,
    RoundRows,
    UnsupportedCacheError,
    leaves,
    round_cache,
    take_waits,
)
from rdchat.inference.verification.state_round import TreePaths


class KVCache:
    """A model's KV cache together with the tokens it holds.

    `trim_to` shortens both. A cache that cannot be shortened (a rotating window that wrapped, recurrent state) is
    emptied instead. A model with cache types that rounds do not support keeps the stock ones, for plain decoding.

    Attributes:
        layers: The argument for the network: a cache for each layer, or a list of caches.
        tokens: Ids that the network has been fed.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.layers: list[Any] = make_prompt_cache(self._network)
        with suppress(UnsupportedCacheError):
            self.layers = [round_cache(layer) for layer in self.layers]
        self._leaves = leaves(self.layers)
        self.tokens: list[int] = []

    def trim_to(self, length: int) -> None:
        """Keep the first `length` tokens, or none where that is impossible."""
        surplus = len(self.tokens) - length
        if not self.can_trim_to(length):
            self.reset()
        elif surplus > 0:
            for cache in self._leaves:
                cache.trim(surplus)
            del self.tokens[length:]

    def can_trim_to(self, length: int) -> bool:
        """Return whether `trim_to` can keep the first `length` tokens."""
        surplus = len(self.tokens) - length
        return surplus <= 0 or all(_can_trim(cache, surplus) for cache in self._leaves)

    def keep_prefix_of(self, prompt: list[int]) -> None:
        """Keep the common prefix with a prompt, without the prompt's last token."""
        self.trim_to(shared_prefix(self.tokens, prompt))

    def copy_from(self, start: int) -> list[list[mx.array]] | None:
        """Return a copy of all layers' rows from position `start` on; None where a layer cannot give them."""
        if not all(type(cache) is RoundKVCache and cache.holds_all for cache in self._leaves):
            return None
        return [cache.copy_from(start) for cache in self._leaves]

    def append(self, tokens: list[int], rows: list[list[mx.array]]) -> None:
        """Append tokens with the rows that `copy_from` gave for them."""
        for cache, part in zip(self._leaves, rows, strict=True):
            cache.append(part)
        self.tokens += tokens

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        if not self.tokens:
            return 0
        arrays = tree_flatten([layer.state for layer in self.layers])
        return sum(array.nbytes for _, array in arrays if isinstance(array, mx.array))

    def take_waits(self) -> int:
        """Return how often growing buffers waited for the device since the last call."""
        return take_waits(cache.buffer for cache in self._leaves if isinstance(cache, AttentionRows))

    def evaluate(self) -> None:
        """Wait until the cache's arrays are computed; no round may be open.

        A window of a few inputs would otherwise keep all inputs of its call.
        """
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.compact()
        mx.eval([layer.state for layer in self.layers])

    @property
    def has_state(self) -> bool:
        """Whether some layer has recurrent or convolutional state."""
        return any(isinstance(cache, stock.ArraysCache) for cache in self._leaves)

    # Rounds; see `round_cache`

    def begin(
        self,
        depths: mx.array | None = None,
        ancestors: mx.array | None = None,
        deepest: int = 0,
        leaves: int = 1,
    ) -> None:
        """Open a round; see `AttentionRows.begin`.

        Args:
            depths: As there.
            ancestors: As there.
            deepest: Of a tree: upper bound of the depths.
            leaves: Of a tree: upper bound of the number of leaves.
        """
        paths = None
        if depths is not None and ancestors is not None and self.has_state:
            paths = TreePaths(depths, ancestors, deepest, leaves)
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.begin(paths)
            else:
                cache.begin(depths, ancestors)

    def mark(self) -> None:
        """Note the state after each call of a round with one row a call, so that a part of them can be committed."""
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.mark()

    @property
    def can_commit_part(self) -> bool:
        """Whether `commit` can keep fewer rows than were fed; see `RoundArraysCache`."""
        return all(cache.can_commit_part for cache in self._leaves if isinstance(cache, RoundArraysCache))

    def commit(self, path: list[int]) -> None:
        """Close the round; keep the rows of `path`, node indices from the root on in ascending order.

        These must be all that were fed unless `can_commit_part`.
        """
        rows = RoundRows.of(path)
        for cache in self._leaves:
            cache.commit(rows)

    def rollback(self) -> None:
        """Close the round; keep none of it."""
        for cache in self._leaves:
            cache.rollback()

    # Undoing a single token of plain decoding, whose call was queued before the token was certain

    @property
    def can_step_back(self) -> bool:
        """Whether the last token can always be taken back."""
        return all(isinstance(cache, RoundKVCache | RoundArraysCache) for cache in self._leaves)

    def remember(self) -> None:
        """Prepare for `step_back`."""
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.save()

    def step_back(self) -> None:
        """Take back the one token that was fed since `remember`."""
        for cache in self._leaves:
            if isinstance(cache, RoundArraysCache):
                cache.rollback()
            else:
                cache.trim(1)


def shared_prefix(tokens: list[int], prompt: list[int]) -> int:
    """Return the length of the common prefix of tokens and a prompt, without the prompt's last token."""
    limit = min(len(tokens), len(prompt) - 1)
    if tokens[:limit] == prompt[:limit]:
        return limit
    return next(i for i, (ours, theirs) in enumerate(zip(tokens, prompt, strict=False)) if ours != theirs)


def _can_trim(cache: Any, count: int) -> bool:
    return bool(cache.can_trim(count) if hasattr(cache, "can_trim") else cache.is_trimmable())
