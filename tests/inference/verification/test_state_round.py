"""Rounds on recurrent and convolutional state: what they compute, what they leave alone, and the launches they add."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import gated_delta, qwen3_5
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.state_round import TreePaths
from rdchat.inference.verification.verifier import PackedTree
from tests.grids import share
from tests.inference.families import HYBRIDS, network_of
from tests.inference.launches import launches

PROMPT = [5, 9, 17, 3, 8, 21, 2]
BEAMS = [[4, 7, 9, 11], [4, 7, 12, 6], [4, 8, 13, 14], [4, 8, 13, 15]]
TREE = PrefixTree.from_beams(BEAMS)
CHAIN = PrefixTree.from_beams([[4, 7, 9, 11, 12]])


def after_prompt(network: nn.Module) -> KVCache:
    cache = KVCache(network)
    mx.eval(network(mx.array([PROMPT]), cache=cache.layers))
    return cache


def fed(network: nn.Module, cache: KVCache, hooks: ModelHooks, tree: PackedTree) -> mx.array:
    cache.begin(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
    with hooks.packed(None if tree.ancestors is None else tree.depths):
        logits: mx.array = network(tree.tokens[None], cache=cache.layers)[0]
    return logits


def arrays(cache: KVCache) -> list[mx.array]:
    return [array for layer in cache._leaves if hasattr(layer, "cache") for array in layer.cache]


def test_paths_and_windows_of_a_tree() -> None:
    parents, depths = np.array([-1, 0, 1, 0], np.int32), np.array([0, 1, 2, 1], np.int32)
    tree = PackedTree.of(PrefixTree(np.array([5, 7, 8, 9], np.int32), parents, depths)).padded(6)
    assert tree.ancestors is not None
    paths = TreePaths(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
    assert paths.rows.tolist() == [[0, 1, 2], [0, 3, 0]]
    assert paths.windows(3).tolist()[:4] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [1, 2, 5]]
    assert paths.windows(3).tolist()[4:] == [[0, 1, 2]] * 2
    outputs = mx.arange(6).reshape(2, 3)
    assert paths.by_node(outputs).tolist() == [[0, 1, 2, 4, 0, 0]]
    assert [paths.path_of(node) for node in range(4)] == [0, 0, 0, 1]


def test_a_lazy_tree_with_fewer_leaves_than_its_bound_has_all_paths() -> None:
    lazy = PackedTree.from_parents(mx.arange(9), mx.array([-1, 0, 0, 1, 1, 2, 3, 5, 5]), -mx.arange(9.0), 3)
    assert lazy.ancestors is not None
    paths = TreePaths(lazy.depths, lazy.ancestors, lazy.deepest, lazy.leaves)
    parents = np.array(lazy.parents)
    for node in range(9):
        row, way = np.array(paths.rows)[paths.path_of(node)], [node]
        while parents[way[-1]] >= 0:
            way.append(int(parents[way[-1]]))
        assert row[: len(way)].tolist() == way[::-1]


@pytest.mark.parametrize("name", share(HYBRIDS, 4))
@pytest.mark.across_rows
def test_every_path_leaves_the_state_of_a_model_that_was_fed_it(name: str) -> None:
    network = network_of(*HYBRIDS[name])
    hooks = ModelHooks(network)
    for packed, paths in ((PackedTree.of(TREE).padded(12), [[0], [0, 1, 4], [0, 1, 2, 3], [0, 6, 7, 9]]),
                          (PackedTree.of(CHAIN), [[0], [0, 1, 2], [0, 1, 2, 3, 4]])):  # fmt: skip
        for path in paths:
            cache, expected = after_prompt(network), after_prompt(network)
            logits = fed(network, cache, hooks, packed)
            assert cache.can_commit_part
            mx.eval(logits)
            cache.commit(path)
            for node in path:
                one = network(packed.tokens[node][None, None], cache=expected.layers)[0, 0]
                assert mx.allclose(logits[node], one, atol=1e-4), (path, node)
            for ours, theirs in zip(arrays(cache), arrays(expected), strict=True):
                assert ours.shape == theirs.shape
                assert ours.dtype == theirs.dtype
                assert mx.allclose(ours, theirs, atol=1e-4)
            following = [network(mx.array([[30, 31]]), cache=each.layers) for each in (cache, expected)]
            assert mx.allclose(*following, atol=1e-4)


@pytest.mark.parametrize("name", share(HYBRIDS, 4))
def test_a_chain_that_is_accepted_whole_keeps_the_state_that_the_call_made(name: str) -> None:
    network = network_of(*HYBRIDS[name])
    hooks = ModelHooks(network)
    for tokens in (CHAIN.tokens, CHAIN.tokens[:1]):
        cache = after_prompt(network)
        mx.eval(fed(network, cache, hooks, PackedTree.chain(mx.array(tokens))))
        made = arrays(cache)
        cache.commit(list(range(len(tokens))))
        assert all(ours is theirs for ours, theirs in zip(arrays(cache), made, strict=True))


def test_a_round_leaves_other_models_and_the_library_alone() -> None:
    """A draft model of the same family decodes within the target's round."""
    plain_update, plain_layer = qwen3_5.gated_delta_update, qwen3_5.GatedDeltaNet.__call__
    network, other = network_of(*HYBRIDS["qwen3_5"]), network_of(*HYBRIDS["qwen3_5"])
    hooks, alone = ModelHooks(network), make_prompt_cache(other)
    cache = after_prompt(network)
    expected = np.array(other(mx.array([PROMPT]), cache=make_prompt_cache(other)))
    cache.begin(None, None)
    assert (np.array(other(mx.array([PROMPT]), cache=alone)) == expected).all()
    cache.rollback()
    mx.eval(fed(network, cache, hooks, PackedTree.of(TREE)))
    assert qwen3_5.gated_delta_update is plain_update
    assert qwen3_5.GatedDeltaNet.__call__ is plain_layer


