"""Training learns, and stopping at any step and going on ends in the same weights."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.samples import Answers, SampleReader, States, Teacher
from rdchat.inference.training.shards import Conversation, ShardFolder
from rdchat.inference.training.simulate import simulate
from rdchat.inference.training.trainer import Recipe, Trainer
from rdchat.inference.training.whitening import Coordinates

WIDTH, TOKENS = 8, 30


class Task:
    """Answers in which token t is followed by 3 t + 1, of a target whose states say so."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        draw = np.random.default_rng(0)
        self.table = draw.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        shards, items = ShardFolder(folder, TOKENS), []
        for number in range(60):
            answer = [int(draw.integers(TOKENS))]
            for _ in range(19):
                answer.append((3 * answer[-1] + 1) % TOKENS)
            items.append(Conversation(number, [0, *answer], 1, 0.0))
        shards.append(items, np.concatenate([4 * self.table[item.answer] for item in items]).astype(np.float16))
        answers, states = Answers.of(items), States(shards)
        self.vocabulary = np.arange(TOKENS, dtype=np.int32)
        teacher = Teacher.of(states, mx.array(self.table))
        self.reader = SampleReader(answers, states, teacher, self.vocabulary, recipe.steps)
        counts = np.bincount(answers.tokens, minlength=TOKENS)
        self.coordinates = Coordinates.of(states.rows(np.arange(len(states))), self.table, counts, self.table)
        self._counts, self._recipe = counts, recipe

    def trainer(self) -> Trainer:
        mx.random.seed(0)
        head = RecurrentHead(HeadConfig(WIDTH, TOKENS, exit_size=16, state_size=16))
        return Trainer(head, self._recipe, self.reader, self.coordinates, self._counts)


def quick(**changes: object) -> Recipe:
    options = {"epochs": 12, "batch": 32, "learning_rate": 1e-2, "warm_up": 10, "dropout": 0.1, "steps": 3}
    return Recipe(**(options | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("candidates", [0, 18])
def test_a_rule_is_learnt(candidates: int, tmp_path: Path) -> None:
    task = Task(tmp_path, quick(candidates=candidates))
    trainer = task.trainer()

    def figure() -> float:
        return simulate(trainer.head, task.reader, task.coordinates, mx.array(task.vocabulary)).tokens_per_target_call

    before = figure()
    reports = list(trainer.run(every=30))
    assert reports[-1].loss < reports[0].loss
    assert reports[-1].step == reports[-1].total == trainer.step
    assert before < 1.3 < 2.8 < figure()


@pytest.mark.parametrize("stop", [1, 17])
def test_a_resumed_training_ends_in_the_same_weights(stop: int, tmp_path: Path) -> None:
    """Dropout, drawn candidates, the optimiser's moments and the order of samples included."""
    task = Task(tmp_path / "data", quick(epochs=2, candidates=18))
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


def test_another_seed_trains_other_weights(tmp_path: Path) -> None:
    heads = []
    for seed in (1, 2):
        trainer = Task(tmp_path / str(seed), quick(epochs=1, seed=seed)).trainer()
        list(trainer.run())
        heads.append(trainer.head.output.weight)
    assert not mx.array_equal(*heads).item()
