"""Training learns, and stopping at any step and going on ends in the same weights."""

from dataclasses import astuple
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.training.head.preparation import at_once
from rdchat.inference.training.head.samples import Teacher
from rdchat.inference.training.head.simulate import simulate
from rdchat.inference.training.head.trainer import Recipe
from tests.inference.training.head.learning_task import WIDTH, Task, quick


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [0, 18])
def test_a_rule_is_learnt(candidates: int) -> None:
    task = Task(quick(candidates=candidates))
    trainer = task.trainer()

    def figure() -> float:
        return simulate(trainer.head, task.prepared).tokens_per_target_call

    before = figure()
    reports = list(trainer.run(every=30))
    assert reports[-1].loss < reports[0].loss
    assert reports[-1].step == reports[-1].total == trainer.step
    assert before < 1.3 < 2.8 < figure()


@pytest.mark.parametrize("stop", [1, 17, 25])
def test_a_resumed_training_ends_in_the_same_weights(stop: int, tmp_path: Path) -> None:
    """Dropout, drawn candidates, the optimiser's moments and the order of samples included."""
    task = Task(quick(epochs=2, candidates=18))
    whole = task.trainer()
    list(whole.run())
    first = task.trainer()
    for report in first.run(every=1):
        if report.step == stop:
            break
    first.save(tmp_path / "state.safetensors")
    second = task.trainer()
    second.restore(tmp_path / "state.safetensors")
    assert second.step == stop
    list(second.run())
    for (name, expected), (_, found) in zip(
        tree_flatten(whole.head.parameters()), tree_flatten(second.head.parameters()), strict=True
    ):
        assert mx.array_equal(expected, found).item(), name


def test_another_seed_trains_other_weights() -> None:
    heads = []
    for seed in (1, 2):
        trainer = Task(quick(epochs=1, seed=seed)).trainer()
        list(trainer.run())
        heads.append(trainer.head.output.weight)
    assert not mx.array_equal(*heads).item()


def test_a_preparation_that_was_broken_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(Recipe())
    steps = task.prepare(kept=tmp_path)
    assert 0 < next(steps).fraction < 1
    steps.close()
    filled: list[int] = []
    fill = Teacher.fill

    def counted(teacher: Teacher, states: Any, *output: Any) -> None:
        filled.append(len(states))
        fill(teacher, states, *output)

    monkeypatch.setattr(Teacher, "fill", counted)
    again = at_once(task.prepare(kept=tmp_path))
    assert len(filled) == 1  # of two windows
    roots = again.reader.roots(0, 1200, held_out=False)
    states = np.zeros((len(roots), WIDTH), np.float32)
    ours, fresh = (astuple(prepared.reader.batch(roots, states)) for prepared in (again, task.prepared))
    assert all(mx.array_equal(a, b) for a, b in zip(ours, fresh, strict=True))
