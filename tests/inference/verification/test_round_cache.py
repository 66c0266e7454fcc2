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
    NO_ROWS,
    RoundArraysCache,
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
    make = MAKERS[name]
    rng = np.random.default_rng(prompt)
    cache = round_cache(make())  # type: ignore[operator]
    held = [int(token) for token in rng.integers(0, 2000, prompt)]
    if held:
        feed(cache, held)
    for number in range(30):
        root, *others = (int(token) for token in rng.integers(0, 2000, 13))
        packed, shape = tree([root, *others[:4]], [root, *others[:2], *others[4:6]], [root, *others[6:10]])
        path = np.flatnonzero(packed.ancestors()[rng.integers(len(packed))]).tolist()
        begin(cache, shape)
        feed(cache, packed.tokens.tolist())
        if number % 5 == 4:
            commit(cache, [])
        else:
            commit(cache, path)
            held += packed.tokens[path].tolist()
        if number % 3 == 0:
            token = int(rng.integers(0, 2000))
            held.append(token)
            for found, wanted in zip(feed(cache, [token]), expected(make, held), strict=True):
                assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("prompt", [3, 14, 30])
def test_the_mask_shows_each_node_its_ancestors_and_the_window(window: int | None, prompt: int) -> None:
    cache = round_cache(stock.KVCache() if window is None else stock.RotatingKVCache(window))
    feed(cache, list(range(prompt)))
    packed, shape = tree([1, 2, 3], [1, 4, 5])
    begin(cache, shape)
    mask = np.array(cache.make_mask(len(packed), return_array=True))
    held = mask.shape[1] - len(packed)
    assert (mask[:, held:] == packed.ancestors()).all()
    positions = np.arange(prompt - held, prompt)
    for row, depth in enumerate(packed.depths):
        reach = prompt + depth - (window or 10**9)
        assert (mask[row, :held] == (positions > reach)).all()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_trimming_steps_back(make: object) -> None:
    cache = round_cache(make())  # type: ignore[operator]
    feed(cache, [1, 2, 3, 4, 5])
    cache.trim(2)
    for found, wanted in zip(feed(cache, [9]), expected(make, [1, 2, 3, 9]), strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)


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


@pytest.mark.parametrize("make", [make for name, make in MAKERS.items() if name != "list"])
def test_layers_that_share_keys_and_values_see_the_last_call(make: object) -> None:
    """Stock models with shared layers ask the cache for them; it once had none to give."""
    cache = round_cache(make())  # type: ignore[operator]
    feed(cache, list(range(20)))
    for count in (1, 3):
        given = cache.update_and_fetch(*rows(list(range(count))))
        assert all((a == b).all() for a, b in zip(given, cache.keys_and_values(), strict=True))


def test_a_chunked_cache_that_dropped_rows_of_a_chunk_cannot_be_cut_into_it() -> None:
    cache = round_cache(stock.ChunkedKVCache(8))
    feed(cache, list(range(18)))
    cache.maybe_trim_front()  # rows 10 to 17 are left
    assert cache.can_trim(2)  # row 16 begins a chunk
    assert not cache.can_trim(3)  # row 15 would need rows 8 and 9


def test_a_window_that_slid_on_cannot_be_trimmed_far() -> None:
    cache = round_cache(stock.RotatingKVCache(WINDOW))
    for token in range(600):
        feed(cache, [token])
    assert cache.can_trim(1)
    assert not cache.can_trim(590)


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


def test_state_is_put_back_by_reference_and_kept_after_a_commit() -> None:
    cache = RoundArraysCache([mx.array([1.0]), None])
    cache.open_round()
    cache[0] = mx.array([2.0])
    cache[1] = mx.array([3.0])
    cache.close_round(NO_ROWS)
    assert cache[0].item() == 1
    assert cache[1] is None
    cache.open_round()
    cache[0] = mx.array([5.0])
    cache.close_round(RoundRows.for_path([0, 1, 2]))
    assert cache[0].item() == 5


def test_state_goes_back_to_a_call_that_was_marked() -> None:
    cache = RoundArraysCache([mx.array([1.0])])
    for count, expected in enumerate((1, 2, 3, 4)):
        cache.cache = [mx.array([1.0])]
        cache.open_round()
        for value in (2.0, 3.0, 4.0):
            cache[0] = mx.array([value])
            cache.mark_state()
        assert cache.can_commit_part
        cache.close_round(RoundRows.for_path([*range(count)]))
        assert cache[0].item() == expected
        assert not cache.can_commit_part


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
