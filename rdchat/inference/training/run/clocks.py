"""Clocks of a training: the limit of hours over all runs, the pace of a phase, and the cost of learning."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_EVALUATION_SHARE = 0.05  # share of the hours kept for the evaluation
_MARGIN = 1.2  # for held-out evaluation, saving, and other programs on the machine


class TimeLimit:
    """Counts the seconds of a training, without interruptions.

    Args:
        hours: The limit; None without one.
        spent_s: Seconds of earlier runs.
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
        """Seconds of all runs."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Seconds left; negative once the limit is passed."""
        return self._limit_s - self.spent_s

    @property
    def reserved_s(self) -> float:
        """Seconds kept for the evaluation."""
        return _EVALUATION_SHARE * self._limit_s if self else 0.0


class Pace:
    """Measures a phase's duration, and limits its events to one a second; `now` is a clock, in seconds."""

    EVERY = 1.0  # least seconds between two events of a phase

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._last = now()

    @property
    def spent_s(self) -> float:
        """Seconds since the phase began or resumed, at least 1e-6."""
        return max(self._now() - self._began, 1e-6)

    def due(self) -> bool:
        """Return whether an event is due; if so, the interval starts again."""
        now = self._now()
        if now - self._last < self.EVERY:
            return False
        self._last = now
        return True


@dataclass(frozen=True, slots=True)
class LearningCost:
    """Seconds of preparing and learning, measured on a part of the data."""

    reading_s: float  # seconds per answer token, for computing and preparing hidden states
    learning_s: float  # seconds per answer token and epoch, without reading
    epochs: int  # passes over the data
    read_once: float  # up to this many answer tokens the states are computed once; beyond, once more in every epoch

    def seconds(self, tokens: int) -> float:
        """Return the seconds of these phases for a number of answer tokens."""
        readings = 1 if tokens <= self.read_once else 1 + self.epochs
        return _MARGIN * tokens * (readings * self.reading_s + self.epochs * self.learning_s)
