"""What a head learns: whitening, loss, teacher and samples, and that a rule is learnt."""

import math
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import Recipe
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.training.data_maker import ShardFolder
from rdchat.inference.training.objective import (
    Objective,
    Standardization,
    Target,
    Whitening,
    distillation,
    fold_weights,
    output_preconditioner,
    unroll,
    weighted_mean,
)
from rdchat.inference.training.phases import Trainer
from rdchat.inference.training.samples import (
    TEACHER_TOKENS,
    Answers,
    LogitCurve,
    StateWindows,
    Teacher,
    draft_vocabulary,
)
from rdchat.inference.verification.target import TargetEmbeddings
from tests.inference import families
from tests.inference.fakes import loaded

HIDDEN = 6
CANDIDATES = 9
STATE_WIDTH = 8
TOKENS = 30


class Table:
    """A target's embeddings, which are its output rows too."""

    def __init__(self, rows: mx.array) -> None:
        self._rows = rows
        self.width = rows.shape[1]

    def embed(self, tokens: mx.array) -> mx.array:
        return self._rows[tokens]

    output_rows = embed


def rule_trainer(**changes: object) -> Trainer:
    """Return a trainer on answers in which token t is followed by 3 t + 1, of a target whose states say so.

    It learns the rule in seconds; `changes` are fields of its recipe.
    """
    draw = np.random.default_rng(0)
    table = draw.normal(size=(TOKENS, STATE_WIDTH)).astype(np.float32)
    conversations = []
    for number in range(60):
        answer = [int(draw.integers(TOKENS))]
        for _ in range(19):
            answer.append((3 * answer[-1] + 1) % TOKENS)
        conversations.append(TrainingConversation(number, [0, *answer], 1, 0.0))
    states = [4 * table[[*item.tokens[1:], 0]].astype(np.float16) for item in conversations]
    used = [range(len(item.tokens) - 1) for item in conversations]
    windows = StateWindows(used, lambda numbers: enumerate(states[numbers.start : numbers.stop]), 700)
    options = {
        "epochs": 12,
        "batch": 32,
        "learning_rate": 1e-2,
        "warm_up": 10,
        "dropout": 0.1,
        "steps": 3,
        "vocabulary": TOKENS,
    }
    recipe = Recipe(**(options | changes))  # type: ignore[arg-type]
    target = Target(Table(mx.array(table)), np.asarray, TOKENS)  # type: ignore[arg-type]
    objective = Objective(target, conversations, windows, recipe, ())
    assert len(list(objective.read_data())) == 60
    assert len(windows) == 2
    return Trainer(objective)


def test_standardised_rows_have_mean_0_and_deviation_1_but_for_a_dimension_that_never_changes() -> None:
    rows = np.random.default_rng(0).normal(3, [1, 50, 0.1, 0], size=(400, 4))
    standard = np.array(Standardization.measure(rows)(mx.array(rows.astype(np.float32))))
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(standard.std(axis=0), [1, 1, 1, 0], rtol=1e-2)


def test_preconditioned_rows_have_a_second_moment_of_one() -> None:
    draw = np.random.default_rng(1)
    rows = (draw.normal(size=(500, 4)) @ draw.normal(size=(4, 4)) + 2).astype(np.float32)
    better = rows @ np.array(output_preconditioner(rows))
    np.testing.assert_allclose(better.T @ better / len(rows), np.eye(4), atol=1e-3)


@pytest.mark.across_rows
def test_a_folded_head_says_the_same_of_the_targets_own_numbers() -> None:
    draw = np.random.default_rng(2)
    states = draw.normal(1, [2, 9, 0.3] * 4, (50, 12)).astype(np.float32)
    table = draw.normal(-1, 3, (20, HIDDEN)).astype(np.float32)
    rows = draw.normal(0, 4, (CANDIDATES, HIDDEN)).astype(np.float32)
    whitening = Whitening.measure(states, table, np.arange(20), rows)
    mx.random.seed(4)
    head = RecurrentHead(HeadConfig(HIDDEN, CANDIDATES, exit_size=7, state_size=8, target_layers=(0,)))
    folded = fold_weights(head, whitening)
    hidden = mx.array(states[:3])
    tokens = mx.array([4, 0, 19])

    def logits(network: RecurrentHead, hidden: mx.array, embeddings: mx.array, rows: mx.array) -> mx.array:
        state = network.advance(network.advance(network.initial_state((3,)), embeddings), embeddings[::-1])
        return network.features(network.context(hidden), state) @ rows.T

    trained = logits(head, whitening.hidden(hidden), whitening.table[tokens], whitening.rows)
    own = logits(folded, hidden, mx.array(table)[tokens], mx.array(rows))
    np.testing.assert_allclose(np.array(own), np.array(trained), rtol=1e-3, atol=1e-3)


