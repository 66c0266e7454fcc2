"""The training phase: steps, an evaluation on held-out answers every minute, and a checkpoint every 45 seconds."""

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.training.heads.trainer import Trainer
from rdchat.inference.training.run.clocks import Pace, TimeLimit

_SAVE_EVERY = 45.0  # seconds of training that an interruption may cost
_LOOK_EVERY = 60.0  # seconds between two looks at held-out answers
_LOG = logging.getLogger(__name__)


def train(trainer: Trainer, checkpoint: Path, limit: TimeLimit, now: Callable[[], float]) -> Iterator[TrainingProgress]:
    """Train a head to its last step, or as long as the time limit allows.

    Args:
        trainer: Fresh; restored from the checkpoint where there is one.
        checkpoint: The safetensors file of the checkpoint.
        limit: Of time.
        now: A clock, in seconds.

    Raises:
        ModelError: If the loss is NaN or infinite.
        StorageFullError: If the disk is full.
        StorageError: If the checkpoint cannot be written.
    """
    if _continues(checkpoint, trainer):
        trainer.restore(checkpoint)
    first, pace = trainer.step, Pace(now)
    saved, looked = now(), -math.inf
    losses: list[float] = []
    for loss in trainer.run():
        losses.append(_checked(loss))
        out_of_time = limit.left_s < limit.reserved_s  # slower than it was measured to be
        last = trainer.step == trainer.total or out_of_time
        if last or now() - saved > _SAVE_EVERY:
            trainer.save(checkpoint)
            saved = now()
        if pace.due() or last:
            accuracy: tuple[float, ...] = ()
            if last or now() - looked > _LOOK_EVERY:
                accuracy, looked = trainer.objective.accuracy(), now()
            steps_per_s = (trainer.step - first) / pace.spent_s
            try:
                yield TrainingProgress(
                    Phase.TRAIN,
                    trainer.step / trainer.total,
                    steps_per_s * trainer.objective.tokens_per_step,
                    sum(losses) / len(losses),
                    accuracy,
                    (trainer.total - trainer.step) / steps_per_s,
                )
            except GeneratorExit:  # a pause, which costs no step
                trainer.save(checkpoint)
                raise
            losses = []
        if out_of_time:
            return


def _checked(loss: float) -> float:
    if not math.isfinite(loss):
        raise ModelError("The training came to nothing: its loss is no number any more.", "Try another --seed.")
    return loss


def _continues(checkpoint: Path, trainer: Trainer) -> bool:
    """Return whether there is a whole checkpoint of a head with these weights' names and shapes."""
    if not checkpoint.exists():
        return False
    parameters = trainer.objective.network.parameters()
    wanted = {f"head.{name}": array.shape for name, array in tree_flatten(parameters)}
    try:
        found = {name: stored.shape for name, stored in read_header(checkpoint).items() if name.startswith("head.")}
    except ModelError as error:
        _LOG.warning("The training begins anew: %s", error)
        return False
    return found == wanted
