"""Whitening of a head's inputs and output rows while it trains.

Hidden states and embeddings are standardised per dimension, and output rows are scaled to a unit second moment. Without
that, training stops at the accuracy of word frequencies, because a few dimensions are a hundred times larger than the
others. Both are linear, so `fold_weights` rewrites the trained head for plain inputs and rows.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead

# Lower limit of a scale as a share of the largest, so that constant dimensions are not blown up.
_SMALLEST_SCALE = 1e-3


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
