"""Samples: aligned with the states they come from, nothing predicted beyond an answer or the draft vocabulary."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import RdchatError
from rdchat.inference.training.samples import TEACHER_TOKENS, Answers, SampleReader, States, Teacher, draft_vocabulary
from rdchat.inference.training.shards import Conversation, ShardFolder

WIDTH, CANDIDATES = 5, 40
# two answers, 10 11 12 13 and 20 21; 90s are questions
CONVERSATIONS = [Conversation(0, [90, 91, 10, 11, 12, 13], 2, 0.0), Conversation(1, [92, 20, 21], 1, 0.5)]


def states_of(tokens: list[int]) -> np.ndarray:
    """A state that names its token."""
    return np.array([[token, *range(1, WIDTH)] for token in tokens], np.float16)


@pytest.fixture
def shards(tmp_path: Path) -> ShardFolder:
    """One shard for each conversation."""
    folder = ShardFolder(tmp_path, 100)
    for item in CONVERSATIONS:
        folder.append([item], states_of(item.answer))
    return folder


def reader(shards: ShardFolder, vocabulary: list[int], steps: int = 3) -> SampleReader:
    states = States(shards)
    rows = mx.random.normal((CANDIDATES, WIDTH))
    return SampleReader(
        Answers.of(CONVERSATIONS), states, Teacher.of(states, rows), np.array(vocabulary, np.int32), steps
    )


def test_a_sample_is_the_state_its_root_was_chosen_from_and_what_follows(shards: ShardFolder) -> None:
    batch = reader(shards, list(range(100))).batch(np.array([0, 1, 4]))
    assert np.array(batch.hidden)[:, 0].tolist() == [10, 11, 20]
    assert np.array(batch.path)[:, 0].tolist() == [10, 11, 20]
    assert np.array(batch.path)[0].tolist() == [10, 11, 12]
    assert np.array(batch.weights).tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]


def test_questions_are_neither_roots_nor_goals(shards: ShardFolder) -> None:
    made = reader(shards, list(range(100)))
    roots = made.indices(held_out=False)
    assert made.answers.tokens[roots].tolist() == [10, 11, 12, 20]
    goals = made.goals(roots)
    assert goals.tolist() == [[11, 12, 13], [12, 13, -1], [13, -1, -1], [21, -1, -1]]
    assert not (goals >= 90).any()


def test_nothing_is_learnt_behind_a_token_that_cannot_be_drafted(shards: ShardFolder) -> None:
    batch = reader(shards, [10, 11, 13, 20, 21]).batch(np.array([0]))  # not 12
    assert np.array(batch.weights).tolist() == [[1, 0, 0]]


def test_states_are_read_across_shards(shards: ShardFolder) -> None:
    states = States(shards)
    assert len(states) == 6
    assert states.rows(np.array([5, 0, 3]))[:, 0].tolist() == [21, 10, 13]
    assert States(shards, slice(1, 3)).rows(np.array([0])).tolist() == [[1, 2]]


def test_missing_states_are_named(shards: ShardFolder, tmp_path: Path) -> None:
    (tmp_path / "00001.states.npy").unlink()
    with pytest.raises(RdchatError, match="missing"):
        States(shards)


def test_the_teacher_is_the_targets_distribution_over_its_likeliest_tokens(shards: ShardFolder) -> None:
    mx.random.seed(1)
    rows = mx.random.normal((CANDIDATES, WIDTH)) * 0.1
    teacher = Teacher.of(States(shards), rows)
    logits = States(shards).rows(np.arange(6)) @ np.array(rows).T
    for row, columns, probs in zip(logits, teacher.columns, teacher.probs, strict=True):
        assert set(columns) == set(np.argsort(-row)[:TEACHER_TOKENS])
        expected = np.exp(row[columns] - row.max())
        np.testing.assert_allclose(probs, expected / expected.sum(), atol=2e-3)


def test_the_draft_vocabulary_holds_the_most_frequent_answer_tokens() -> None:
    items = [Conversation(0, [90, 90, 90, 5, 5, 7, 7, 7, 3], 3, 0.0), Conversation(14, [90, 8, 8, 8, 8], 1, 0.0)]
    answers = Answers.of(items, held_out_every=15)
    assert draft_vocabulary(answers, 2).tolist() == [5, 7]
    assert draft_vocabulary(answers, 9).tolist() == [3, 5, 7]


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path, 2**17)
    item = Conversation(4, [100_000, 1], 1, 0.5)
    folder.append([item])
    assert folder.read(0) == [item]
