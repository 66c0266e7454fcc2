"""Samples: aligned with the states they come from, nothing predicted beyond an answer or the draft vocabulary."""

from pathlib import Path

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.training.data_maker import ShardFolder
from rdchat.inference.training.objective import Objective, Target, TrainingData
from rdchat.inference.training.samples import TEACHER_TOKENS, Answers, StateWindows, Teacher, draft_vocabulary
from rdchat.inference.training.training_plan import Recipe
from tests.inference.training.learning_task import Table

WIDTH = 5
CANDIDATES = 40
# two answers, 10 11 12 13 and 20 21; 90s are questions
CONVERSATIONS = [
    TrainingConversation(0, [90, 91, 10, 11, 12, 13], 2, 0.0),
    TrainingConversation(1, [92, 20, 21], 1, 0.5),
]


def states_of(tokens: list[int]) -> np.ndarray:
    """A state that names its token."""
    return np.array([[token, *range(1, WIDTH)] for token in tokens], np.float16)


STATES = states_of([10, 11, 12, 13, 20, 21])


def objective() -> Objective:
    """Return the data of both conversations."""
    target = Target(Table(mx.random.normal((100, WIDTH))), np.asarray, 100)  # type: ignore[arg-type]
    data = TrainingData(CONVERSATIONS, lambda _: enumerate([STATES[:4], STATES[4:]]), window_tokens=9)
    made = Objective(target, data, Recipe(steps=3, vocabulary=100), ())
    made.teacher.columns[:], made.teacher.probs[:] = 0, 0
    return made


def test_a_sample_is_the_state_its_root_was_chosen_from_and_what_follows() -> None:
    roots = np.array([0, 1, 4])
    made = objective()
    hidden, path = made.inputs(roots, STATES[roots])
    assert np.array(hidden)[:, 0].tolist() == [10, 11, 20]
    assert np.array(path)[:, 0].tolist() == [10, 11, 20]
    assert np.array(path)[0].tolist() == [10, 11, 12]
    assert np.array(made.goals(roots).weights).tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]


def test_questions_are_neither_roots_nor_goals() -> None:
    made = objective()
    roots = made.roots_between(0, 6, held_out=False)
    assert made.answers.tokens[roots].tolist() == [10, 11, 12, 20]
    assert made.next_tokens(roots).tolist() == [[11, 12, 13], [12, 13, -1], [13, -1, -1], [21, -1, -1]]
    assert made.roots_between(1, 5, held_out=False).tolist() == [1, 2, 4]


def test_nothing_is_learnt_behind_a_token_that_cannot_be_drafted() -> None:
    made = objective()
    made.draftable[:] = made.answers.tokens != 12
    assert np.array(made.goals(np.array([0, 1, 2])).weights).tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_windows_cover_the_used_tokens_of_all_conversations_in_order() -> None:
    """States come in any order, those of similar length together."""
    parts = [STATES[:3], STATES[2:3], STATES[3:]]
    used = [range(2), range(1), range(3)]
    windows = StateWindows(used, lambda numbers: [(n, parts[numbers[n]]) for n in reversed(range(len(numbers)))], 3)
    assert list(windows.loading(0)) == [0.5, 1.0]
    assert list(windows.loading(0)) == [], "it is loaded"
    assert [windows.span(window) for window in range(len(windows))] == [(0, 3), (3, 6)]
    assert windows.read_states(0)[:, 0].tolist() == [10, 11, 12]
    assert windows.read_states(1)[:, 0].tolist() == [13, 20, 21]


def test_a_conversation_larger_than_a_window_has_one_of_its_own() -> None:
    windows = StateWindows([range(2), range(4)], lambda _: [], token_limit=1)
    assert [windows.span(window) for window in range(len(windows))] == [(0, 2), (2, 6)]


def test_the_teacher_is_the_targets_distribution_over_its_most_likely_tokens() -> None:
    mx.random.seed(1)
    rows = mx.random.normal((CANDIDATES, WIDTH)) * 0.1
    teacher = Teacher(6, CANDIDATES)
    teacher.fill(0, STATES[:2], rows, np.asarray)
    teacher.fill(2, STATES[2:], rows, np.asarray)
    logits = STATES.astype(np.float32) @ np.array(rows).T
    for row, columns, probs in zip(logits, teacher.columns, teacher.probs, strict=True):
        assert set(columns) == set(np.argsort(-row)[:TEACHER_TOKENS])
        expected = np.exp(row[columns] - row.max())
        np.testing.assert_allclose(probs, expected / expected.sum(), atol=2e-3)


def test_the_draft_vocabulary_holds_the_most_frequent_answer_tokens() -> None:
    items = [
        TrainingConversation(0, [90, 90, 90, 5, 5, 7, 7, 7, 3], 3, 0.0),
        TrainingConversation(14, [90, 8, 8, 8, 8], 1, 0.0),
    ]
    answers = Answers.concatenate(items, held_out_every=15)
    assert draft_vocabulary(answers, 2).tolist() == [5, 7]
    assert draft_vocabulary(answers, 9).tolist() == [3, 5, 7]


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path, 2**17)
    item = TrainingConversation(4, [100_000, 1], 1, 0.5)
    folder.append_shard([item])
    assert folder.read_shard(0) == [item]
