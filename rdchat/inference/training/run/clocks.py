"""Time of a training: the limit of hours over all its runs, the pace of a phase, and the cost of learning."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_EVALUATION_SHARE = 0.05  # of the hours, kept for the evaluation
_MARGIN = 1.2  # for looks at held-out answers, saving, and a machine that has other things to do


class TimeLimit:
    """Counts the seconds that a training has taken, without interruptions.

    Args:
        hours: The limit; None where there is none.
        spent_s: Seconds that earlier runs took.
        now: A clock, in seconds.
    """

    def __init__(self, hours: float | None, spent_s: float, now: Callable[[], float]) -> None:
        self.hours = hours
        self._limit_s = math.inf if hours is None else hours * 3600
        self._now, self._began = now, now() - spent_s

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self.hours is not None

    @property
    def spent_s(self) -> float:
        """Seconds that all runs have taken."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 once it is over."""
        return self._limit_s - self.spent_s

    @property
    def reserved_s(self) -> float:
        """Seconds that are kept for the evaluation."""
        return _EVALUATION_SHARE * self._limit_s if self else 0.0


class Pace:
    """Measures a phase's duration, and limits its events to one a second; `now` is a clock, in seconds."""

    EVERY = 1.0  # seconds between two events of a phase, at least

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._last = now()

    @property
    def spent_s(self) -> float:
        """Seconds since the phase was begun or continued, at least 1e-6."""
        return max(self._now() - self._began, 1e-6)

    def due(self) -> bool:
        """Return whether the last event is long enough ago; if so, the next one counts from now."""
        now = self._now()
        if now - self._last < self.EVERY:
            return False
        self._last = now
        return True


@dataclass(frozen=True, slots=True)
class LearningCost:
    """Seconds that preparing and learning take, as measured on a part of the data.

    Attributes:
        reading_s: Seconds per answer token, of computing hidden states and preparing them.
        learning_s: Seconds per answer token and epoch, without these.
        epochs: Passes over the data.
        read_once: Answer tokens up to which the states are computed once; beyond, once more in every epoch.
    """

    reading_s: float
    learning_s: float
    epochs: int
    read_once: float

    def seconds(self, tokens: int) -> float:
        """Return the seconds that these phases take for a number of answer tokens."""
        readings = 1 if tokens <= self.read_once else 1 + self.epochs
        return _MARGIN * tokens * (readings * self.reading_s + self.epochs * self.learning_s)
