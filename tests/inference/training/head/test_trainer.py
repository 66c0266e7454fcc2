"""Training learns, and stopping at any step and going on ends in the same weights."""

from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.drafting.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.data.shards import Conversation
from rdchat.inference.training.head.preparation import at_once, prepare
from rdchat.inference.training.head.samples import Teacher
from rdchat.inference.training.head.simulate import simulate
from rdchat.inference.training.head.trainer import Recipe, Trainer

WIDTH, TOKENS = 8, 30


class Table:
    """A target's embeddings, which are its output rows too."""

    def __init__(self, rows: mx.array) -> None:
        self._rows = rows

    def embed(self, tokens: mx.array) -> mx.array:
        return self._rows[tokens]

    output_rows = embed


class Task:
    """Answers in which token t is followed by 3 t + 1, of a target whose states say so; in four shards."""

    def __init__(self, recipe: Recipe) -> None:
        draw = np.random.default_rng(0)
        table = draw.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        shards = [
            [self._conversation(number, draw) for number in range(first, first + 15)] for first in range(0, 60, 15)
        ]
        states = [np.concatenate([4 * table[item.answer] for item in shard]).astype(np.float16) for shard in shards]
        self.prepare = partial(
            prepare,
            Table(mx.array(table)),  # type: ignore[arg-type]
            np.asarray,
            TOKENS,
            shards,
            states.__getitem__,
            candidates=TOKENS,
            steps=recipe.steps,
            window_tokens=700,
        )
        self.prepared = at_once(self.prepare())
        assert len(self.prepared.windows) == 2
        self._recipe = recipe

    @staticmethod
    def _conversation(number: int, draw: np.random.Generator) -> Conversation:
        answer = [int(draw.integers(TOKENS))]
        for _ in range(19):
            answer.append((3 * answer[-1] + 1) % TOKENS)
        return Conversation(number, [0, *answer], 1, 0.0)

    def trainer(self) -> Trainer:
        mx.random.seed(0)
        head = RecurrentHead(HeadConfig(WIDTH, len(self.prepared.vocabulary), exit_size=16, state_size=16))
        return Trainer(head, self._recipe, self.prepared)


def quick(**changes: object) -> Recipe:
    options = {"epochs": 12, "batch": 32, "learning_rate": 1e-2, "warm_up": 10, "dropout": 0.1, "steps": 3}
    return Recipe(**(options | changes))  # type: ignore[arg-type]


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
