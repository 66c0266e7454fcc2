"""Trains a head of any kind, resumable to the step, on an objective: answers, teacher and distillation loss.

The loss is a distillation of the target's top-k tokens. For features f and output rows E the cross entropy with the
target's probabilities p is `log Z(f) - sum_i p_i E_i f`. The softmax denominator Z sums over all of the draft
vocabulary.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.heads.samples import (
    Answers,
    Halves,
    Ints,
    LogitCurve,
    StateWindows,
    Teacher,
    draft_vocabulary,
)
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings


class DroppingLinear(nn.Linear):
    """A linear layer that drops some of its inputs while training; its weights have the same names."""

    dropout = 0.0

    def __call__(self, x: mx.array) -> mx.array:
        if self.training and self.dropout:
            share = 1 - self.dropout
            x = x * mx.random.bernoulli(share, x.shape) / share
        result: mx.array = super().__call__(x)
        return result


def drop_inputs(modules: Iterable[nn.Linear], dropout: float) -> None:
    """Make linear layers drop some of their inputs while training."""
    kind = type("DroppingLinear", (DroppingLinear,), {"dropout": dropout})
    for module in modules:
        module.__class__ = kind


def unroll(head: RecurrentHead, hidden: mx.array, embeddings: mx.array) -> mx.array:
    """Return the head's features along the given tokens, not along its own draft (teacher forcing).

    Args:
        head: The drafter's.
        hidden: (batch, input_size) float: the target's hidden state from which each root was chosen.
        embeddings: (batch, steps, hidden_size) float: of the root and the tokens after it.

    Returns:
        (batch, steps, width): the features from which each next token is predicted.
    """
    context = head.context(hidden)
    state = head.initial_state((hidden.shape[0],), hidden.dtype)
    features = []
    for step in range(embeddings.shape[1]):
        state = head.advance(state, embeddings[:, step])
        features.append(head.features(context, state))
    return mx.stack(features, axis=1)


def distillation(features: mx.array, rows: mx.array, columns: mx.array, probs: mx.array) -> mx.array:
    """Return the cross entropy of each position, in nats.

    Args:
        features: (..., width).
        rows: (vocabulary, width) output rows of the draft vocabulary.
        columns: (..., k) int32: the target's top-k tokens, as indices into `rows`.
        probs: (..., k) float32: their probabilities, which sum to 1.

    Returns:
        (...) float32.
    """
    logits = features @ rows.T
    return mx.logsumexp(logits, axis=-1) - mx.sum(mx.take_along_axis(logits, columns, axis=-1) * probs, axis=-1)


def weighted_mean(losses: mx.array, weights: mx.array) -> mx.array:
    """Return () float32: the mean loss in nats weighted with `weights`, of the same shape; 0 where all are 0."""
    return mx.sum(losses * weights) / mx.maximum(mx.sum(weights), 1)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of the target, besides hidden states, that training needs.

    Attributes:
        curve: The logits of products of hidden states and output rows; see `LogitCurve`.
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
        conversations: The conversations.
        read_states: Yields the states of some conversations; see `StateWindows`. The first columns are the trunk's.
        window_tokens: Tokens whose hidden states are in memory at a time.
    """

    conversations: Sequence[TrainingConversation]
    read_states: Callable[[range], Iterable[tuple[int, Halves]]]
    window_tokens: int


class Goals(NamedTuple):
    """The distributions to predict after some roots."""

    columns: mx.array
    """(roots, steps, TEACHER_TOKENS) int32: the teacher's top-k tokens, as indices into the draft vocabulary."""
    probs: mx.array
    """(roots, steps, TEACHER_TOKENS) float32: their probabilities."""
    weights: mx.array
    """(roots, steps) float32: 1, but 0 after the answer's end and from the first token on that cannot be drafted."""


