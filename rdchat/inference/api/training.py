"""The training of a drafter as plain data: its settings, and what goes between the app and the training process."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rdchat.files import plain
from rdchat.inference.api.requests import BeamShape, require

# Tokens of answers to learn from.
DEFAULT_TOKENS = 1_000_000
_MIN_TOKENS = 1000
_MAX_TOKENS = 100_000_000
_MAX_EPOCHS = 100
# The beams with which a new and an old drafter are compared.
COMPARED_BEAMS = BeamShape(4, 5)
# In the job folder of a training: the drafter's folder, the learning curve, and the comparison.
DRAFTER = "new-drafter"
CURVE = "curve.jsonl"
RESULT = "result.json"
# Phases of the training process besides those of `Phase`: the first and the last.
LOADING = "load"
COMPARING = "compare"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a training.

    Attributes:
        epochs: Passes over the data.
        batch: Roots of a step; see `Trainer`.
        learning_rate: The highest rate: it rises linearly over `warm_up` steps, then falls to 0 as a cosine.
        warm_up: Steps until the highest rate.
        weight_decay: Weight decay of AdamW, for all weights.
        clip: Largest norm of a gradient.
        dropout: Share of each layer's inputs that is dropped.
        steps: Tokens drafted after the root.
        step_decay: Factor on the loss of each further token, since fewer drafts reach it.
        vocabulary: Limit of the tokens that can be drafted; at most 2**16.
        seed: Seed of all random draws.
    """

    epochs: int = 2
    batch: int = 128
    learning_rate: float = 3.5e-4
    warm_up: int = 100
    weight_decay: float = 0.05
    clip: float = 1.0
    dropout: float = 0.2
    steps: int = 4
    step_decay: float = 0.8
    vocabulary: int = 12288
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training.

    Attributes:
        out: Folder of the drafter.
        tokens: Answer tokens to train on.
        seed: Seed of all random draws.
        prompts: The person's own questions, mixed with the built-in ones.
        chat_questions: More of them, from stored chats; the card says that there were some. A resumed training uses
            those it began with.
        sequences: Conversations decoded in one batch; fewer where memory is short.
        recipe: The hyperparameters.
        anyway: Whether to begin even if memory seems too small.

    Raises:
        InvalidSettingError: If a number is out of range.
    """

    out: Path
    tokens: int = DEFAULT_TOKENS
    seed: int = 0
    prompts: tuple[str, ...] = ()
    chat_questions: tuple[str, ...] = ()
    sequences: int = 128
    recipe: Recipe = field(default_factory=Recipe)
    anyway: bool = False

    def __post_init__(self) -> None:
        bounds = f"from {_MIN_TOKENS:,} to {_MAX_TOKENS:,}"
        require(_MIN_TOKENS <= self.tokens <= _MAX_TOKENS, "tokens", self.tokens, bounds)
        require(0 <= self.seed < 2**31, "seed", self.seed, "from 0 to 2**31 - 1")
        epochs = self.recipe.epochs
        require(1 <= epochs <= _MAX_EPOCHS, "epochs", epochs, f"from 1 to {_MAX_EPOCHS}")


@dataclass(frozen=True, slots=True)
class TrainingOrder:
    """The drafter to train, and its data.

    Attributes:
        model: An argument of `Engine.load`; None is the default model.
        name: The model's name, for people.
        tokens: Answer tokens to train on.
        with_chats: Whether the first questions of the person's chats are mixed in.
        dtype: Precision to load the model in.
        old: The drafter in use, a folder or hub id, to compare with; None for the one made for the model, if any.
        seed: Seed of all random draws.
    """

    model: str | None
    name: str
    tokens: int = DEFAULT_TOKENS
    with_chats: bool = False
    dtype: str = "auto"
    old: str | None = None
    seed: int = 0


class Phase(StrEnum):
    """The phases of a training, in order."""

    DATA = "data"
    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    WRITE = "write"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a training.

    Attributes:
        phase: A `Phase`, LOADING or COMPARING.
        fraction: Finished share of the phase, from 0 to 1; None if it is unknown.
        tokens_per_second: Answer tokens a second since the phase began or was resumed. In DATA those that the model
            wrote, in TRAIN those after which a draft was trained (the roots of the batches), in COMPARING those that
            were decoded. None where it is not measured.
        loss: Mean loss over the last steps, in nats; None in other phases.
        accuracy: Share of correct tokens at each draft position of held-out answers, given that all earlier ones were
            correct; empty where it was not measured.
        left_s: Seconds until the phase ends, at this speed; None if unknown.
        text: A sentence, or the name of a step.
        memory_bytes: Memory of the process; 0 if it was not measured.
    """

    phase: str
    fraction: float | None
    tokens_per_second: float | None = None
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    left_s: float | None = None
    text: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """Facts about a training that starts or resumes.

    Attributes:
        data_folder: Folder of the training data.
        model_folder: Folder of the model.
        resumed: Whether it continues with earlier data.
        disk_bytes: Limit of the disk space for the data.
        memory_bytes: Limit of the memory of the training process, with the model.
    """

    data_folder: str
    model_folder: str
    resumed: bool
    disk_bytes: int
    memory_bytes: int


def event_from(data: dict[str, Any]) -> TrainingProgress | TrainingStart:
    """Undo `asdict`; see `plain`."""
    return plain(TrainingStart, data) if "data_folder" in data else plain(TrainingProgress, data)


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """Tokens per target call on one group of questions, or on `all`; None where nothing was decoded."""

    group: str
    new: float | None
    old: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A new drafter compared with the one that was used before, both measured by decoding.

    Attributes:
        groups: Figures by group of prompts.
        old: Name of the old drafter; empty without one.
        problem: Why the old drafter could not be measured; empty if it could, or without one.
    """

    groups: tuple[ComparedGroup, ...]
    old: str = ""
    problem: str = ""
