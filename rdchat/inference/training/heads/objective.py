"""The objective of a training, of any kind of head: its data, prepared window by window, and its loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.loss import CandidateDraw
from rdchat.inference.training.heads.recipes import Recipe, SequenceRecipe
from rdchat.inference.training.heads.samples import (
    Answers,
    Halves,
    Ints,
    LogitCurve,
    StateWindows,
    Teacher,
    draft_vocabulary,
)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of the target model that training reads, beside hidden states.

    Attributes:
        embeddings: Token embeddings and output rows.
        curve: The logits from products of hidden states and output rows; see `LogitCurve`.
        vocabulary_size: Tokens of the model.
    """

    embeddings: TargetEmbeddings
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]]
    vocabulary_size: int

    @classmethod
    def of(cls, model: LoadedModel) -> "Target":
        """Measure a model whose hooks read its trunk's output first."""
        size = model.info.vocabulary_size
        embeddings = TargetEmbeddings(model.network, size)
        return cls(embeddings, LogitCurve.of(model, embeddings), size)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data of a training.

    Attributes:
        shards: The conversations.
        read_states: Returns the (tokens, width) hidden states of a shard; the first columns are the trunk's.
        window_tokens: Tokens whose hidden states are in memory together.
        candidates: Tokens that can be drafted, at most.
    """

    shards: Sequence[Sequence[TrainingConversation]]
    read_states: Callable[[int], Halves]
    window_tokens: int
    candidates: int


class Objective(ABC):
    """Data, loss and head of one training. `prepare` comes first; it makes the head as well.

    Args:
        target: The target model.
        data: The data.
        recipe: The hyperparameters.
        known: Ids that a head which is trained further could draft before; see `draft_vocabulary`.

    Attributes:
        network: The weights that are trained.
        samples: Numbers of the samples of each window.
        batch_size: Samples of a step.
        tokens_per_step: Answer tokens of a step, on average.
        answers: All answers, end to end.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (vocabulary size,) int32: how often each token occurs in the answers.
        rows: (candidates, width) float32: the target's output rows of the draft vocabulary.
        teacher: The target's top-k at each answer token.
        windows: The hidden states.
    """

    licence: ClassVar[str]
    compiled: ClassVar[bool] = False  # whether all batches have the same shapes, so that a step can be compiled
    network: nn.Module
    batch_size: int
    tokens_per_step: float

    def __init__(
        self, target: Target, data: TrainingData, recipe: Recipe | SequenceRecipe, known: Ints | None = None
    ) -> None:
        self.target = target
        self.conversations = list(chain.from_iterable(data.shards))
        self.answers = Answers.of(self.conversations)
        self.vocabulary = draft_vocabulary(self.answers, data.candidates, known)
        self.counts = np.bincount(self.answers.tokens, minlength=target.vocabulary_size).astype(np.int32)
        self.rows = target.embeddings.output_rows(mx.array(self.vocabulary)).astype(mx.float32)
        self.teacher = Teacher.blank(len(self.answers), len(self.vocabulary))
        counts = [sum(map(self.state_tokens, shard)) for shard in data.shards]
        self.windows = StateWindows(counts, data.read_states, data.window_tokens)
        self.samples: list[npt.NDArray[np.integer]] = []
        self._first_of_shard = [0, *accumulate(map(len, data.shards))]
        self._answer_starts = [0, *accumulate(len(item.answer) for item in self.conversations)]
        self._draw = CandidateDraw(self.counts[self.vocabulary], recipe.candidates, recipe.seed)
        self._decay = recipe.step_decay ** np.arange(recipe.steps)
        self._seed, self._steps = recipe.seed, recipe.steps

    def prepare(self, kept: Path | None = None) -> Generator[TrainingProgress]:
        """Read all data once and make the head; yield progress after each window.

        Args:
            kept: Folder for the teacher's top-k of each window, so that an interruption costs one window.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If a file cannot be written.
        """
        for window in range(len(self.windows)):
            part = self.teacher.part(*self.answer_span(self.inside(window)))
            states = partial(self.trunk_states, window)
            part.fill_or_read(kept, window, states, self.rows, self.target.curve)
            self.samples.append(self.measure(window))
            yield TrainingProgress(Phase.PREPARE, (window + 1) / len(self.windows))
        self.make_head()

    def inside(self, window: int) -> range:
        """Return the conversations of a window."""
        shards = self.windows.shards(window)
        return range(self._first_of_shard[shards.start], self._first_of_shard[shards.stop])

    def answer_span(self, conversations: range) -> tuple[int, int]:
        """Return the index of the first answer token of neighbouring conversations, and of the one after the last."""
        return self._answer_starts[conversations.start], self._answer_starts[conversations.stop]

    def accuracy(self) -> tuple[float, ...]:
        """Return the share of right tokens at each place of held-out drafts, given that all before were right."""
        self.network.eval()
        right, reached = np.zeros(self._steps), np.zeros(self._steps)
        for guesses, goals in self.held_out_drafts():
            hits = np.logical_and.accumulate(guesses == goals, axis=1)
            right += hits.sum(axis=0)
            reached[0] += (goals[:, 0] >= 0).sum()
            reached[1:] += (hits[:, :-1] & (goals[:, 1:] >= 0)).sum(axis=0)
        self.network.train()
        return tuple((right / np.maximum(reached, 1)).tolist())

    @staticmethod
    @abstractmethod
    def state_tokens(item: TrainingConversation) -> int:
        """Return the number of tokens of a conversation whose hidden states are read."""

    @abstractmethod
    def trunk_states(self, window: int) -> Halves:
        """Return (answer tokens, width): the trunk's states that a window's answer tokens were chosen from."""

    @abstractmethod
    def measure(self, window: int) -> npt.NDArray[np.integer]:
        """Measure a window, and set held-out answers aside; return the numbers of the samples to train on."""

    @abstractmethod
    def make_head(self) -> None:
        """Make `network`, once all windows were measured."""

    @abstractmethod
    def steps_in(self, window: int) -> int:
        """Return the number of steps of an epoch in a window."""

    @abstractmethod
    def batch(self, window: int, numbers: Ints, step: int) -> tuple[Any, ...]:
        """Return the arguments of `gradients` for some samples."""

    @abstractmethod
    def gradients(self, *batch: Any) -> tuple[Any, Any]:
        """Return the mean loss, in nats, and the gradients of the network's weights."""

    @abstractmethod
    def held_out_drafts(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield (roots, steps) tokens drafted along held-out answers, and the true ones; -1 after an answer's end."""

    @abstractmethod
    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """Return the trained head as it is stored, bound to its target, its weights in float16."""
