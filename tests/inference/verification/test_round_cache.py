"""After a round every cache is in the state of one that saw only the accepted tokens."""

from itertools import pairwise, product
from types import SimpleNamespace
from typing import cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import cache as stock

from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.round_cache import (
    RoundRows,
    RowBuffer,
    UnsupportedCacheError,
    leaves,
    round_cache,
)
from tests.grids import share
from tests.inference.fakes import tree_of_beams

HEADS = 2
WIDTH = 64
WINDOW = 16
MAKERS = {
    "plain": stock.KVCache,
    "rotating": lambda: stock.RotatingKVCache(WINDOW),
    "chunked": lambda: stock.ChunkedKVCache(1000),
    "list": lambda: stock.CacheList(stock.KVCache(), stock.RotatingKVCache(WINDOW)),
}
RNG = np.random.default_rng(0)
POOL = mx.array(RNG.normal(size=(2, 1, HEADS, 2000, WIDTH)), dtype=mx.float32)


def rows(tokens: list[int]) -> tuple[mx.array, mx.array]:
    """Keys and values of tokens: the same token always has the same ones."""
    return POOL[0][..., mx.array(tokens), :], POOL[1][..., mx.array(tokens), :]


def feed(cache: object, tokens: list[int]) -> list[np.ndarray]:
    """Append tokens; return what the last of them attends to, newest first, as far as a window reaches."""
    if isinstance(cache, stock.CacheList):
        return [seen for part in cache.caches for seen in feed(part, tokens)]
    mask = cache.make_mask(len(tokens), window_size=None, return_array=True) if hasattr(cache, "make_mask") else None  # type: ignore[attr-defined]
    keys, _ = cache.update_and_fetch(*rows(tokens))  # type: ignore[attr-defined]
    seen = np.array(keys[0, 0, :, 0])
    if isinstance(mask, mx.array):
        seen = seen[np.array(mask)[-1]]
    return [np.sort(seen)]  # stock rotating caches keep another order


def expected(make: object, tokens: list[int]) -> list[np.ndarray]:
    """What a stock cache shows that saw the tokens one by one."""
    cache = make()  # type: ignore[operator]
    for token in tokens[:-1]:
        feed(cache, [token])
    return feed(cache, tokens[-1:])


