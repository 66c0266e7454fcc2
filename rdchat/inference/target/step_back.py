"""Taking back the one token that plain decoding fed last: the call was queued before the token was certain."""

from collections.abc import Sequence
from typing import Any

from mlx_lm.models import cache as stock

from rdchat.inference.target.round_cache import RoundArraysCache, RoundKVCache


def can_step_back(caches: Sequence[Any]) -> bool:
    """Tell whether the last token can be taken back from all of the caches at any time."""
    return all(
        isinstance(cache, RoundKVCache | RoundArraysCache)
        or (isinstance(cache, stock.CacheList) and can_step_back(cache.caches))
        for cache in caches
    )


def remember(caches: Sequence[Any]) -> None:
    """Prepare caches for `step_back`: what holds state keeps its present arrays until this is called again."""
    for cache in caches:
        if isinstance(cache, RoundArraysCache):
            cache.remember()
        elif isinstance(cache, stock.CacheList):
            remember(cache.caches)


def step_back(caches: Sequence[Any]) -> None:
    """Take back the one token that was fed since `remember`."""
    for cache in caches:
        if isinstance(cache, RoundArraysCache):
            cache.step_back()
        elif isinstance(cache, stock.CacheList):
            step_back(cache.caches)
        else:
            cache.trim(1)
