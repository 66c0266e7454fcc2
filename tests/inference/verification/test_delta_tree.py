"""Trees of the gated delta rule by one solve: as one node after the other in float64, whatever the gates and keys."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rdchat.inference.verification.state_round import TreePaths
from rdchat.inference.verification.tree_recurrences import MAX_DEPTH, delta_outputs
from rdchat.inference.verification.verifier import PackedTree, PrefixTree

HEADS = 2
VALUE_HEADS = 4
WIDTH = 8
VALUE_WIDTH = 6
GATES = ("usual", "near zero", "near one", "both")


def paths_of(parents: list[int]) -> TreePaths:
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    arrays = (np.array(each, np.int32) for each in (range(5, 5 + len(parents)), parents, depths))
    tree = PackedTree.pack(PrefixTree(*arrays))
    assert tree.ancestors is not None
    return TreePaths(tree.depths, tree.ancestors, tree.deepest, tree.leaves)


def inputs(nodes: int, gates: str, parallel: bool, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return q, k, v, g and beta, and the state before them; keys that are nearly parallel are hard."""
    random = np.random.default_rng(seed)
    q, k = random.normal(size=(2, 1, nodes, HEADS, WIDTH))
    k = random.normal(size=(1, 1, HEADS, WIDTH)) + 0.05 * k if parallel else k
    q, k = (each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (q, k))
    shape = (1, nodes, VALUE_HEADS)
    g = {
        "usual": random.uniform(0.7, 1, shape),
        "near zero": 10.0 ** random.uniform(-38, -3, shape),
        "near one": np.full(shape, 1 - 1e-6),
        "both": np.where(random.random(shape) < 0.3, 0, 1 - 1e-6),
    }[gates]
    beta = np.full(shape, 1.998) if parallel else random.uniform(0, 1, shape)
    v = random.normal(size=(*shape, VALUE_WIDTH))
    state = random.normal(size=(1, VALUE_HEADS, VALUE_WIDTH, WIDTH))
    return [each.astype(np.float32) for each in (q, k, v, g, beta)], state.astype(np.float32)


def one_by_one(rows: list[np.ndarray], state: np.ndarray, parents: list[int]) -> np.ndarray:
    q, k, v, g, beta = (each[0].astype(np.float64) for each in rows)
    q, k = (np.repeat(each, VALUE_HEADS // HEADS, axis=1) for each in (q, k))
    states = list[np.ndarray]()
    outputs = []
    for node, parent in enumerate(parents):
        before = (states[parent] if node else state[0].astype(np.float64)) * g[node][:, None, None]
        added = beta[node][:, None] * (v[node] - np.einsum("hvk,hk->hv", before, k[node]))
        states.append(before + added[..., None] * k[node][:, None])
        outputs.append(np.einsum("hvk,hk->hv", states[-1], q[node]))
    return np.array(outputs)


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Parents of a tree that has at least four leaves, and is not too deep."""
    parents = [-1, 0, 0, 0, 0]
    depths = [0, 1, 1, 1, 1]
    for _ in range(draw(st.integers(0, 11))):
        parents.append(draw(st.sampled_from([node for node, depth in enumerate(depths) if depth < MAX_DEPTH])))
        depths.append(depths[parents[-1]] + 1)
    return parents


@given(parents=trees(), gates=st.sampled_from(GATES), parallel=st.booleans(), seed=st.integers(0, 99))
@example(parents=[-1, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 1], gates="near one", parallel=True, seed=0)
def test_a_tree_has_the_outputs_of_one_node_after_the_other(
    parents: list[int], gates: str, parallel: bool, seed: int
) -> None:
    rows, state = inputs(len(parents), gates, parallel, seed)
    found = delta_outputs(tuple(map(mx.array, rows)), mx.array(state), paths_of(parents))
    assert found is not None
    expected = one_by_one(rows, state, parents)
    assert found.shape == (1, len(parents), VALUE_HEADS, VALUE_WIDTH)
    assert np.abs(np.array(found[0]) - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("parents", [[-1, 0, 0, 0], [-1, *range(MAX_DEPTH + 1), 0, 0, 0]], ids=["few leaves", "deep"])
def test_along_paths_is_better_with_few_leaves_or_many_levels(parents: list[int]) -> None:
    rows, state = inputs(len(parents), "usual", False, 0)
    assert delta_outputs(tuple(map(mx.array, rows)), mx.array(state), paths_of(parents)) is None


def test_chains_and_gates_by_channel_are_not_solved() -> None:
    rows, state = inputs(5, "usual", False, 0)
    q, k, v, g, beta = map(mx.array, rows)
    assert delta_outputs((q, k, v, g, beta), mx.array(state), None) is None
    by_channel = mx.broadcast_to(g[..., None], (*g.shape, WIDTH))
    assert delta_outputs((q, k, v, by_channel, beta), mx.array(state), paths_of([-1, 0, 0, 0, 0])) is None
