"""Training a sequence head learns, and stopping at any step and going on ends in the same weights."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.head.samples import Teacher
from rdchat.inference.training.sequence_heads.samples import Goals, Sample
from rdchat.inference.training.sequence_heads.trainer import SequenceTrainer
from tests.inference.fakes import shared_llama
from tests.inference.training.sequence_heads.sequence_task import KINDS, learner, recipe_of


def check_same(first: SequenceTrainer, second: SequenceTrainer) -> None:
    pairs = zip(tree_flatten(first.network.parameters()), tree_flatten(second.network.parameters()), strict=True)
    for (name, expected), (_, found) in pairs:
        assert mx.array_equal(expected, found).item(), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_learnt(kind: TrainedKind) -> None:
    """The target does not know it, so its answers' own tokens are put in its place as the teacher."""
    trained = learner(kind, shared_llama(), recipe_of(kind, epochs=8, learning_rate=8e-3, steps=3), ruled=True)
    prepared = trained._prepared
    answers, teacher = prepared.store.answers, prepared.teacher
    teacher.columns[:, 0] = np.searchsorted(prepared.vocabulary, np.minimum(answers.tokens, prepared.vocabulary[-1]))
    teacher.probs[:] = [1, *[0] * (teacher.probs.shape[1] - 1)]
    before = trained.accuracy()
    reports = list(trained.run(every=14))
    assert reports[-1].loss < 0.6 * reports[0].loss
    assert reports[-1].step == reports[-1].total == trained.step
    after = trained.accuracy()
    assert before[0] < 0.3 < 0.8 < after[0]
    assert min(after) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "stop"), [*zip(KINDS, (1, 16), strict=True)])
def test_a_resumed_training_ends_in_the_same_weights(kind: TrainedKind, stop: int, tmp_path: Path) -> None:
    """Dropout, drawn candidates and roots, the optimiser's moments, the order of samples and windows included."""
    recipe = recipe_of(kind, epochs=2, roots=5, conversations=3)

    def fresh() -> SequenceTrainer:
        return learner(kind, shared_llama(), recipe, count=2, window_tokens=320)

    whole, first, second = fresh(), fresh(), fresh()
    assert len(whole._prepared.store) == 2
    assert len(list(whole.run(every=1))) == whole.total == 20
    next(report for report in first.run(every=1) if report.step == stop)
    first.save(tmp_path / "state.safetensors")
    second.restore(tmp_path / "state.safetensors")
    assert second.step == stop
    list(second.run())
    check_same(whole, second)


def test_another_seed_trains_other_weights() -> None:
    heads = []
    for seed in (1, 2):
        trained = learner(TrainedKind.DSPARK, shared_llama(), recipe_of(TrainedKind.DSPARK, epochs=1, seed=seed))
        list(trained.run())
        heads.append(trained.network.fc.weight)
    assert not mx.array_equal(*heads).item()


def test_conversations_together_have_the_gradient_of_their_sum() -> None:
    """Summed one by one, so that memory is that of one."""
    kind = TrainedKind.EAGLE3
    trained = learner(kind, shared_llama(), recipe_of(kind, conversations=2, dropout=0.0, candidates=0, clip=1e9))
    samples = [trained._prepared.sample(0, number) for number in (0, 1)]
    goals = [Goals.of(sample, np.array(sample.roots()), 5) for sample in samples]
    decay = 0.8 ** np.arange(5)
    whole = sum(float((goal.weights * decay).sum()) for goal in goals)
    apart = [
        trained._loss(sample, np.array(sample.roots(), np.int32), goal, mx.array((goal.weights * decay) / whole), None)
        for sample, goal in zip(samples, goals, strict=True)
    ]
    assert trained._update(0, samples) == pytest.approx(sum(loss.item() for loss in apart), rel=1e-4)


def sample_of(answer: list[int], question: int, kept: int) -> Sample:
    item = TrainingConversation(0, [*range(question), *answer], question, 0.0)
    teacher = Teacher(np.zeros((len(answer), 2), np.uint16), np.ones((len(answer), 2), np.float16))
    features = np.arange(question + len(answer), dtype=np.float16)[:, None]
    return Sample.of(item, features, teacher, np.array([7, 8, 9], np.int32), kept)


def test_a_long_question_loses_its_beginning_and_nothing_else_moves() -> None:
    sample = sample_of([7, 8, 9], question=6, kept=2)
    assert sample.tokens.tolist() == [4, 5, 7, 8, 9]
    assert sample.features[:, 0].tolist() == [4, 5, 6, 7, 8]
    assert (sample.position, sample.answer, list(sample.roots())) == (4, 2, [2, 3])


def test_nothing_is_learnt_behind_an_answer_and_from_a_token_on_that_cannot_be_drafted() -> None:
    sample = sample_of([7, 8, 3, 9], question=2, kept=2)
    goals = Goals.of(sample, np.array(sample.roots()), 3)
    assert goals.tokens.tolist() == [[8, 3, 9], [3, 9, -1], [9, -1, -1]]
    assert goals.weights.tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]
