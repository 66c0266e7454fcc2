"""What a recurrent head learns: answers, teacher and distillation loss, on single roots. `phases.Trainer` trains it.

At answer token i the head gets the hidden state from which token i was chosen, and token i as its root; it predicts
tokens i+1, i+2, ... User tokens are never predicted.

The loss is a distillation of the target's top-k tokens. For features f and output rows E the cross entropy with the
target's probabilities p is `log Z(f) - sum_i p_i E_i f`. The softmax denominator Z sums over all of the draft
vocabulary.

While a head trains, its inputs and output rows are whitened: hidden states and embeddings are standardised per
dimension, and output rows are scaled to a unit second moment. Without that, training stops at the accuracy of word
frequencies, because a few dimensions are a hundred times larger than the others. Both are linear, so `fold_weights`
rewrites the trained head for plain inputs and rows.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten, tree_map

from rdchat.inference.api import Phase, Recipe, TrainingProgress
from rdchat.inference.device import fetch
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import published
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.samples import (
    Answers,
    Halves,
    Ints,
    StateWindows,
    Teacher,
    draft_vocabulary,
)
from rdchat.inference.verification import TargetEmbeddings

# Lower limit of a scale as a share of the largest, so that constant dimensions are not blown up.
_SMALLEST_SCALE = 1e-3
# Hidden states from which the standardisation is measured.
_MEASURED_STATES = 20_000
# Held-out roots drafted from while training.
_LOOKED_AT = 8192
# Held-out roots drafted from at a time.
_ROWS = 512
# Decoding is the same within its scatter from 1.0 to 1.4 (docs/adr/0003).
_INVERSE_TEMPERATURE = 1.2
# Size of the initial output layer, so that logits begin near 0.
_FIRST_OUTPUT = 0.1
Roots = npt.NDArray[np.integer]
"""(n,) roots. A root is the last token before a draft, given as an index among all answer tokens."""
Inputs = tuple[mx.array, mx.array]
"""(n, width) float32: the hidden states from which roots were chosen; (n, steps) int32: roots and the tokens after
them, without the last one to predict."""


@dataclass(frozen=True, slots=True)
class Standardization:
    """`(x - mean) / scale`, per dimension; both (width,) float32."""

    mean: mx.array
    scale: mx.array

    @classmethod
    def measure(
        cls, rows: npt.NDArray[np.floating], weights: npt.NDArray[np.number] | None = None
    ) -> "Standardization":
        """Measure mean and standard deviation of (n, width) rows, weighted with (n,) if given."""
        mean = np.average(rows, axis=0, weights=weights)
        scale = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
        scale = np.maximum(scale, _SMALLEST_SCALE * scale.max())
        return cls(mx.array(mean.astype(np.float32)), mx.array(scale.astype(np.float32)))

    def __call__(self, rows: mx.array) -> mx.array:
        return (rows - self.mean) / self.scale


@dataclass(frozen=True, slots=True)
class Whitening:
    """The whitening of one training; all arrays float32.

    Attributes:
        hidden: Standardises hidden states, (..., input_size).
        embeddings: Standardises token embeddings, (..., hidden_size).
        table: (vocabulary, hidden_size): the standardised embeddings of all tokens.
        preconditioner: (hidden_size, hidden_size), symmetric: see `output_preconditioner`.
        rows: (candidates, hidden_size): the draft vocabulary's output rows times the preconditioner.
    """

    hidden: Standardization
    embeddings: Standardization
    table: mx.array
    preconditioner: mx.array
    rows: mx.array

    @classmethod
    def measure(
        cls,
        states: npt.NDArray[np.floating],
        table: npt.NDArray[np.floating],
        counts: npt.NDArray[np.integer],
        rows: npt.NDArray[np.floating],
    ) -> "Whitening":
        """Measure mean, scale and second moment.

        Args:
            states: (n, input_size) a sample of hidden states.
            table: (vocabulary, hidden_size) token embeddings.
            counts: (vocabulary,) how often each token is read.
            rows: (candidates, hidden_size) output rows of the draft vocabulary.
        """
        embeddings = Standardization.measure(table, counts)
        preconditioner = output_preconditioner(rows)
        embedded = embeddings(mx.array(table))
        result = cls(
            Standardization.measure(states), embeddings, embedded, preconditioner, mx.array(rows) @ preconditioner
        )
        mx.eval(result.table, result.rows)
        return result


def output_preconditioner(rows: npt.NDArray[np.floating]) -> mx.array:
    """Return P, (width, width) float32 and symmetric, such that `rows @ P` has a second moment of 1: (E'E / n)^(-1/2).

    Args:
        rows: (n, width) output rows of the draft vocabulary.
    """
    values, vectors = np.linalg.eigh(rows.T.astype(np.float64) @ rows / len(rows))
    values = np.maximum(values, _SMALLEST_SCALE**2 * values.max())
    return mx.array(((vectors / np.sqrt(values)) @ vectors.T).astype(np.float32))


def fold_weights(head: RecurrentHead, whitening: Whitening) -> RecurrentHead:
    """Return a head whose logits on plain inputs equal those of `head` on whitened ones.

    Args:
        head: Trained with this whitening; it has an input layer, a cell with weights, and tied output.
        whitening: From `Whitening.measure`.
    """
    weights = dict(tree_flatten(head.parameters()))
    for name, inputs in (("from_hidden", whitening.hidden), ("from_token", whitening.embeddings)):
        read = weights[f"{name}.weight"]
        weights[f"{name}.bias"] = weights[f"{name}.bias"] + read @ (-inputs.mean / inputs.scale)
        weights[f"{name}.weight"] = read * (1 / inputs.scale)
    for name in ("output.weight", "output.bias"):
        weights[name] = whitening.preconditioner @ weights[name]
    made = RecurrentHead(head.config)
    made.load_weights(list(weights.items()))
    mx.eval(made.parameters())
    return made


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
        embeddings: Its tables of embeddings and output rows.
        curve: The logits of products of hidden states and output rows; see `LogitCurve`.
        vocabulary_size: Number of its tokens.
    """

    embeddings: TargetEmbeddings
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]]
    vocabulary_size: int