def test_a_call_of_several_parts_cannot_be_committed_in_part() -> None:
    network = network_of(*HYBRIDS["qwen3_5"])
    ModelHooks(network)
    cache = after_prompt(network)
    cache.begin()
    for tokens in ([4, 7], [9, 11]):
        network(mx.array([tokens]), cache=cache.layers)
    assert not cache.can_commit_part


@contextmanager
def counted_kernels() -> Iterator[None]:
    """Let each recurrence be one launch beside its gates, as Metal's kernels are."""

    def delta(q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, mask: Any) -> Any:
        assert mask is None
        return mx.depends([v, state], [q, k, v, g, beta, state, v + 1])[:2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gated_delta, "gated_delta_ops", delta)
        yield


SEPARATE = {"kimi_linear", "olmo_hybrid", "bailing_moe_v3"}  # three convolutions a layer
GATED = {name for name in HYBRIDS if name.startswith(("qwen", "kimi", "olmo", "bailing_moe_v3"))}


def added_launches(name: str, tree: PackedTree, path: list[int]) -> tuple[float, float]:
    """Return the launches that a round adds to a layer's call, and those of its commit."""
    network = network_of(*HYBRIDS[name])
    hooks = ModelHooks(network)
    counts, layers = [], 1
    for recorded in (False, True):
        hooks.states.recorded = recorded
        cache = after_prompt(network)
        layers = sum(hasattr(layer, "cache") for layer in cache._leaves)
        cache.begin(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
        made = cache._leaves[0].round if hasattr(cache._leaves[0], "round") else None
        if made is not None and made._paths is not None:  # its indices are made once for all layers
            mx.eval(made._paths.rows, made._paths.windows(3), made._paths.windows(4), made._paths._cells)
        with hooks.packed(None if tree.ancestors is None else tree.depths):
            logits = network(tree.tokens[None], cache=cache.layers)
        counts.append(len(launches(logits)))
    mx.eval(logits)
    cache.commit(path)
    return (counts[1] - counts[0]) / layers, len(launches(*arrays(cache))) / layers


@pytest.mark.parametrize("name", share(HYBRIDS, 3))
@pytest.mark.skipif("config.getoption('round_by_rows')", reason="on that device a product is many operations")
def test_launches_that_rounds_add(name: str) -> None:
    """A chain adds none to the call.

    Not counted is the copy of the state for each path, which mlx-lm's kernel makes on Metal.
    """
    with counted_kernels():
        chain = added_launches(name, PackedTree.of(CHAIN), [0, 1, 2])
        tree = added_launches(name, PackedTree.of(TREE), [0, 1, 4])
    if name.startswith("lfm2"):
        assert (chain, tree) == ((0, 0), (1, 0))
    elif name in GATED:
        commit, convolutions = 4 if name == "olmo_hybrid" else 3, 3 if name in SEPARATE else 1
        assert (chain, tree) == ((0, commit), (6 + convolutions, commit))
    elif name.startswith("bailing"):  # lightning attention, which rows of a call compute one by one or as a chunk
        assert chain[0] == 0
        assert tree[0] <= 4
    else:
        assert (chain, tree) == ((0, 5), (6, 5))
