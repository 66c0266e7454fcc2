"""The hours that a training may take, over all its runs, and what the phases after the data will take of them."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import mlx.core as mx

from rdchat.errors import StorageError
from rdchat.files.atomic_file import write_json
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.shards import TrainingConversation, answer_tokens
from rdchat.inference.training.head_training import HeadTraining, Learner

_FIRST_STEPS, _MEASURED_STEPS = 2, 8  # the first ones compile
_MARGIN = 1.2  # for looks at held-out answers, saving, and a machine that has other things to do
_ROWS = 16  # of the calls of the target that are timed: those of an evaluation have about as many


class TimeLimit:
    """Counts the seconds that a training has taken, interruptions left out.

    Args:
        hours: The limit; None where there is none.
        path: JSON file that keeps the seconds from run to run.
        now: A clock, in seconds.

    Raises:
        StorageError: If that file is damaged.
    """

    def __init__(self, hours: float | None, path: Path, now: Callable[[], float]) -> None:
        self.hours = hours
        self._limit_s = math.inf if hours is None else hours * 3600
        self._path = path
        self._now = now
        self._began = self._saved = now()
        self._before_s = _spent_before(path)

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self._limit_s < math.inf

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 once it is over."""
        return self._limit_s - self._spent_s()

    def save(self, every: float = 0.0) -> None:
        """Keep what is spent, where there is a limit and the last time is `every` seconds ago."""
        if self and self._now() - self._saved >= every:
            self._saved = self._now()
            write_json(self._path, {"spent_s": self._spent_s()})

    def _spent_s(self) -> float:
        return self._before_s + self._now() - self._began


def _spent_before(path: Path) -> float:
    try:
        spent_s = float(json.loads(path.read_bytes())["spent_s"])
        if not 0 <= spent_s < math.inf:
            raise ValueError(f"{spent_s} seconds")
        return spent_s
    except FileNotFoundError:
        return 0.0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: {error}.", "Delete it: the hours are then counted anew.") from error


@dataclass(frozen=True, slots=True)
class Costs:
    """Duration of the phases after the data, by measured speeds.

    Attributes:
        reading_s: Seconds per answer token, of computing hidden states and what is prepared of them.
        learning_s: Seconds per answer token and epoch, without these.
        epochs: Passes over the data.
        read_once: Answer tokens up to which the states are computed once; beyond, once more in every epoch.
        evaluation_s: Seconds of the evaluation.
    """

    reading_s: float
    learning_s: float
    epochs: int
    read_once: float
    evaluation_s: float

    @classmethod
    def measured(
        cls,
        training: HeadTraining,
        learner: Learner,
        conversations: Sequence[TrainingConversation],
        read_s: float,
        now: Callable[[], float],
        *,
        epochs: int,
        evaluation_s: float,
    ) -> "Costs":
        """Time some steps of a learner, which is to be thrown away afterwards.

        Args:
            training: That of its kind.
            learner: Prepared on these conversations.
            conversations: At least one.
            read_s: Seconds that preparing them took.
            now: A clock, in seconds.
            epochs: See above.
            evaluation_s: See above.
        """
        answers = answer_tokens(conversations)
        share = answers / sum(len(item.tokens) for item in conversations)
        step_s = _measured_step_s(learner, now)
        return cls(read_s / answers, step_s / learner.samples, epochs, training.read_once * share, evaluation_s)

    def after_data(self, tokens: int) -> float:
        """Return the seconds that these phases take with so many answer tokens."""
        readings = 1 if tokens <= self.read_once else 1 + self.epochs
        token_s = readings * self.reading_s + self.epochs * self.learning_s
        return _MARGIN * (token_s * tokens + self.evaluation_s)


def _measured_step_s(learner: Learner, now: Callable[[], float]) -> float:
    """Return the mean seconds of a training step; the learner is to be thrown away afterwards."""
    steps = islice(learner.run(every=1), _FIRST_STEPS + _MEASURED_STEPS)
    times = [now() for _ in steps]
    return (times[-1] - times[0]) / max(len(times) - 1, 1) if times else 0.0


def measured_call_s(model: LoadedModel, now: Callable[[], float]) -> float:
    """Return the seconds of a call of the target with 16 tokens."""
    tokens = mx.array([[0] * _ROWS])
    mx.eval(model.network(tokens))
    began = now()
    mx.eval(model.network(tokens))
    return now() - began


def measured_batch_speed(model: LoadedModel, sequences: int, now: Callable[[], float]) -> float:
    """Return the tokens per second of a batch of so many sequences while they are short, which is the fastest."""
    decoder = BatchedDecoder.read(model, [0], [[0]] * sequences)
    mx.eval(decoder.step([0] * sequences))
    began = now()
    mx.eval(decoder.step([0] * sequences))
    return sequences / max(now() - began, 1e-6)