class Objective(ABC):
    """Data, loss and head of one training. Call `prepare` first; it also makes the head.

    A root is the last token before a draft, given as an index among all answer tokens.

    Args:
        target: The target model.
        data: The data.
        recipe: The hyperparameters.
        layers: Layers of the target that the head reads, after the trunk's output.

    Attributes:
        samples: Numbers of the samples of each window.
        answers: All answers, end to end.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (vocabulary size,) int32: how often each token occurs in the answers.
        draftable: (answer tokens,) bool: whether the token is in `vocabulary`.
        rows: (candidates, width) float32: the target's output rows of the draft vocabulary.
        output_rows: (candidates, width) float32: their products with features are logits.
        teacher: The target's top-k at each answer token.
        windows: The hidden states.
        compiled: Whether all batches have the same shapes, so that a step can be compiled.
        network: The weights that are trained.
        tokens_per_step: Answer tokens of a step, on average.
    """

    licence: ClassVar[str]
    compiled: ClassVar[bool] = False
    network: nn.Module
    output_rows: mx.array
    tokens_per_step: float

    def __init__(self, target: Target, data: TrainingData, recipe: Recipe, layers: tuple[int, ...]) -> None:
        self.target, self.recipe, self.layers = target, recipe, layers
        self.conversations = data.conversations
        self.answers = Answers.of(self.conversations)
        self.vocabulary = draft_vocabulary(self.answers, recipe.vocabulary)
        self.counts = np.bincount(self.answers.tokens, minlength=target.vocabulary_size).astype(np.int32)
        self.draftable = np.isin(self.answers.tokens, self.vocabulary)
        self.rows = target.embeddings.output_rows(mx.array(self.vocabulary)).astype(mx.float32)
        self.teacher = Teacher.blank(len(self.answers), len(self.vocabulary))
        tokens = [self.used_tokens(item) for item in data.conversations]
        self.windows = StateWindows(tokens, data.read_states, data.window_tokens)
        self.samples: list[npt.NDArray[np.integer]] = []
        self.answer_starts = [0, *accumulate(len(item.answer) for item in self.conversations)]
        self._decay = mx.array((recipe.step_decay ** np.arange(recipe.steps)).astype(np.float32))

    def prepare(self) -> Generator[TrainingProgress]:
        """Read all data once and make the head; yield progress after each conversation."""
        for window in range(len(self.windows)):
            for share in self.windows.loading(window):
                yield TrainingProgress(Phase.PREPARE, (window + share) / len(self.windows))
            start = self.answer_starts[self.windows.conversations(window).start]
            self.teacher.fill(start, self.trunk_states(window), self.rows, self.target.curve)
            self.samples.append(self.measure(window))
        self.make_head()

    def goals(self, roots: npt.NDArray[np.integer]) -> Goals:
        """Return what to predict after some roots, (n,)."""
        ahead, inside = self._ahead(roots)
        reached = np.logical_and.accumulate(inside & self.draftable[ahead], axis=1)
        columns, probs = self.teacher.columns[ahead].astype(np.int32), self.teacher.probs[ahead].astype(np.float32)
        return Goals(mx.array(columns), mx.array(probs), mx.array(reached.astype(np.float32)))

    def next_tokens(self, roots: npt.NDArray[np.integer]) -> Ints:
        """Return (n, steps) the tokens after each root; -1 after the answer's end."""
        ahead, inside = self._ahead(roots)
        return np.where(inside, self.answers.tokens[ahead], -1).astype(np.int32)

    def _ahead(self, roots: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]:
        """Return (n, steps): the indices after each root, and whether they belong to its answer."""
        steps = np.arange(1, self.recipe.steps + 1)
        return np.minimum(np.add.outer(roots, steps), len(self.answers) - 1), steps <= self.answers.left[roots][:, None]

    def loss(self, inputs: tuple[Any, ...], goals: Goals) -> mx.array:
        """Return () float32: the mean loss of some drafts, in nats; later positions weigh less."""
        losses = distillation(self.features(*inputs), self.output_rows, goals.columns, goals.probs)
        return weighted_mean(losses, goals.weights * self._decay)

    def accuracy(self) -> tuple[float, ...]:
        """Return the share of correct tokens by position of held-out drafts, where all earlier ones are correct."""
        self.network.eval()
        right, reached = np.zeros((2, self.recipe.steps))
        for roots, inputs in self.held_out_inputs():
            guesses = fetch(mx.argmax(self.features(*inputs) @ self.output_rows.T, axis=-1))
            # After the answer's end the goal is -1.
            goals = self.next_tokens(roots)
            hits = np.logical_and.accumulate(self.vocabulary[guesses] == goals, axis=1)
            right += hits.sum(axis=0)
            reached[0] += (goals[:, 0] >= 0).sum()
            reached[1:] += (hits[:, :-1] & (goals[:, 1:] >= 0)).sum(axis=0)
        self.network.train()
        return tuple((right / np.maximum(reached, 1)).tolist())

    @staticmethod
    @abstractmethod
    def used_tokens(item: TrainingConversation) -> range:
        """Return the tokens of a conversation whose hidden states are used."""

    @abstractmethod
    def trunk_states(self, window: int) -> Halves:
        """Return (answer tokens, width): the trunk's states from which a window's answer tokens were chosen."""

    @abstractmethod
    def measure(self, window: int) -> npt.NDArray[np.integer]:
        """Measure a window and set held-out answers aside; return the numbers of the samples to train on."""

    @abstractmethod
    def make_head(self) -> None:
        """Make `network` and `output_rows`, after all windows are measured."""

    @abstractmethod
    def batch(self, window: int, numbers: Ints) -> tuple[tuple[Any, ...], Goals]:
        """Return the arguments of `loss` for some samples."""

    @abstractmethod
    def features(self, *inputs: Any) -> mx.array:
        """Return (roots, steps, width): the head's features along the true tokens (teacher forcing)."""

    @abstractmethod
    def held_out_inputs(self) -> Iterator[tuple[npt.NDArray[np.integer], tuple[Any, ...]]]:
        """Yield some held-out roots at a time, with the arguments of `features` for them."""

    @abstractmethod
    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """Return the trained head for storing: bound to its target, with float16 weights."""


