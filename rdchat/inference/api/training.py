"""Messages between the app and the training process, as plain data."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rdchat.inference.api.trained_kind import TrainedKind

DRAFTER, CURVE, RESULT = "new-drafter", "curve.jsonl", "result.json"
"""In the folder of a training of the window: the drafter's folder, the learning curve, and the comparison."""
LOADING, COMPARING = "load", "compare"
"""Phases of the training process, before and after those of `Phase`."""


@dataclass(frozen=True, slots=True)
class TrainingOrder:
    """The order of a training. Either `hours` or `tokens` is given.

    Attributes:
        model: An argument of `Engine.load`; None is the default model.
        name: The model's name for people.
        kind: Of the drafter's head.
        hours: How long everything may take, without pauses.
        tokens: Answer tokens to train on.
        with_chats: Whether the first questions of the person's chats are mixed in.
        dtype: Precision to load the model in.
        old: The drafter that is used now, a folder or hub id; None for the one made for the model, if there is one.
        seed: Of all random draws.
    """

    model: str | None
    name: str
    kind: TrainedKind = TrainedKind.RECURRENT
    hours: float | None = None
    tokens: int | None = None
    with_chats: bool = False
    dtype: str = "auto"
    old: str | None = None
    seed: int = 0

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TrainingOrder":
        """Undo `asdict`; raises TypeError, KeyError or ValueError where the data has another shape."""
        return cls(**data | {"kind": TrainedKind(data["kind"])})


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
        phase: A `Phase`, LOADING or COMPARING.
        fraction: Of the phase, from 0 to 1; None where it is unknown.
        tokens_per_second: Answer tokens made, samples trained on, or tokens decoded, since the phase was begun or
            continued; None where it is not measured.
        loss: Mean over the last steps, in nats; None outside of training.
        accuracy: Share of right tokens at each draft position of held-out answers, given that all before were right;
            empty where it was not measured.
        left_s: Seconds until the phase ends, at this speed; None where it is unknown.
        words: A sentence or a step's name, for people.
        memory_bytes: Memory that the process holds; 0 where it was not measured.
    """

    phase: str
    fraction: float | None
    tokens_per_second: float | None = None
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    left_s: float | None = None
    words: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """A training that begins or goes on.

    Attributes:
        data_folder: Where its data is kept.
        model_folder: The model's folder.
        resumed: Whether there was data before.
        disk_bytes: Disk that the data takes, at most.
        memory_bytes: Memory that the training process takes, at most, with the model.
    """

    data_folder: str
    model_folder: str
    resumed: bool
    disk_bytes: int
    memory_bytes: int


def event_from(data: dict[str, Any]) -> TrainingProgress | TrainingStart:
    """Undo `asdict`; raises TypeError or KeyError where the data has another shape."""
    if "data_folder" in data:
        return TrainingStart(**data)
    return TrainingProgress(**data | {"accuracy": tuple(data["accuracy"])})


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """Tokens per call of the model, on one group of questions or on `all`; None where nothing was decoded."""

    group: str
    new: float | None
    old: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A new drafter beside the one that was used before, both measured by decoding.

    Attributes:
        groups: The figures.
        old: The old one's name; empty where there was none.
        setup: How both drafted, such as `W4 L5`.
        problem: Why the old one could not be measured; empty where it could, or where there was none.
    """

    groups: tuple[ComparedGroup, ...]
    old: str = ""
    setup: str = ""
    problem: str = ""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Comparison":
        """Undo `asdict`; raises TypeError or KeyError where the data has another shape."""
        return cls(**data | {"groups": tuple(ComparedGroup(**group) for group in data["groups"])})
