"""Training learns, and stopping at any step and going on ends in the same weights."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.training.phases import Trainer
from tests.grids import share
from tests.inference.training.learning_task import Task, quick


def tokens_per_call(trainer: Trainer) -> float:
    """Return the tokens per target call of drafts along held-out answers, each of which begins where the last ended."""
    objective = trainer.objective
    objective.network.eval()
    drafts = []
    for roots, inputs in objective.held_out_inputs():
        scores = objective.features(*inputs) @ objective.whitening.rows.T
        guesses = objective.vocabulary[np.array(mx.argmax(scores, axis=-1))]
        drafts.append(np.logical_and.accumulate(guesses == objective.next_tokens(roots), axis=1))
    objective.network.train()
    roots = objective.held_out
    accepted = np.concatenate(drafts).sum(axis=1)
    tokens = 0
    calls = 0
    following = -1  # the next round's root
    for place, root in enumerate(roots.tolist()):
        if root < following and place and roots[place - 1] == root - 1:
            continue
        gained = int(accepted[place]) + 1
        calls = calls + 1
        tokens = tokens + gained
        following = root + gained
    return tokens / calls


@pytest.mark.slow
def test_a_rule_is_learnt() -> None:
    trainer = Task(quick()).trainer()

    before = tokens_per_call(trainer)
    losses = [loss for loss in trainer.train() if loss is not None]
    assert np.mean(losses[-30:]) < np.mean(losses[:30])
    assert trainer.step == trainer.total == len(losses)
    assert before < 1.3 < 2.8 < tokens_per_call(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("stop", share([17, 1, 25]))
def test_a_resumed_training_ends_in_the_same_weights(stop: int, tmp_path: Path) -> None:
    """Dropout, the optimiser's moments and the order of samples included."""
    task = Task(quick(epochs=2))
    whole = task.trainer()
    list(whole.train())
    first = task.trainer()
    for _ in first.train():
        if first.step == stop:
            break
    first.save_state(tmp_path / "state.safetensors")
    second = task.trainer()
    second.restore_state(tmp_path / "state.safetensors")
    assert second.step == stop
    list(second.train())
    for (name, expected), (_, found) in zip(
        tree_flatten(whole.objective.network.parameters()),
        tree_flatten(second.objective.network.parameters()),
        strict=True,
    ):
        assert mx.array_equal(expected, found).item(), name


def test_another_seed_trains_other_weights() -> None:
    heads = []
    for seed in (1, 2):
        trainer = Task(quick(epochs=1, seed=seed)).trainer()
        list(trainer.train())
        heads.append(trainer.objective.network.output.weight)
    assert not mx.array_equal(*heads).item()