class Goals(NamedTuple):
    """The distributions to predict after some roots."""

    columns: mx.array
    """(roots, steps, TEACHER_TOKENS) int32: the teacher's top-k tokens, as indices into the draft vocabulary."""
    probs: mx.array
    """(roots, steps, TEACHER_TOKENS) float32: their probabilities."""
    weights: mx.array
    """(roots, steps) float32: 1, but 0 after the answer's end and from the first token on that cannot be drafted."""


class Objective:
    """Data, loss and head of one training. Call `read_data` first; it also makes the head.

    Args:
        target: The target model.
        conversations: The data.
        windows: Their hidden states, of which the first columns are the trunk's.
        recipe: The hyperparameters.
        layers: Layers of the target that the head reads, after the trunk's output.

    Attributes:
        roots: The roots of each window to train on.
        held_out: (n,) int64: roots of held-out answers at temperature 0.
        answers: All answers, end to end.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (vocabulary size,) int32: how often each token occurs in the answers.
        draftable: (answer tokens,) bool: whether the token is in `vocabulary`.
        rows: (candidates, width) float32: the target's output rows of the draft vocabulary.
        teacher: The target's top-k at each answer token.
        network: The weights that are trained; made by `read_data`.
        whitening: Of the head's inputs and output rows while it trains; made by `read_data`.
    """

    network: RecurrentHead
    whitening: Whitening

    def __init__(
        self,
        target: Target,
        conversations: Sequence[TrainingConversation],
        windows: StateWindows,
        recipe: Recipe,
        layers: tuple[int, ...],
    ) -> None:
        self.target = target
        self.recipe = recipe
        self.layers = layers
        self.windows = windows
        self.answers = Answers.concatenate(conversations)
        self.vocabulary = draft_vocabulary(self.answers, recipe.vocabulary)
        self.counts = np.bincount(self.answers.tokens, minlength=target.vocabulary_size).astype(np.int32)
        self.draftable = np.isin(self.answers.tokens, self.vocabulary)
        self.rows = target.embeddings.output_rows(mx.array(self.vocabulary)).astype(mx.float32)
        self.teacher = Teacher(len(self.answers))
        self.roots: list[npt.NDArray[np.int64]] = []
        self.held_out = np.empty(0, np.int64)
        # Hidden states of `held_out`, in the same order, by window.
        self._held_out_states: list[Halves] = []
        self._decay = mx.array((recipe.step_decay ** np.arange(recipe.steps)).astype(np.float32))

    def read_data(self) -> Generator[TrainingProgress]:
        """Read all data once and make the head; yield progress after each conversation.

        Only one window's hidden states are in memory. So each window gives, while it is there: the teacher's tokens, a
        sample for the whitening, the held-out roots with their states, and the roots to train on. The head comes last.
        """
        draw = np.random.default_rng(0)
        measured = list[Halves]()
        for window in range(len(self.windows)):
            for share in self.windows.loading(window):
                yield TrainingProgress(Phase.PREPARE, (window + share) / len(self.windows))
            start, stop = self.windows.span(window)
            states = self.windows.read_states(window)
            self.teacher.fill(start, states[:, : self.rows.shape[1]], self.rows, self.target.curve)
            # The window's share of the measured states, rounded up.
            share_of_window = -(-_MEASURED_STATES * (stop - start) // len(self.answers))
            measured.append(states[draw.permutation(stop - start)[:share_of_window]])
            # Of the held-out roots those at temperature 0, until there are enough of all windows.
            held_out = self.roots_between(start, stop, held_out=True)
            held_out = held_out[self.answers.greedy[held_out]][: _LOOKED_AT - len(self.held_out)]
            self.held_out = np.concatenate([self.held_out, held_out])
            self._held_out_states.append(states[held_out - start])
            self.roots.append(self.roots_between(start, stop, held_out=False))
        self._make_head(np.concatenate(measured).astype(np.float32))

    def roots_between(self, start: int, stop: int, *, held_out: bool) -> npt.NDArray[np.int64]:
        """Return (n,) int64: the tokens from `start` to `stop` that are not the last of their answer.

        They are only those of held-out answers, or only those of the others.
        """
        here = slice(start, stop)
        return start + np.flatnonzero((self.answers.left[here] > 0) & (self.answers.held_out[here] == held_out))

    def _make_head(self, measured: npt.NDArray[np.float32]) -> None:
        """Make an untrained head and its whitening, from (n, width) hidden states."""
        embeddings = self.target.embeddings
        table = fetch(embeddings.embed(mx.arange(self.target.vocabulary_size)).astype(mx.float32))
        self.whitening = Whitening.measure(measured, table, self.counts, fetch(self.rows))
        mx.random.seed(self.recipe.seed)
        width = embeddings.width
        config = HeadConfig(width, len(self.vocabulary), width, width, target_layers=self.layers)
        head = RecurrentHead(config)
        self.network = head
        head.output.weight = head.output.weight * _FIRST_OUTPUT
        # Dropout leaves out the recurrence, where errors would add up.
        drop_inputs(
            (head.from_token, head.from_hidden, head.from_state, *head.blocks, head.output), self.recipe.dropout
        )

    def goals(self, roots: Roots) -> Goals:
        """Return what to predict after some roots, (n,)."""
        ahead, inside = self._ahead(roots)
        reached = np.logical_and.accumulate(inside & self.draftable[ahead], axis=1)
        columns = self.teacher.columns[ahead].astype(np.int32)
        probs = self.teacher.probs[ahead].astype(np.float32)
        return Goals(mx.array(columns), mx.array(probs), mx.array(reached.astype(np.float32)))

    def next_tokens(self, roots: Roots) -> Ints:
        """Return (n, steps) the tokens after each root; -1 after the answer's end."""
        ahead, inside = self._ahead(roots)
        return np.where(inside, self.answers.tokens[ahead], -1).astype(np.int32)

    def _ahead(self, roots: Roots) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]:
        """Return (n, steps): the indices after each root, and whether they belong to its answer.

        Behind the last of all tokens the last index is repeated; it does not belong to the answer then.
        """
        steps = np.arange(1, self.recipe.steps + 1)
        return np.minimum(np.add.outer(roots, steps), len(self.answers) - 1), steps <= self.answers.left[roots][:, None]

    def loss(self, inputs: Inputs, goals: Goals) -> mx.array:
        """Return () float32: the mean loss of some drafts, in nats; later positions weigh less."""
        losses = distillation(self.features(*inputs), self.whitening.rows, goals.columns, goals.probs)
        return weighted_mean(losses, goals.weights * self._decay)

    def accuracy(self) -> tuple[float, ...]:
        """Return the share of correct tokens by position of held-out drafts, where all earlier ones are correct."""
        self.network.eval()
        # By position: drafts that are correct up to there, and those that are correct before it in answers that go on.
        right, reached = np.zeros((2, self.recipe.steps))
        for roots, inputs in self.held_out_inputs():
            guesses = fetch(mx.argmax(self.features(*inputs) @ self.whitening.rows.T, axis=-1))
            # After the answer's end the goal is -1.
            goals = self.next_tokens(roots)
            hits = np.logical_and.accumulate(self.vocabulary[guesses] == goals, axis=1)
            right += hits.sum(axis=0)
            reached[0] += (goals[:, 0] >= 0).sum()
            reached[1:] += (hits[:, :-1] & (goals[:, 1:] >= 0)).sum(axis=0)
        self.network.train()
        return tuple((right / np.maximum(reached, 1)).tolist())

    def batch(self, window: int, roots: Roots) -> tuple[Inputs, Goals]:
        """Return the arguments of `loss` for some roots of a window."""
        states = self.windows.read_states(window)[roots - self.windows.span(window)[0]]
        return self.inputs(roots, states), self.goals(roots)

    def inputs(self, roots: Roots, states: Halves) -> Inputs:
        """Return the arguments of `features` for roots, (n,), with their hidden states, (n, width)."""
        path = np.minimum(np.add.outer(roots, np.arange(self.recipe.steps)), len(self.answers) - 1)
        return mx.array(states.astype(np.float32)), mx.array(self.answers.tokens[path])

    def features(self, hidden: mx.array, path: mx.array) -> mx.array:
        """Return (roots, steps, width): the head's features along the true tokens (teacher forcing)."""
        return unroll(self.network, self.whitening.hidden(hidden), self.whitening.table[path])

    def held_out_inputs(self) -> Iterator[tuple[Roots, Inputs]]:
        """Yield some held-out roots at a time, with the arguments of `features` for them."""
        states = np.concatenate(self._held_out_states)
        for start in range(0, len(self.held_out), _ROWS):
            roots = self.held_out[start : start + _ROWS]
            yield roots, self.inputs(roots, states[start : start + _ROWS])

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """Return the trained head for storing: bound to its target, in float16, which loses no acceptance."""
        head = fold_weights(self.network, self.whitening)
        head.update(tree_map(lambda array: array.astype(mx.float16), head.parameters()))
        mx.eval(head.parameters())
        head.config = replace(head.config, inverse_temperature=_INVERSE_TEMPERATURE)
        return published(head, mx.array(self.vocabulary), binding)
