"""The training phase: steps, an evaluation on held-out answers every minute, and a checkpoint every 45 seconds."""

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.training.head_training import Learner
from rdchat.inference.training.run.time_limit import TimeLimit
from rdchat.inference.training.training_progress import Pace, Phase, StepReport, TrainingProgress

_SAVE_EVERY = 45.0  # seconds of training that an interruption may cost
_LOOK_EVERY = 60.0  # seconds between two looks at held-out answers
_LOG = logging.getLogger(__name__)


class TrainPhase:
    """Trains a head to its last step, or as long as the time limit allows.

    Args:
        learner: Fresh; restored from the checkpoint where there is one.
        checkpoint: The safetensors file that it is saved in.
        limit: Of time.
        reserve: Seconds of it that are to be left.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        learner: Learner,
        checkpoint: Path,
        *,
        limit: TimeLimit,
        reserve: float,
        now: Callable[[], float],
    ) -> None:
        self._learner = learner
        self._checkpoint = checkpoint
        self._limit = limit
        self._reserve = reserve
        self._now = now

    def run(self) -> Iterator[TrainingProgress]:
        """Train.

        Raises:
            ModelError: If the loss is NaN or infinite.
            StorageFullError: If the disk is full.
            StorageError: If the checkpoint cannot be written.
        """
        learner = self._learner
        if _continues(self._checkpoint, learner):
            learner.restore(self._checkpoint)
        first, pace = learner.step, Pace(self._now)
        saved, looked = self._now(), -math.inf
        losses: list[float] = []
        for step in learner.run(every=1):
            losses.append(_checked(step.loss))
            out_of_time = self._limit.left_s < self._reserve  # slower than it was measured to be
            last = step.step == step.total or out_of_time
            if last or self._now() - saved > _SAVE_EVERY:
                learner.save(self._checkpoint)
                saved = self._now()
            if pace.due() or last:
                accuracy: tuple[float, ...] = ()
                if last or self._now() - looked > _LOOK_EVERY:
                    accuracy, looked = learner.accuracy(), self._now()
                progress = self._progress(step, (step.step - first) / pace.spent_s, losses, accuracy)
                try:
                    yield progress
                except GeneratorExit:  # a pause, which costs no step
                    learner.save(self._checkpoint)
                    raise
                losses = []
            if out_of_time:
                return

    def _progress(
        self, step: StepReport, steps_per_s: float, losses: list[float], accuracy: tuple[float, ...]
    ) -> TrainingProgress:
        return TrainingProgress(
            Phase.TRAIN,
            step.step / step.total,
            steps_per_s * self._learner.samples,
            sum(losses) / len(losses),
            accuracy,
            (step.total - step.step) / steps_per_s,
        )


def _checked(loss: float) -> float:
    if not math.isfinite(loss):
        raise ModelError("The training came to nothing: its loss is no number any more.", "Try another --seed.")
    return loss


def _continues(checkpoint: Path, learner: Learner) -> bool:
    """Tell whether there is a whole checkpoint of a head with these weights' names and shapes."""
    if not checkpoint.exists():
        return False
    wanted = {f"head.{name}": array.shape for name, array in tree_flatten(learner.network.parameters())}
    try:
        found = {name: stored.shape for name, stored in read_header(checkpoint).items() if name.startswith("head.")}
    except ModelError as error:
        _LOG.warning("The training begins anew: %s", error)
        return False
    return found == wanted
