"""Training of a recurrent head on single roots.

At answer token i the head gets the hidden state from which token i was chosen, and token i as its root; it predicts
tokens i+1, i+2, ... User tokens are never predicted.

Inputs and output rows are whitened during training. Hidden states and embeddings are standardised per dimension, and
output rows are scaled to a unit second moment. Without that, training stops at the accuracy of word frequencies,
because a few dimensions are a hundred times larger than the others. Both are linear, so `fold_weights` rewrites the
trained head for plain inputs and rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten, tree_map

from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import published
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.heads.samples import Halves, Ints
from rdchat.inference.training.heads.trainer import Goals, Objective, Target, TrainingData, drop_inputs, unroll
from rdchat.inference.verification.fetch import fetch

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

Inputs = tuple[mx.array, mx.array]
"""(n, width) float32: the hidden states from which roots were chosen; (n, steps) int32: roots and the tokens after
them, without the last one to predict."""


@dataclass(frozen=True, slots=True)
class Standardization:
    """`(x - mean) / scale`, per dimension; both (width,) float32."""

    mean: mx.array
    scale: mx.array

    @classmethod
    def of(cls, rows: npt.NDArray[np.floating], weights: npt.NDArray[np.number] | None = None) -> "Standardization":
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
    def of(
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
        embeddings = Standardization.of(table, counts)
        preconditioner = output_preconditioner(rows)
        embedded = embeddings(mx.array(table))
        result = cls(Standardization.of(states), embeddings, embedded, preconditioner, mx.array(rows) @ preconditioner)
        mx.eval(result.table, result.rows)
        return result

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the standardised embeddings, (..., hidden_size), of token ids, (...)."""
        return self.table[tokens]


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
        whitening: From `Whitening.of`.
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


class RecurrentObjective(Objective):
    """Data, loss and head of a recurrent drafter's training.

    Attributes:
        held_out: (n,) int64: roots of held-out answers at temperature 0.
    """

    licence = "The head holds no weights of the target."
    compiled = True
    network: RecurrentHead
    whitening: Whitening

    def __init__(self, target: Target, data: TrainingData, recipe: Recipe, layers: tuple[int, ...]) -> None:
        super().__init__(target, data, recipe, layers)
        self.tokens_per_step = recipe.batch
        self._some: list[Halves] = []
        self.held_out = np.empty(0, np.int64)
        self._held_out_states: list[Halves] = []
        self._random = np.random.default_rng(0)

    @staticmethod
    def used_tokens(item: TrainingConversation) -> range:
        """See `Objective`: an answer's tokens were chosen from the states before them."""
        return range(item.answer_start - 1, len(item.tokens) - 1)

    def trunk_states(self, window: int) -> Halves:
        return self.windows.load(window)[:, : self.rows.shape[1]]

    def measure(self, window: int) -> npt.NDArray[np.integer]:
        """See `Objective`; samples are roots."""
        (start, stop), states = self.windows.span(window), self.windows.load(window)
        share = -(-_MEASURED_STATES * (stop - start) // len(self.answers))
        self._some.append(states[self._random.permutation(stop - start)[:share]])
        roots = self.roots(start, stop, held_out=True)
        roots = roots[self.answers.greedy[roots]][: _LOOKED_AT - len(self.held_out)]
        self.held_out = np.concatenate([self.held_out, roots])
        self._held_out_states.append(states[roots - start])
        return self.roots(start, stop, held_out=False)

    def roots(self, start: int, stop: int, *, held_out: bool) -> npt.NDArray[np.int64]:
        """Return (n,) int64: the tokens from `start` to `stop` that are not the last of their answer."""
        here = slice(start, stop)
        return start + np.flatnonzero((self.answers.left[here] > 0) & (self.answers.held_out[here] == held_out))

    def make_head(self) -> None:
        embeddings = self.target.embeddings
        table = fetch(embeddings.embed(mx.arange(self.target.vocabulary_size)).astype(mx.float32))
        measured = np.concatenate(self._some).astype(np.float32)
        self._some = []
        self.whitening = Whitening.of(measured, table, self.counts, fetch(self.rows))
        self.output_rows = self.whitening.rows
        mx.random.seed(self.recipe.seed)
        width = embeddings.width
        config = HeadConfig(width, len(self.vocabulary), width, width, target_layers=self.layers)
        self.network = head = RecurrentHead(config)
        head.output.weight = head.output.weight * _FIRST_OUTPUT
        # Dropout leaves out the recurrence, where errors would add up.
        drop_inputs(
            (head.from_token, head.from_hidden, head.from_state, *head.blocks, head.output), self.recipe.dropout
        )

    def batch(self, window: int, numbers: Ints) -> tuple[Inputs, Goals]:
        states = self.windows.load(window)[numbers - self.windows.span(window)[0]]
        return self.inputs(numbers, states), self.goals(numbers)

    def inputs(self, roots: npt.NDArray[np.integer], states: Halves) -> Inputs:
        """Return the arguments of `features` for roots, (n,), with their hidden states, (n, width)."""
        path = np.minimum(np.add.outer(roots, np.arange(self.recipe.steps)), len(self.answers) - 1)
        return mx.array(states.astype(np.float32)), mx.array(self.answers.tokens[path])

    def features(self, hidden: mx.array, path: mx.array) -> mx.array:
        return unroll(self.network, self.whitening.hidden(hidden), self.whitening.embed(path))

    def held_out_inputs(self) -> Iterator[tuple[npt.NDArray[np.integer], Inputs]]:
        states = np.concatenate(self._held_out_states)
        for start in range(0, len(self.held_out), _ROWS):
            roots = self.held_out[start : start + _ROWS]
            yield roots, self.inputs(roots, states[start : start + _ROWS])

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """See `Objective`; float16 was measured to lose no acceptance."""
        head = fold_weights(self.network, self.whitening)
        head.update(tree_map(lambda array: array.astype(mx.float16), head.parameters()))
        mx.eval(head.parameters())
        head.config = replace(head.config, inverse_temperature=_INVERSE_TEMPERATURE)
        return published(head, mx.array(self.vocabulary), binding)
