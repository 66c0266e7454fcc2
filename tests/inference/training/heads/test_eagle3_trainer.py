"""Training an EAGLE-3 head learns, and stopping at any step and going on ends in the same weights."""

from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.eagle3_objective import Sample
from rdchat.inference.training.heads.trainer import Trainer
from tests.inference.fakes import shared_llama
from tests.inference.training.heads.eagle3_task import ANSWER, QUESTION, prepared, recipe_of


def check_same(first: nn.Module, second: nn.Module) -> None:
    pairs = zip(tree_flatten(first.parameters()), tree_flatten(second.parameters()), strict=True)
    for (name, expected), (_, found) in pairs:
        assert mx.array_equal(expected, found).item(), name


@pytest.mark.slow
def test_a_rule_is_learnt() -> None:
    """The target does not know it, so its answers' own tokens are put in its place as the teacher."""
    recipe = recipe_of(epochs=8, learning_rate=8e-3, steps=3)
    trained = prepared(shared_llama(), recipe, ruled=True)
    trainer, teacher = Trainer(trained, recipe), trained.teacher
    tokens = np.minimum(trained.answers.tokens, trained.vocabulary[-1])
    teacher.columns[:, 0] = np.searchsorted(trained.vocabulary, tokens)
    teacher.probs[:] = [1, *[0] * (teacher.probs.shape[1] - 1)]
    before = trained.accuracy()
    losses = [loss for loss in trainer.run() if loss is not None]
    assert np.mean(losses[-14:]) < 0.6 * np.mean(losses[:14])
    assert trainer.step == trainer.total == len(losses)
    after = trained.accuracy()
    assert before[0] < 0.3 < 0.8 < after[0]
    assert min(after) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 45])
def test_a_resumed_training_ends_in_the_same_weights(stop: int, tmp_path: Path) -> None:
    """Dropout, the optimiser's moments, the order of samples and windows included."""
    recipe = recipe_of(epochs=2)

    def fresh() -> Trainer:
        return Trainer(prepared(shared_llama(), recipe, count=2, window_tokens=320), recipe)

    whole, first, second = fresh(), fresh(), fresh()
    assert len(whole.objective.windows) == 2
    assert sum(loss is not None for loss in whole.run()) == whole.total == 56
    next(loss for loss in first.run() if first.step == stop)
    first.save(tmp_path / "state.safetensors")
    second.restore(tmp_path / "state.safetensors")
    assert second.step == stop
    list(second.run())
    check_same(whole.objective.network, second.objective.network)


@pytest.mark.slow
def test_another_seed_trains_other_weights() -> None:
    heads = []
    for seed in (1, 2):
        recipe = recipe_of(epochs=1, seed=seed)
        trained = prepared(shared_llama(), recipe)
        list(Trainer(trained, recipe).run())
        heads.append(trained.network.fc.weight)
    assert not mx.array_equal(*heads).item()


def test_a_long_question_loses_its_beginning_and_nothing_else_moves() -> None:
    item = TrainingConversation(0, [*range(6), 7, 8, 9], 6, 0.0)
    sample = Sample.of(item, np.arange(9, dtype=np.float16)[:, None], 40, 2)
    assert sample.tokens.tolist() == [4, 5, 7, 8, 9]
    assert sample.features[:, 0].tolist() == [4, 5, 6, 7, 8]
    assert (sample.position, sample.answer, list(sample.roots())) == (4, 2, [2, 3])


def test_roots_of_a_sample_are_those_of_its_answer_among_all_answers() -> None:
    trained = prepared(shared_llama(), recipe_of(steps=2), count=2)
    sample = trained.sample(0, 1)
    roots = sample.roots()
    assert roots.tolist() == list(range(QUESTION, QUESTION + ANSWER - 1))
    expected = [*sample.tokens[QUESTION + 1 :].tolist(), -1]
    found = trained.next_tokens(sample.among_answers(roots)).tolist()
    assert found == [list(pair) for pair in pairwise(expected)]
