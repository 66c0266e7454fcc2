"""What a training knows of the kind of head that it trains."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import mlx.nn as nn

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.training_progress import StepReport, TrainingProgress

Shards = Sequence[Sequence[TrainingConversation]]


class Learner(Protocol):
    """A head in training, with its prepared data: resumable to the step.

    Attributes:
        step: Steps done.
        total: Steps there will be.
        samples: Answer tokens of a step, on average.
    """

    step: int
    total: int
    samples: float

    @property
    def network(self) -> nn.Module:
        """What is trained; a checkpoint that has other names or shapes is of another head."""

    def run(self, every: int = 20) -> Iterator[StepReport]:
        """Train to the end from where it stands; report after every `every` steps and at the end."""

    def save(self, path: Path) -> None:
        """Write weights, optimiser state and step, all or nothing; see `atomic_file`."""

    def restore(self, path: Path) -> None:
        """Continue from what `save` wrote."""

    def accuracy(self) -> tuple[float, ...]:
        """Return the share of right tokens at each place of drafts in held-out answers, given that all before were."""

    def finished(self) -> PublishedDrafter:
        """Return the trained head as it is written, bound to its target, its weights in float16."""


class HeadTraining(Protocol):
    """One kind of head.

    Attributes:
        licence: A sentence for the card: whether it holds weights of the target.
        read_once: The hidden states of so many tokens, questions included, are computed once; those of more data are
            computed once to prepare, and again in every epoch.
    """

    licence: str
    read_once: float

    def prepare(self, shards: Shards, kept: Path | None = None) -> Generator[TrainingProgress, None, Learner]:
        """Read all data once; return a fresh head on it.

        Args:
            shards: Their conversations, the first ones of the training's.
            kept: Folder for what is computed, so that an interruption costs little.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If what is kept cannot be written or read.
        """


def at_once(steps: Generator[TrainingProgress, None, Learner]) -> Learner:
    """Run a preparation to its end and return its result, without reporting progress."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            learner: Learner = end.value
            return learner
