"""Keeps the KV caches of several conversations in memory, so that a prompt is read only from where one of them ends.

An entry is a whole cache, or a tail: rows that were cut from a cache when another conversation took its beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.api import ImageSpan, PrefixCacheFacts
from rdchat.inference.device import total_memory_bytes
from rdchat.inference.verification.kv_cache import KVCache, check_images, shared_prefix

# The usual limit is 1/n of the memory that models could take.
_SHARE = 8
# Shorter tails are not kept: their tokens are quickly read again.
_MIN_TAIL = 16


def usual_limit() -> int:
    """Return the usual limit of their memory in bytes."""
    return total_memory_bytes() // _SHARE


@dataclass(slots=True, eq=False)
class _Tail:
    """The rows of a conversation from some position on; another one has the cache with the rows before.

    Attributes:
        tokens: All tokens of the conversation.
        start: Position of its first row.
        rows: Keys and values of each layer, (1, heads, n, width).
    """

    tokens: list[int]
    start: int
    rows: list[list[mx.array]]

    @property
    def nbytes(self) -> int:
        """Memory of its rows."""
        return sum(array.nbytes for layer in self.rows for array in layer)

    def move(self, cache: KVCache, end: int) -> None:
        """Move the rows up to position `end` to a cache that holds the tokens before; it may hold some of them too."""
        first = len(cache.tokens)
        cache.append(self.tokens[first:end], self._cut(first, end))
        self.rows = self._cut(end, len(self.tokens))
        self.start = end

    def _cut(self, start: int, end: int) -> list[list[mx.array]]:
        rows = mx.arange(start - self.start, end - self.start)
        cut = [[array[..., rows, :] for array in layer] for layer in self.rows]
        mx.eval(cut)
        return cut


class PrefixCaches:
    """Keeps KV caches between replies, and drops the least recently used first.

    A reply takes the cache with the longest common prefix, trims it to that, and gives it back at its end. The rows
    that are trimmed are put aside, and put back at the next turn of their conversation. So a long prefix that several
    conversations share is held once. Where more tokens would be trimmed than are shared, the reply begins with an empty
    cache instead. A cache that cannot be trimmed (recurrent state, a window that wrapped) is taken only if the prompt
    continues all of it, or what `KVCache.mark_prompt` noted.

    Args:
        network: The target.
        limit_bytes: Maximum memory of the caches that no reply has taken. The last one is kept whatever its size.
    """

    def __init__(self, network: nn.Module, limit_bytes: int) -> None:
        self._network = network
        self._limit_bytes = limit_bytes
        # Owner and cache or tail; the least recently used comes first.
        self._entries: list[tuple[str, KVCache | _Tail]] = []

    def take_cache(self, prompt: list[int], owner: str, images: Sequence[ImageSpan] = ()) -> KVCache:
        """Return the cache of a reply, which holds a proper prefix of its prompt; no other reply gets it meanwhile.

        In this order: choose a cache, put aside the rows that the prompt does not share, trim them, put back rows
        that other replies put aside, and drop others until the rest is within the limit with this one.

        Args:
            prompt: Token ids, at least one.
            owner: Only caches of this owner are looked at; see `GenerationRequest.partition`.
            images: The prompt's images; the cache gets them.

        Raises:
            ModelError: If the network cannot be fed images.
        """
        if images:
            check_images(self._network)
        # The cache that shares most with the prompt, and of these the one that loses the fewest tokens.
        cache = None
        max_shared = 0
        min_lost = 0
        for candidate in self._of(owner, KVCache):
            shared = candidate.reach(shared_prefix(candidate.tokens, prompt))
            lost = len(candidate.tokens) - shared
            better = (shared, -lost) > (max_shared, -min_lost)
            if better and lost <= shared:
                cache = candidate
                max_shared = shared
                min_lost = lost
        if cache is None:
            cache = KVCache(self._network)
        self._remove(cache)
        self._put_aside(cache, max_shared, owner)
        cache.trim_to(max_shared)
        cache.images = images
        self._put_back(cache, prompt, owner)
        self._drop(self._limit_bytes - cache.nbytes, keep=0)
        return cache

    def _put_aside(self, cache: KVCache, start: int, owner: str) -> None:
        """Keep a copy of the rows from position `start` on, if they are many and there is room."""
        worth = len(cache.tokens) - start >= _MIN_TAIL and cache.nbytes < self._limit_bytes
        if worth and (rows := cache.copy_from(start)) is not None:
            self._entries.append((owner, _Tail([*cache.tokens], start, rows)))

    def _put_back(self, cache: KVCache, prompt: list[int], owner: str) -> None:
        """Append the rows of a prompt's tokens that were put aside.

        In order of position, since one tail may end where the next begins. What is left of a tail stays aside.
        """
        for tail in sorted(self._of(owner, _Tail), key=lambda each: each.start):
            end = shared_prefix(tail.tokens, prompt)
            if tail.start <= len(cache.tokens) < end:
                tail.move(cache, end)
                self._remove(tail)
                if len(tail.tokens) - tail.start >= _MIN_TAIL:
                    self._entries.append((owner, tail))

    def give_back(self, cache: KVCache, owner: str, failed: bool = False) -> None:
        """Keep a cache after its reply, unless it is empty. If the reply failed, memory may be short: none is kept."""
        if failed:
            self.drop_caches()
        elif cache.tokens:
            self._entries.append((owner, cache))
            self._drop(self._limit_bytes, keep=1)

    def limit(self, limit_bytes: int) -> None:
        """Keep less or more memory from now on."""
        self._limit_bytes = limit_bytes
        self._drop(limit_bytes, keep=1)

    def drop_caches(self) -> None:
        """Drop all caches that no reply has taken, however small they are."""
        self._drop(-1, keep=0)

    @property
    def facts(self) -> PrefixCacheFacts:
        """Their number and memory, and the limit."""
        return PrefixCacheFacts(len(self._entries), self._bytes(), self._limit_bytes)

    def _of[Kind](self, owner: str, kind: type[Kind]) -> list[Kind]:
        """Return an owner's caches or tails, the most recently used first."""
        return [each for name, each in reversed(self._entries) if name == owner and isinstance(each, kind)]

    def _remove(self, removed: KVCache | _Tail) -> None:
        self._entries = [each for each in self._entries if each[1] is not removed]

    def _bytes(self) -> int:
        return sum(each.nbytes for _, each in self._entries)

    def _drop(self, limit_bytes: int, keep: int) -> None:
        """Drop the least recently used caches until the others fit; the last `keep` stay in any case."""
        dropped = False
        while len(self._entries) > keep and self._bytes() > limit_bytes:
            del self._entries[0]
            dropped = True
        if dropped:
            mx.clear_cache()
