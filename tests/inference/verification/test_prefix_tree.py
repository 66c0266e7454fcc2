"""Merging beams into a prefix tree."""

import numpy as np

from tests.inference.prefix_trees import tree_of_beams


def test_the_worked_example_of_the_docstring() -> None:
    tree = tree_of_beams([[5, 7, 8], [5, 7, 9]])
    assert tree.tokens.tolist() == [5, 7, 8, 9]
    assert tree.parents.tolist() == [-1, 0, 1, 1]
    assert tree.depths.tolist() == [0, 1, 2, 2]
    assert tree.ancestors().astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]


def test_equal_tokens_below_different_parents_stay_apart() -> None:
    tree = tree_of_beams([[1, 2, 9], [1, 3, 9], [1, 2, 9]])
    assert tree.tokens.tolist() == [1, 2, 9, 3, 9]
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3]


def test_random_beams_are_paths_of_the_tree_and_no_two_siblings_are_alike() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        beams = rng.integers(0, 4, size=(rng.integers(1, 9), rng.integers(1, 9)))
        beams[:, 0] = 3
        tree = tree_of_beams(beams.tolist())
        leaves = set(range(len(tree))) - set(tree.parents.tolist())
        paths = {tuple(tree.tokens[tree.ancestors()[leaf]].tolist()) for leaf in leaves}
        assert paths == set(map(tuple, beams.tolist()))
        assert (tree.parents[1:] < np.arange(1, len(tree))).all()
        assert (tree.depths[1:] == tree.depths[tree.parents[1:]] + 1).all()
        assert len(set(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))) == len(tree)
        assert tree.is_chain == (len(tree) == beams.shape[1])
