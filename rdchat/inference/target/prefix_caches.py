"""The KV caches of several conversations, so that a prompt is read only from where one of them ends."""

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.api.events import PrefixCacheFacts
from rdchat.inference.target.device import total_memory_bytes
from rdchat.inference.target.round_cache import KVCache

_SHARE = 8  # the usual limit is 1/n of the memory that models could take


def usual_limit() -> int:
    """Return the usual limit of their memory in bytes."""
    return total_memory_bytes() // _SHARE


class PrefixCaches:
    """Keeps KV caches between replies, the least recently used first to go.

    A reply takes the cache with the longest common prefix, trims it to that, and gives it back at its end. Where
    trimming would lose more tokens than are shared, the reply begins with an empty cache instead. So a long prefix is
    held once, and two chats that share only what a chat template begins with keep their own caches. A cache that cannot
    be trimmed (recurrent state, a window that wrapped) is taken only if the prompt continues all of it.

    Args:
        network: The target.
        limit_bytes: The most memory of the caches that no reply has taken. The last one is kept whatever its size.
    """

    def __init__(self, network: nn.Module, limit_bytes: int) -> None:
        self._network = network
        self._limit_bytes = limit_bytes
        self._kept: list[tuple[str, KVCache]] = []  # with their owners, the least recently used first

    def take(self, prompt: list[int], owner: str) -> KVCache:
        """Return the cache of a reply, which holds a proper prefix of its prompt; no other reply gets it meanwhile.

        Args:
            prompt: Token ids, at least one.
            owner: Only caches of this owner are looked at; see `GenerationRequest.partition`.
        """
        found, most, least = None, 0, 0
        for cache in (kept for name, kept in reversed(self._kept) if name == owner):
            shared = cache.shared_with(prompt)
            lost = len(cache.tokens) - shared
            better = (shared, -lost) > (most, -least)
            if better and lost <= shared and cache.can_trim_to(shared):
                found, most, least = cache, shared, lost
        found = found or KVCache(self._network)
        self._kept = [each for each in self._kept if each[1] is not found]
        found.trim_to(most)
        self._drop(self._limit_bytes - found.nbytes, keep=0)
        return found

    def give_back(self, cache: KVCache, owner: str, failed: bool = False) -> None:
        """Keep a cache after its reply, unless it is empty. If the reply failed, memory may be short: none is kept."""
        if failed:
            self.clear()
        elif cache.tokens:
            self._kept.append((owner, cache))
            self._drop(self._limit_bytes, keep=1)

    def limit(self, limit_bytes: int) -> None:
        """Keep less or more memory from now on."""
        self._limit_bytes = limit_bytes
        self._drop(limit_bytes, keep=1)

    def clear(self) -> None:
        """Drop all caches that no reply has taken."""
        self._drop(-1, keep=0)

    @property
    def facts(self) -> PrefixCacheFacts:
        """Their number and memory, and the limit."""
        return PrefixCacheFacts(len(self._kept), self._bytes(), self._limit_bytes)

    def _bytes(self) -> int:
        return sum(cache.nbytes for _, cache in self._kept)

    def _drop(self, limit_bytes: int, keep: int) -> None:
        """Drop the least recently used caches until the others fit; the last `keep` stay in any case."""
        dropped = False
        while len(self._kept) > keep and self._bytes() > limit_bytes:
            del self._kept[0]
            dropped = True
        if dropped:
            mx.clear_cache()
