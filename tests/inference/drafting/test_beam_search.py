"""Beam search and node selection against plain Python written from their definitions."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.inference.api import BeamShape, SamplingParams
from rdchat.inference.decoding.sampling import gumbel_noise
from rdchat.inference.drafting.beam_search import NodePool, PathScorer, best_nodes, search
from rdchat.inference.drafting.heads.head import Head, Root
from rdchat.inference.drafting.heads.recurrent_head import BoundRecurrentHead, HeadConfig, RecurrentHead
from rdchat.inference.verification.target import TargetEmbeddings
from tests.inference.fakes import ALPHABET, shared_llama

VOCABULARY = [0, 3, 4, 7, 9, 12, 20, 21, 28, 30]
ROOT = 5
POSITION = 40
SEED = 2**40 + 11
GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.8, top_p=1)
FILTERED = SamplingParams(temperature=1.3, top_p=1, top_k=4)


def random_head(loudness: float = 3.0) -> BoundRecurrentHead:
    mx.random.seed(2)
    head = RecurrentHead(HeadConfig(32, len(VOCABULARY), 24, 16))
    head.output.weight = head.output.weight * loudness
    return BoundRecurrentHead(
        head, mx.array(VOCABULARY, mx.int32), TargetEmbeddings(shared_llama().network, len(ALPHABET))
    )


def searched(head: Head, scorer: PathScorer, root: Root, shape: BeamShape, kept: int) -> NodePool:
    return search(head, head.memory(), scorer, root, shape=shape, level_size=kept)


def steps_by_hand(
    head: BoundRecurrentHead, hidden: mx.array, path: list[int], sampling: SamplingParams, inverse_temperature: float
) -> np.ndarray:
    """What each candidate adds after a path: one path, one candidate at a time."""
    state = None
    for token in path:
        state = head.advance(state, mx.array([token]))
    logits = np.array(head.candidate_logits(head.context(hidden[None]), state)[0], dtype=np.float64)
    if sampling.temperature > 0:
        if sampling.top_k:
            logits[logits < np.sort(logits)[-sampling.top_k]] = -np.inf
        noise = [float(gumbel_noise(SEED, [POSITION + len(path)], mx.array([t]))) for t in VOCABULARY]
        logits = inverse_temperature * logits / sampling.temperature + noise
    return np.clip(logits - np.logaddexp.reduce(logits), -200, -1 / 128)


def pool_by_hand(
    head: BoundRecurrentHead,
    hidden: mx.array,
    sampling: SamplingParams,
    inverse_temperature: float,
    width: int,
    length: int,
    kept: int,
) -> list:
    """(score, path) of every kept node, level by level, best first."""
    live = [(0.0, [ROOT])]
    pool = []
    for _ in range(length - 1):
        grown = [
            (score + step, [*path, token])
            for score, path in live
            for token, step in zip(
                VOCABULARY, steps_by_hand(head, hidden, path, sampling, inverse_temperature), strict=True
            )
        ]
        best = sorted(grown, key=lambda node: -node[0])[:kept]
        live = best[:width]
        pool = [*pool, *best]
    return pool


def paths_of(tokens: list[int], parents: list[int]) -> list[list[int]]:
    paths: list[list[int]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return paths


@pytest.mark.parametrize(
    ("width", "length", "kept", "sampling"),
    [(1, 5, 1, WARM), (3, 4, 3, GREEDY), (3, 5, 6, FILTERED), (8, 3, 8, WARM), (10, 2, 10, FILTERED)],
)
@pytest.mark.across_rows
def test_beam_search_finds_what_plain_python_finds(
    width: int, length: int, kept: int, sampling: SamplingParams
) -> None:
    head = random_head()
    hidden = mx.random.normal((32,))
    scorer = PathScorer(sampling, SEED, head.vocabulary, inverse_temperature=0.7)
    pool = searched(head, scorer, Root(ROOT, POSITION, hidden), BeamShape(width, length), kept)
    expected = pool_by_hand(head, hidden, sampling, 0.7, width, length, kept)
    found = dict(
        zip(map(tuple, paths_of(pool.tokens.tolist(), pool.parents.tolist())), pool.scores.tolist(), strict=True)
    )
    possible = {
        tuple(path): score for score, path in expected if score > -200
    }  # what a filter drops ties at the bottom
    assert len(found) == 1 + len(expected)
    assert possible.keys() <= found.keys()
    np.testing.assert_allclose([found[path] for path in possible], list(possible.values()), atol=1e-3)


def test_a_draft_vocabulary_smaller_than_the_beam_is_used_whole() -> None:
    head = random_head()
    pool = searched(
        head, PathScorer(GREEDY, SEED, head.vocabulary), Root(ROOT, POSITION, mx.zeros(32)), BeamShape(50, 3), 100
    )
    assert sorted(pool.tokens.tolist()[1:11]) == VOCABULARY
    assert len(pool.tokens) == 1 + 2 * len(VOCABULARY)


def test_scores_fall_along_every_path_even_where_the_head_is_certain() -> None:
    """A step of exactly zero would let the selection take a child without its parent."""
    head = random_head(loudness=1e4)
    pool = searched(
        head, PathScorer(GREEDY, SEED, head.vocabulary), Root(ROOT, POSITION, mx.ones(32)), BeamShape(4, 60), 8
    )
    scores = np.array(pool.scores)
    parents = np.array(pool.parents)
    assert (scores[1:] < scores[parents[1:]]).all()
    tree, _ = best_nodes(pool, 40)
    assert (tree.parents[1:] >= 0).all()


def pool_of(scores: list[float], parents: list[int], tokens: list[int], level_size: int) -> NodePool:
    levels = (len(tokens) - 1) // level_size
    return NodePool(mx.array(tokens), mx.array(parents), mx.array(scores), levels)


def test_the_worked_example_of_best_nodes() -> None:
    root, a, b, c, d, e = range(6)
    pool = pool_of([0, -0.1, -2, -0.3, -1.5], [-1, 0, 0, 1, 1], [root, a, b, c, d], level_size=2)
    tree, _ = best_nodes(pool, 3)
    assert (tree.tokens.tolist(), tree.parents.tolist()) == ([root, a, c], [-1, 0, 1])
    tree, looked_up = best_nodes(pool, 5, [b, e])
    assert (tree.tokens.tolist(), tree.parents.tolist()) == ([root, b, e, a, c], [-1, 0, 1, 0, 3])
    assert looked_up.tolist() == [False, False, True, False, False]


@settings(max_examples=40, deadline=None)
@given(some.data())
def test_a_branch_of_any_length_is_offered_with_the_best_subtree(data: some.DataObject) -> None:
    levels = data.draw(some.integers(1, 4))
    level_size = data.draw(some.integers(1, 4))
    rng = np.random.default_rng(data.draw(some.integers(0, 2**32 - 1)))
    parents = [-1]
    scores = [0.0]
    for level in range(levels):
        above = [0] if level == 0 else list(range(1 + (level - 1) * level_size, 1 + level * level_size))
        parents += rng.choice(above, level_size).tolist()
        scores += [scores[parent] - rng.uniform(0.01, 3) for parent in parents[-level_size:]]
    tokens = [5, *(parent * 10 + 100 + place for place, parent in enumerate(parents[1:]))]
    known = [tokens[node] for node in path_to(parents, data.draw(some.integers(0, len(tokens) - 1)))]
    branch = [*known, *data.draw(some.lists(some.integers(1, 9), max_size=14))]
    count = data.draw(some.integers(1, len(tokens)))
    tree, looked_up = best_nodes(pool_of(scores, parents, tokens, level_size), count, branch)
    host = tree.fetch()
    paths = paths_of(host.tokens.tolist(), host.parents.tolist())
    assert host.is_sound
    assert [5, *branch] in paths
    assert len({tuple(path) for path in paths}) == len(paths) == max(count, 1 + len(branch)), "no twins"
    assert sum(looked_up.tolist()) == len(branch) - len(known)
    assert tree.deepest >= host.depths.max()
    assert np.array_equal(np.array(tree.ancestors), host.ancestors())
    drafted = dict(zip(map(tuple, paths_of(tokens, parents)), scores, strict=True))
    forced = {(5, *branch[:length]) for length in range(len(branch) + 1)}
    free = sorted(drafted.keys() - forced, key=lambda path: -drafted[path])[: len(paths) - len(forced)]
    assert {tuple(path) for path in paths} == forced | set(free), "the rest are the best"


def path_to(parents: list[int], node: int) -> list[int]:
    """Return the nodes from below the root to a node."""
    path = list[int]()
    while node > 0:
        path.insert(0, node)
        node = parents[node]
    return path
