"""The progress events of a training."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The phases of a training, in order."""

    DATA = "data"
    PREPARE = "prepare"
    TRAIN = "train"
    WATCH = "watch"
    EVALUATE = "evaluate"
    WRITE = "write"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a training.

    Attributes:
        phase: What it is doing.
        fraction: Of the phase, from 0 to 1.
        tokens_per_second: Answer tokens made, samples trained on, or tokens decoded, since the phase was begun or
            continued; None where it is not measured.
        loss: In nats, of the last steps; None outside of training.
        accuracy: Share of right tokens at each draft position of held-out answers, given that all before were right;
            empty where it was not looked at.
        left_s: Seconds until the phase ends, at this speed; None where it cannot be told.
    """

    phase: Phase
    fraction: float
    tokens_per_second: float | None = None
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """Steps done of `total`, and the mean loss, in nats, since the last report."""

    step: int
    total: int
    loss: float


class Pace:
    """Measures a phase's duration, and limits its events to one a second.

    Args:
        now: A clock, in seconds.
    """

    EVERY = 1.0  # seconds between two events of a phase, at least

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._told = now()

    @property
    def spent_s(self) -> float:
        """Seconds since the phase was begun or continued, at least 1e-6."""
        return max(self._now() - self._began, 1e-6)

    def due(self) -> bool:
        """Tell whether the last event is long enough ago; if so, the next one counts from now."""
        now = self._now()
        if now - self._told < self.EVERY:
            return False
        self._told = now
        return True