class Trainer:
    """Trains one head. An epoch goes through the windows of the data in random order.

    Args:
        objective: The objective, prepared.
        recipe: The hyperparameters.

    Attributes:
        step: Steps done.
        total: Steps of the training.
    """

    def __init__(self, objective: Objective, recipe: Recipe) -> None:
        self.objective = objective
        self._recipe = recipe
        # Samples that do not fill a batch wait for another epoch.
        self._steps = [max(len(each) // recipe.batch, min(len(each), 1)) for each in objective.samples]
        self.step, self.total = 0, recipe.epochs * sum(self._steps)
        self._optimizer = optim.AdamW(self._learning_rate, weight_decay=recipe.weight_decay, bias_correction=True)
        self._optimizer.init(objective.network.trainable_parameters())
        self._compile()

    def run(self) -> Iterator[float | None]:
        """Train from the current step to the end; yield the loss of each step, in nats, and None while data is read."""
        for step, window, numbers in self._batches():
            for _ in self.objective.windows.loading(window):
                yield None
            mx.random.seed((self._recipe.seed << 32) + step)
            loss = self._update(*self.objective.batch(window, numbers))
            mx.eval(self._state, loss)
            self.step = step + 1
            yield float(loss)

    def save(self, path: Path) -> None:
        """Write weights, optimiser state and step; see `atomic_file`."""
        parameters = self.objective.network.parameters()
        tensors = dict(tree_flatten({"head": parameters, "optimizer": self._optimizer.state}))
        with atomic_file(path) as temporary:
            mx.save_safetensors(str(temporary), tensors, {"step": str(self.step)})

    def restore(self, path: Path) -> None:
        """Continue from a file written by `save`."""
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, facts = loaded
        state: Any = tree_unflatten(list(tensors.items()))
        self.objective.network.update(state["head"])
        self._optimizer.state = state["optimizer"]
        self.step = int(facts["step"])
        self._compile()

    def _learning_rate(self, step: mx.array) -> mx.array:
        """Return the rate: it rises linearly over the warm-up, then falls to 0 as a cosine."""
        rise = mx.minimum((step + 1) / self._recipe.warm_up, 1)
        fall = 0.5 * (1 + mx.cos(math.pi * mx.minimum(step / self.total, 1)))
        return self._recipe.learning_rate * rise * fall

    def _batches(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the number, the window and the samples of each remaining step."""
        step, size = 0, self._recipe.batch
        for epoch in range(self._recipe.epochs):
            draw = np.random.default_rng([self._recipe.seed, epoch])
            for window in draw.permutation(len(self._steps)).tolist():
                order = draw.permutation(self.objective.samples[window])
                for start in range(0, self._steps[window] * size, size):
                    if step >= self.step:
                        yield step, window, order[start : start + size]
                    step += 1

    def _compile(self) -> None:
        self._state = [self.objective.network.state, self._optimizer.state, mx.random.state]
        self._update = self._apply
        if self.objective.compiled:
            self._update = partial(mx.compile, inputs=self._state, outputs=self._state)(self._apply)

    def _apply(self, *batch: Any) -> mx.array:
        """Take one optimiser step; return the loss."""
        objective = self.objective
        loss: mx.array
        loss, gradients = nn.value_and_grad(objective.network, objective.loss)(*batch)
        clipped, _ = optim.clip_grad_norm(gradients, self._recipe.clip)
        self._optimizer.update(objective.network, clipped)
        return loss
