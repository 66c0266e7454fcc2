"""Trees are packed depth-first and padded, and their rows are those of the tree alone."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.decoding.draft import accepted_path
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.fakes import tree_of_beams


def test_random_trees_are_numbered_depth_first() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        size = int(rng.integers(1, 24))
        parents = [-1, *(int(rng.integers(0, node)) for node in range(1, size))]
        scores = rng.integers(-3, 0, size).astype(np.float32)  # with ties
        order = list[int]()
        waiting = [0]
        while waiting:
            node = waiting.pop()
            order.append(node)
            children = [child for child in range(size) if parents[child] == node]
            waiting += sorted(children, key=lambda child: (scores[child], -child))
        tree = PackedTree.from_parents(mx.arange(size), mx.array(parents), mx.array(scores), size)
        assert tree.tokens.tolist() == order
        host = tree.fetch()
        assert host.is_sound
        assert [parents[node] for node in order[1:]] == [order[parent] for parent in host.parents[1:]]
        assert np.array_equal(np.array(tree.ancestors), host.ancestors())


def test_a_tree_that_is_deeper_than_was_said_is_not_sound() -> None:
    """Its nodes would not see all of their path."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(6, 16))
        said = int(rng.integers(0, 3))
        parents = [-1, *(int(rng.integers(max(node - 2, 0), node)) for node in range(1, size))]
        tree = PackedTree.from_parents(
            mx.arange(size), mx.array(parents), mx.array(rng.normal(size=size).astype(np.float32)), said
        ).below(0, size)
        host = tree.fetch()
        assert host.is_sound == np.array_equal(np.array(tree.ancestors), host.ancestors())


def test_nodes_behind_the_last_leaf_repeat_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        size = int(rng.integers(2, 24))
        limit = int(rng.integers(1, 9))
        parents = mx.array([-1, *(int(rng.integers(0, node)) for node in range(1, size))])
        tree = PackedTree.from_parents(mx.arange(size), parents, mx.array(rng.normal(size=size)), size)
        limited = tree.with_leaves(limit)
        before = tree.fetch()
        after = limited.fetch()
        assert after.is_sound
        assert np.array_equal(np.array(limited.ancestors), after.ancestors())
        leaves = [node for node in range(size) if node not in before.parents]
        same = size if len(leaves) <= limit else leaves[limit - 1] + 1
        assert (after.tokens[:same] == before.tokens[:same]).all()
        assert (after.parents[:same] == before.parents[:same]).all()
        last = leaves[min(limit, len(leaves)) - 1]
        assert (after.tokens[same:] == before.tokens[last]).all()
        assert (after.parents[same:] == before.parents[last]).all()
        chosen = before.tokens[np.minimum(np.arange(size) + 1, size - 1)]  # the likeliest path
        assert accepted_path(after, chosen) == [node for node in accepted_path(before, chosen) if node < same]


@pytest.mark.across_rows
def test_no_padding_row_is_ever_accepted() -> None:
    """It holds the root's token and stands at the root's depth, as a child of nothing."""
    packed = PackedTree.pack(tree_of_beams([[3, 4, 5], [3, 4, 6], [3, 7, 8]])).padded(12)
    host = packed.fetch()
    assert len(host) == 12
    for token in range(20):
        assert max(accepted_path(host, np.full(12, token))) < 6
    assert np.array(packed.ancestors)[:6, 6:].sum() == 0
    assert (np.array(packed.ancestors)[6:] == np.eye(12, dtype=bool)[6:]).all()
    assert packed.padded(4) is packed