def test_the_loss_of_a_hand_worked_example() -> None:
    """Logits 1, 0, -1; the target says the first with 3/4, the last with 1/4."""
    features = mx.array([[1.0, 0.0]])
    rows = mx.array([[1.0, 5.0], [0.0, 7.0], [-1.0, 2.0]])
    loss = distillation(features, rows, mx.array([[0, 2]]), mx.array([[0.75, 0.25]]))
    normalizer = math.log(math.e + 1 + 1 / math.e)
    assert loss.tolist() == pytest.approx([normalizer - 0.75 * 1 - 0.25 * -1])


def head() -> RecurrentHead:
    mx.random.seed(3)
    return RecurrentHead(HeadConfig(4, 7, exit_size=5, state_size=6))


def test_a_draft_is_unrolled_as_it_is_drafted() -> None:
    network = head()
    hidden = mx.random.normal((2, 4))
    embeddings = mx.random.normal((2, 3, 4))
    features = unroll(network, hidden, embeddings)
    state = network.initial_state((2,))
    for step in range(3):
        state = network.advance(state, embeddings[:, step])
        expected = network.features(network.context(hidden), state)
        np.testing.assert_allclose(np.array(features[:, step]), np.array(expected), rtol=1e-5)


def test_positions_without_weight_do_not_count() -> None:
    losses = mx.array([[1.0, 50.0], [3.0, mx.finfo(mx.float32).max]])
    assert weighted_mean(losses, mx.array([[1.0, 0.0], [1.0, 0.0]])).item() == 2
    assert weighted_mean(losses, mx.zeros((2, 2))).item() == 0


def test_beyond_what_was_measured_logits_of_16_bits_go_on_as_those_of_32() -> None:
    """The slope of the last two points was 0, or ten times too steep."""
    products = np.linspace(-20, 30, 1025).astype(np.float32)
    for gain in (0.3, 1.0, 1.7):
        for last in range(1000, 1026):
            logits = np.array(mx.array(gain * products).astype(mx.bfloat16).astype(mx.float32))
            beyond = LogitCurve(products[:last], logits[:last])(np.array([40.0]))
            assert beyond == pytest.approx(gain * 40, rel=0.03)


@pytest.mark.parametrize("name", ["llama", "cohere2", "gemma2"])
def test_the_teacher_says_what_the_target_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.inference.fakes.ALPHABET", "x" * families.VOCABULARY)
    family, options = families.TREES[name]
    model = loaded(families.network_of(family, options))
    embeddings = TargetEmbeddings(model.network, families.VOCABULARY)
    curve = LogitCurve.measure(model, embeddings)
    tokens = mx.array([[5, 80, 7, 240, 17]])
    probs = np.array(mx.softmax(model.network(tokens)[0].astype(mx.float32), axis=-1))
    states = np.array(model.hooks.hidden[0].astype(mx.float32))
    teacher = Teacher(5)
    rows = embeddings.output_rows(mx.arange(families.VOCABULARY)).astype(mx.float32)
    for part in (slice(2), slice(2, 5)):
        teacher.fill(part.start or 0, states[part], rows, curve)
    for row, columns, likely in zip(probs, teacher.columns, teacher.probs, strict=True):
        assert set(columns.tolist()) == set(np.argsort(-row)[:TEACHER_TOKENS].tolist())
        assert likely == pytest.approx(row[columns] / row[columns].sum(), abs=4e-3)


@pytest.mark.slow
def test_a_rule_is_learnt() -> None:
    trainer = rule_trainer()
    before, *_ = trainer.objective.accuracy()
    losses = [loss for loss in trainer.train() if loss is not None]
    assert np.mean(losses[-30:]) < np.mean(losses[:30])
    assert trainer.step == trainer.total == len(losses)
    assert before < 0.3 < 0.6 < trainer.objective.accuracy()[0]


def test_another_seed_trains_other_weights() -> None:
    heads = []
    for seed in (1, 2):
        trainer = rule_trainer(epochs=1, seed=seed)
        list(trainer.train())
        heads.append(trainer.objective.network.output.weight)
    assert not mx.array_equal(*heads).item()


WIDTH = 5
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
    windows = StateWindows([range(1, 5), range(2)], lambda _: enumerate([STATES[:4], STATES[4:]]), token_limit=9)
    made = Objective(target, CONVERSATIONS, windows, Recipe(steps=3, vocabulary=100), ())
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


def test_the_draft_vocabulary_holds_the_most_frequent_answer_tokens() -> None:
    items = [
        TrainingConversation(0, [90, 90, 90, 5, 5, 7, 7, 7, 3], 3, 0.0),
        TrainingConversation(14, [90, 8, 8, 8, 8], 1, 0.0),
    ]
    answers = Answers.concatenate(items)
    assert draft_vocabulary(answers, 2).tolist() == [5, 7]
    assert draft_vocabulary(answers, 9).tolist() == [3, 5, 7]


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path, 2**17)
    item = TrainingConversation(4, [100_000, 1], 1, 0.5)
    folder.append_shard([item])
    assert folder.read_shard(0) == [item]
