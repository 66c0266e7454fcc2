"""Padding rows change nothing: no node sees them, and none is accepted or kept."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.decoding.draft import accepted_path
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.verifier import PackedTree, Verifier
from tests.inference.fakes import tiny_llama
from tests.inference.prefix_trees import tree_of_beams

pytestmark = pytest.mark.across_rows

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
TREES = {"tree": [[3, 4, 5], [3, 4, 6], [3, 7, 8]], "chain": [[3, 4, 5, 6]]}


def test_the_worked_example_of_padded() -> None:
    padded = PackedTree.pack(tree_of_beams([[5, 7], [5, 8]])).padded(5)
    assert padded.tokens.tolist() == [5, 7, 8, 5, 5]
    assert padded.parents.tolist() == [-1, 0, 0, -1, -1]
    assert padded.depths.tolist() == [0, 1, 1, 0, 0]
    assert padded.ancestors is not None
    assert np.array(padded.ancestors).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    chain = PackedTree.chain(mx.array([5, 7])).padded(4)
    assert (chain.ancestors, chain.depths.tolist()) == (None, [0, 1, 2, 3])


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("beams", TREES.values(), ids=TREES.keys())
def test_logits_and_cache_are_those_of_the_tree_alone(beams: list[list[int]], window: int | None) -> None:
    model = tiny_llama(sliding_window=window)
    tree = tree_of_beams(beams)
    found = []
    for rows in (0, len(tree), 16):
        cache = KVCache(model.network)
        mx.eval(model.network(mx.array([PROMPT]), cache=cache.layers))
        cache.tokens = list(PROMPT)
        verifier = Verifier(model, cache)
        first = verifier.verify(PackedTree.pack(tree), rows)
        path = [0, 1 if tree.is_chain else 4]
        verifier.commit(tree.tokens[path].tolist(), path)
        assert cache.tokens == [*PROMPT, *tree.tokens[path].tolist()]
        assert {layer.offset for layer in cache.layers} == {len(PROMPT) + 2}
        second = verifier.verify(PackedTree.pack(tree), rows)
        found.append([np.array(array) for v in (first, second) for array in (v.logits, v.hidden)])
    assert [array.shape[0] for array in found[2]] == [len(tree)] * 4
    for padded in found[1:]:
        for one, other in zip(found[0], padded, strict=True):
            assert np.abs(one - other).max() < 1e-5


def test_no_padding_row_is_ever_accepted() -> None:
    """It holds the root's token and stands at the root's depth, as a child of nothing."""
    packed = PackedTree.pack(tree_of_beams(TREES["tree"])).padded(12)
    host = packed.fetch()
    assert len(host) == 12
    for token in range(20):
        assert max(accepted_path(host, np.full(12, token))) < 6
    assert np.array(packed.ancestors)[:6, 6:].sum() == 0
    assert (np.array(packed.ancestors)[6:] == np.eye(12, dtype=bool)[6:]).all()
    assert packed.padded(4) is packed
