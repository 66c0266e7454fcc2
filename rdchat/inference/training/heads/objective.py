"""Base of the training objectives: answers, teacher, and the distillation loss, shared by all kinds of heads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, ClassVar, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.loss import CandidateDraw, Candidates, distillation, weighted_mean
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
    """The parts of the target model that training reads, beside hidden states."""

    embeddings: TargetEmbeddings
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]]  # see `LogitCurve`
    vocabulary_size: int

    @classmethod
    def of(cls, model: LoadedModel) -> "Target":
        """Measure a model whose hooks read its trunk's output first."""
        size = model.info.vocabulary_size
        embeddings = TargetEmbeddings(model.network, size)
        return cls(embeddings, LogitCurve.of(model, embeddings), size)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data of a training."""

    shards: Sequence[Sequence[TrainingConversation]]
    # returns the (tokens, width) hidden states of a shard; the first columns are the trunk's
    read_states: Callable[[int], Halves]
    window_tokens: int  # whose hidden states are in memory together
    candidates: int  # most tokens that can be drafted


class Goals(NamedTuple):
    """Distributions to predict at the places after some roots."""

    columns: mx.array
    """(roots, steps, TEACHER_TOKENS) int32: the teacher's top-k tokens, as indices into the draft vocabulary."""
    probs: mx.array
    """(roots, steps, TEACHER_TOKENS) float32: their probabilities."""
    weights: mx.array
    """(roots, steps) float32: 0 after the answer's end and from the first token on that cannot be drafted, else 1."""


class Objective(ABC):
    """Data, loss and head of one training. `prepare` comes first; it also makes the head.

    A root is the last token that a draft begins with. It is an index among all answer tokens.

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
        draftable: (answer tokens,) bool: whether the token is in `vocabulary`.
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
        self.draftable = np.isin(self.answers.tokens, self.vocabulary)
        self.rows = target.embeddings.output_rows(mx.array(self.vocabulary)).astype(mx.float32)
        self.teacher = Teacher.blank(len(self.answers), len(self.vocabulary))
        counts = [sum(map(self.state_tokens, shard)) for shard in data.shards]
        self.windows = StateWindows(counts, data.read_states, data.window_tokens)
        self.samples: list[npt.NDArray[np.integer]] = []
        self._first_of_shard = [0, *accumulate(map(len, data.shards))]
        self.answer_starts = [0, *accumulate(len(item.answer) for item in self.conversations)]
        by_frequency = np.argsort(-self.counts[self.vocabulary], kind="stable").astype(np.int32)
        self._draw = CandidateDraw(by_frequency, recipe.candidates, recipe.seed)
        self._decay = mx.array((recipe.step_decay ** np.arange(recipe.steps)).astype(np.float32))
        self._seed, self._steps = recipe.seed, recipe.steps

    def prepare(self) -> Generator[TrainingProgress]:
        """Read all data once and make the head; yield progress after each window."""
        for window in range(len(self.windows)):
            start = self.answer_starts[self.inside(window).start]
            self.teacher.fill(start, self.trunk_states(window), self.rows, self.target.curve)
            self.samples.append(self.measure(window))
            yield TrainingProgress(Phase.PREPARE, (window + 1) / len(self.windows))
        self.make_head()

    def inside(self, window: int) -> range:
        """Return the conversations of a window."""
        shards = self.windows.shards(window)
        return range(self._first_of_shard[shards.start], self._first_of_shard[shards.stop])

    def goals(self, roots: npt.NDArray[np.integer]) -> Goals:
        """Return the goals below some roots, (n,)."""
        ahead, inside = self._ahead(roots)
        reached = np.logical_and.accumulate(inside & self.draftable[ahead], axis=1)
        columns, probs = self.teacher.columns[ahead].astype(np.int32), self.teacher.probs[ahead].astype(np.float32)
        return Goals(mx.array(columns), mx.array(probs), mx.array(reached.astype(np.float32)))

    def next_tokens(self, roots: npt.NDArray[np.integer]) -> Ints:
        """Return (n, steps) the tokens that follow each root; -1 after the answer's end."""
        ahead, inside = self._ahead(roots)
        return np.where(inside, self.answers.tokens[ahead], -1).astype(np.int32)

    def _ahead(self, roots: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]:
        """Return (n, steps): the places after each root, and whether they belong to its answer."""
        steps = np.arange(1, self._steps + 1)
        return np.minimum(np.add.outer(roots, steps), len(self.answers) - 1), steps <= self.answers.left[roots][:, None]

    def loss(self, inputs: tuple[Any, ...], goals: Goals, drawn: Candidates | None) -> mx.array:
        """Return () float32: the mean loss of some drafts, in nats; later places weigh less."""
        losses = distillation(self.features(*inputs), self.output_rows(), goals.columns, goals.probs, drawn)
        return weighted_mean(losses, goals.weights * self._decay)

    def held_out_drafts(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield (roots, steps) tokens drafted along held-out answers, and the true ones; -1 after an answer's end."""
        for roots, inputs in self.held_out_inputs():
            guesses = mx.argmax(self.features(*inputs) @ self.output_rows().T, axis=-1)
            yield self.vocabulary[fetch(guesses)], self.next_tokens(roots)

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
    def batch(self, window: int, numbers: Ints, step: int) -> tuple[tuple[Any, ...], Goals, Candidates | None]:
        """Return the arguments of `loss` for some samples."""

    @abstractmethod
    def features(self, *inputs: Any) -> mx.array:
        """Return (roots, steps, width): the head's features along the true tokens (teacher forcing)."""

    @abstractmethod
    def output_rows(self) -> mx.array:
        """Return (candidates, width): their products with features are logits."""

    @abstractmethod
    def held_out_inputs(self) -> Iterator[tuple[npt.NDArray[np.integer], tuple[Any, ...]]]:
        """Yield some held-out roots at a time, and the arguments of `features` for them."""

    @abstractmethod
    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """Return the trained head as it is stored, bound to its target, its weights in float16."""
