"""The chance that target and drafter agree, against drawn noise; and the scalar that is fitted with it."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective, agreement, best_of
from tests.inference.training.heads.learning_task import Task, quick

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
@pytest.mark.parametrize("inverse_temperature", [0.8, 1.0, 1.4])
def test_the_chance_of_agreement_is_that_of_shared_noise(temperature: float, inverse_temperature: float) -> None:
    candidates, columns, drawn = 30, np.array([3, 7, 12, 20]), 40_000
    probs = np.array([0.5, 0.3, 0.15, 0.05])
    logits = RNG.normal(size=candidates)
    logits[columns] += [2.5, 1.0, 1.5, 0]
    target = np.full(candidates, -np.inf)
    target[columns] = np.log(probs)
    noise = RNG.gumbel(size=(drawn, candidates))
    chosen = np.argmax(target / temperature + noise, axis=1)
    drafted = np.argmax(inverse_temperature * logits / temperature + noise, axis=1)
    share = (chosen == drafted).mean()
    arrays = (mx.array(logits, mx.float32)[None], mx.array(columns)[None], mx.array(probs, mx.float32)[None])
    assert agreement(*arrays, temperature, inverse_temperature).item() == pytest.approx(share, abs=0.01)


def test_a_drafter_that_knows_the_target_always_agrees() -> None:
    logits = mx.array(RNG.normal(size=(5, 8)), mx.float32)
    columns = mx.broadcast_to(mx.arange(8), (5, 8))
    assert agreement(logits, columns, mx.softmax(logits, axis=-1), 0.9, 1.0).tolist() == pytest.approx(
        [1] * 5, abs=1e-5
    )


@pytest.mark.parametrize("flattened", [0.7, 1.3])
def test_the_best_scalar_undoes_what_a_drafters_logits_were_flattened_by(flattened: float) -> None:
    truth = mx.array(RNG.normal(size=(400, 8)) * 2, mx.float32)
    columns = mx.broadcast_to(mx.arange(8), (400, 8))
    choices = [0.6, 0.7, 1 / 1.3, 0.9, 1.0, 1.2, 1 / 0.7, 1.6]
    agreed = [
        mx.mean(agreement(flattened * truth, columns, mx.softmax(truth, axis=-1), 1.0, choice)).item()
        for choice in choices
    ]
    assert best_of(choices, agreed) == pytest.approx(1 / flattened)


def test_of_equals_the_one_nearest_to_one_is_taken() -> None:
    assert best_of([0.8, 1.05, 1.4], [2.0, 2.0, 2.0]) == 1.05


def test_a_head_whose_scores_are_too_flat_gets_the_largest_scalar() -> None:
    task = Task(quick(epochs=2))
    trainer = task.trainer()
    list(trainer.run())
    objective = trainer.objective
    assert isinstance(objective, RecurrentObjective)
    head = objective.network
    head.output.weight, head.output.bias = 0.3 * head.output.weight, 0.3 * head.output.bias
    assert objective.fit_inverse_temperature() == 1.5
    assert head.training, "as it was found"