def compare(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def tree(*beams: list[int]) -> tuple[PrefixTree, tuple[mx.array, mx.array | None]]:
    packed = tree_of_beams(list(beams))
    ancestors = None if packed.is_chain else mx.array(packed.ancestors())
    return packed, (mx.array(packed.depths), ancestors)


def begin(cache: object, shape: tuple[mx.array, mx.array | None]) -> None:
    for leaf in leaves([cache]):
        leaf.open_round(*shape)


def commit(cache: object, path: list[int]) -> None:
    for leaf in leaves([cache]):
        leaf.close_round(RoundRows.for_path(path))


@pytest.mark.parametrize(("name", "prompt"), share(product(MAKERS, [0, 5, 15, 16, 17, 40]), 7))
def test_random_rounds_leave_what_one_by_one_leaves(name: str, prompt: int) -> None:
    """And within a round its last row sees its own path, as far as a window reaches."""
    make = MAKERS[name]
    rng = np.random.default_rng(prompt)
    cache = round_cache(make())  # type: ignore[operator]
    held = [int(token) for token in rng.integers(0, 2000, prompt)]
    if held:
        feed(cache, held)
    for number in range(16):
        root, *others = (int(token) for token in rng.integers(0, 2000, 13))
        packed, shape = tree([root, *others[:4]], [root, *others[:2], *others[4:6]], [root, *others[6:10]])
        path = np.flatnonzero(packed.ancestors()[rng.integers(len(packed))]).tolist()
        begin(cache, shape)
        found = feed(cache, packed.tokens.tolist())
        if number % 10 == 0:
            compare(found, expected(make, [*held, *packed.tokens[packed.ancestors()[-1]].tolist()]))
        if number % 5 == 4:
            commit(cache, [])
        else:
            commit(cache, path)
            held += packed.tokens[path].tolist()
        if number % 3 == 0:
            token = int(rng.integers(0, 2000))
            held.append(token)
            compare(feed(cache, [token]), expected(make, held))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_trimming_steps_back(make: object) -> None:
    cache = round_cache(make())  # type: ignore[operator]
    feed(cache, [1, 2, 3, 4, 5])
    cache.trim(2)
    compare(feed(cache, [9]), expected(make, [1, 2, 3, 9]))


def test_trimming_right_after_a_late_commit_loses_nothing() -> None:
    cache = round_cache(stock.KVCache())
    feed(cache, [1, 2])
    packed, shape = tree([3, 4], [3, 5, 6][:2])
    begin(cache, shape)
    feed(cache, packed.tokens.tolist())
    commit(cache, [0, 2])
    cache.trim(1)
    assert cache.offset == 3
    assert feed(cache, [7])[0] == pytest.approx(expected(stock.KVCache, [1, 2, 3, 7])[0])


def test_a_chunked_cache_that_dropped_rows_of_a_chunk_cannot_be_cut_into_it() -> None:
    cache = round_cache(stock.ChunkedKVCache(8))
    feed(cache, list(range(18)))
    cache.maybe_trim_front()  # rows 10 to 17 are left
    assert cache.can_trim(2)  # row 16 begins a chunk
    assert not cache.can_trim(3)  # row 15 would need rows 8 and 9


def test_a_window_that_slid_on_cannot_be_trimmed_far() -> None:
    cache = round_cache(stock.RotatingKVCache(WINDOW))
    for token in range(300):
        feed(cache, [token])
    assert cache.can_trim(1)
    assert not cache.can_trim(290)


@pytest.mark.parametrize("context", [512, 8192])
def test_a_commit_writes_the_accepted_rows_only_whatever_the_context(
    context: int, writes: list[tuple[RowBuffer, int]]
) -> None:
    cache = round_cache(stock.KVCache())
    feed(cache, [token % 2000 for token in range(context)])
    packed, shape = tree([1, 2, 3], [1, 4, 5])
    begin(cache, shape)
    feed(cache, packed.tokens.tolist())
    writes.clear()
    following, shape = tree([6, 7])
    parts = rows(following.tokens.tolist())
    mx.eval(cache.state, cache._round_rows, parts)
    held = sum(array.nbytes for array in cache.buffer.arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    commit(cache, [0, 3, 4])  # not contiguous: rows 3 and 4 are written again, in the next round's graph
    assert writes == [(cache.buffer, 2)]
    begin(cache, shape)
    cache.update_and_fetch(*parts)
    mx.eval(cache.state)
    assert writes[1:] == [(cache.buffer, len(following))]
    assert mx.get_peak_memory() - before < held / 4, "nothing is copied"


def test_buffers_grow_by_a_quarter_and_by_256_rows_at_least() -> None:
    """They doubled: at 32,768 tokens twice the memory that was needed, and three times while growing."""
    buffer = RowBuffer()
    row = [mx.zeros((1, 1, 1, 1))]
    capacities = []
    for _ in range(12_000):
        buffer.append_rows(row, 0)
        if buffer.arrays[0].shape[2] not in capacities:
            capacities.append(buffer.arrays[0].shape[2])
    assert capacities[:6] == [256, 512, 768, 1024, 1280, 1792]
    for before, after in pairwise(capacities):
        assert max(before // 4, 256) <= after - before < max(before // 4, 256) + 256


def test_a_growth_holds_one_layers_old_and_new_buffers_at_a_time() -> None:
    """Also in a call that is built as a whole before any of it is computed, as all calls are."""
    part = mx.zeros((1, 2, 2047, 64))
    layers = [RowBuffer() for _ in range(8)]
    for layer in layers:
        layer.append_rows([part, part], 0)
    mx.eval([layer.arrays for layer in layers])
    layer_bytes = sum(array.nbytes for array in layers[0].arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for layer in layers:
        layer.append_rows([part[..., :2, :]] * 2, 0)
    mx.eval([layer.arrays for layer in layers])
    grown = mx.get_active_memory() - before
    assert grown == len(layers) * layer_bytes // 4
    assert mx.get_peak_memory() - before <= grown + 1.3 * layer_bytes


def test_which_caches_hold_state_and_which_can_step_back() -> None:
    attention = [stock.KVCache(), stock.CacheList(stock.KVCache())]
    mixed = [*attention, stock.CacheList(stock.ArraysCache(2))]
    chunked = [*attention, stock.ChunkedKVCache(8)]
    for caches, expected in ((attention, (False, True)), (mixed, (True, True)), (chunked, (False, False))):
        cache = KVCache(cast(nn.Module, SimpleNamespace(make_cache=lambda caches=caches: caches)))
        assert (cache.has_state, cache.can_step_back) == expected


@pytest.mark.parametrize("cache", [stock.RotatingKVCache(16, keep=4), stock.ConcatenateKVCache()])
def test_unknown_kinds_fail_closed_with_their_name(cache: object) -> None:
    with pytest.raises(UnsupportedCacheError, match=type(cache).__name__):
        round_cache(cache)
