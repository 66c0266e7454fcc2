"""What is asked of the training process and what it tells: plain data, which crosses as lines of JSON."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rdchat.inference.api.trained_kind import TrainedKind

DRAFTER, CURVE, RESULT = "new-drafter", "curve.jsonl", "result.json"
"""In a task's folder: the drafter's folder, what was measured while it was trained, and the comparison."""


@dataclass(frozen=True, slots=True)
class TrainingOrder:
    """What is to be trained. Of `hours` and `tokens` one is given.

    Attributes:
        model: What `Engine.load` takes; None is the default model.
        name: What people call the model.
        kind: Of the drafter's head.
        hours: How long everything may take, pauses left out.
        tokens: Answer tokens to train on.
        with_chats: Whether the first questions of the person's chats are mixed in.
        dtype: Precision to load the model in.
        old: The drafter that is used now, a folder or hub id; None for the one made for the model, if there is one.
        seed: Of everything drawn.
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
        """Return what `asdict` gave; raises TypeError or ValueError where it cannot be."""
        return cls(**data | {"kind": TrainedKind(data["kind"])})


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """What the training process is to do.

    Attributes:
        order: What is to be trained.
        folder: Where drafter, curve and comparison are written; empty where only an estimate is wanted.
        asked: The person's own questions, where the order wants them.
    """

    order: TrainingOrder
    folder: str = ""
    asked: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> "TrainingTask":
        data = json.loads(line)
        return cls(TrainingOrder.from_dict(data["order"]), data["folder"], tuple(data["asked"]))


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """What a training takes, from a few seconds of measuring on this machine.

    Attributes:
        tokens: Answer tokens that it would train on.
        seconds: Of everything.
        disk_bytes: Of its data, at most.
        memory_bytes: Beside the model, at most.
        model_bytes: Of the model's weights, which the training process holds a second time.
    """

    tokens: int
    seconds: float
    disk_bytes: int
    memory_bytes: int
    model_bytes: int


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
        old: What people call the old one; empty where there was none.
        setup: How both drafted, such as `W4 L5`.
        problem: Why the old one could not be measured; empty where it could, or where there was none.
    """

    groups: tuple[ComparedGroup, ...]
    old: str = ""
    setup: str = ""
    problem: str = ""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Comparison":
        """Return what `asdict` gave; raises TypeError or KeyError where it cannot be."""
        return cls(**data | {"groups": tuple(ComparedGroup(**group) for group in data["groups"])})


class News(StrEnum):
    """What the training process tells of. The last four are its last words."""

    LOADING = "loading"
    PLANNED = "planned"
    PROGRESS = "progress"
    COMPARING = "comparing"
    ESTIMATED = "estimated"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrainingNews:
    """Something that the training process tells.

    Attributes:
        kind: What it is about.
        words: The step of loading, or what went wrong.
        hint: What to do about it.
        fraction: Of the step or phase, from 0 to 1; None where it cannot be told.
        phase: By the name of `training_progress.Phase`.
        tokens_per_second, loss, accuracy, left_s: As of `TrainingProgress`.
        memory_bytes: What the process holds now.
        data_folder: Where the training's data is kept.
        model_folder: The model's folder.
        resumed: Whether there was data before.
        estimate: What was asked for.
        comparison: Once it is finished.
    """

    kind: News
    words: str = ""
    hint: str = ""
    fraction: float | None = None
    phase: str = ""
    tokens_per_second: float | None = None
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    left_s: float | None = None
    memory_bytes: int = 0
    data_folder: str = ""
    model_folder: str = ""
    resumed: bool = False
    estimate: TrainingEstimate | None = None
    comparison: Comparison | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TrainingNews":
        """Return what `to_json` wrote; raises LookupError, TypeError or ValueError where it cannot be."""
        estimate, comparison = data["estimate"], data["comparison"]
        parsed = {
            "kind": News(data["kind"]),
            "accuracy": tuple(data["accuracy"]),
            "estimate": TrainingEstimate(**estimate) if estimate else None,
            "comparison": Comparison.from_dict(comparison) if comparison else None,
        }
        return cls(**data | parsed)
