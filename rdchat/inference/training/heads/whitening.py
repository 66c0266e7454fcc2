"""Whitening of a head's inputs and output rows while it is trained, and folding it into the weights afterwards.

Hidden states and embeddings are standardised per dimension, and the output rows are brought to a unit second moment.
Without that, training stops at the accuracy of word frequencies: a few dimensions are a hundred times larger than the
others. Both are linear, so `fold_weights` rewrites the trained head for inputs and rows that are not whitened.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from rdchat.inference.drafting.heads.recurrent_head import Cell, Output, RecurrentHead
from rdchat.inference.target.fetch import fetch

_SMALLEST_SCALE = 1e-3  # of the largest: directions in which nothing varies are not blown up


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
        """Measure the statistics.

        Args:
            states: (n, input_size) a sample of the hidden states.
            table: (vocabulary, hidden_size) token embeddings.
            counts: (vocabulary,) how often each token is read.
            rows: (candidates, hidden_size) output rows of the draft vocabulary.
        """
        embeddings = Standardization.of(table, counts)
        preconditioner = output_preconditioner(rows)
        whole = embeddings(mx.array(table))
        result = cls(Standardization.of(states), embeddings, whole, preconditioner, mx.array(rows) @ preconditioner)
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
    """Return the head whose logits on plain inputs are those of `head` on whitened ones.

    Args:
        head: Trained with this whitening; with an input layer, a cell with weights and tied output.
        whitening: As `Whitening.of` measured it.
    """
    hidden, embeddings = whitening.hidden, whitening.embeddings
    inputs = {"from_hidden": (-hidden.mean / hidden.scale, 1 / hidden.scale)}
    inputs["from_token"] = (-embeddings.mean / embeddings.scale, 1 / embeddings.scale)
    return _rewritten(head, inputs, whitening.preconditioner)


def unfold_weights(head: RecurrentHead, whitening: Whitening) -> RecurrentHead:
    """Return the head whose logits on whitened inputs are those of `head` on plain ones: `fold_weights` undone.

    Args:
        head: Folded; in any floating-point precision.
        whitening: Of the training to come, not of the one that the head comes from.

    Returns:
        A head in float32.
    """
    hidden, embeddings = whitening.hidden, whitening.embeddings
    inputs = {"from_hidden": (hidden.mean, hidden.scale), "from_token": (embeddings.mean, embeddings.scale)}
    inverse = np.linalg.inv(fetch(whitening.preconditioner).astype(np.float64)).astype(np.float32)
    return _rewritten(head, inputs, mx.array(inverse))


def _rewritten(head: RecurrentHead, inputs: dict[str, tuple[mx.array, mx.array]], output: mx.array) -> RecurrentHead:
    """Return a head in float32 for inputs that are moved and scaled, and for output rows times the inverse of `output`.

    Args:
        head: With an input layer, a cell with weights and tied output.
        inputs: For each input layer the (width,) shift and factor of what it reads.
        output: (hidden_size, hidden_size).
    """
    config = head.config
    assert config.project_input
    assert not config.input_rank
    assert config.cell is not Cell.SUM
    assert config.output is Output.TIED
    weights = {name: array.astype(mx.float32) for name, array in tree_flatten(head.parameters())}
    for name, (shift, factor) in inputs.items():
        read = weights[f"{name}.weight"]
        weights[f"{name}.bias"] = weights[f"{name}.bias"] + read @ shift
        weights[f"{name}.weight"] = read * factor
    for name in ("output.weight", "output.bias"):
        weights[name] = output @ weights[name]
    made = RecurrentHead(config)
    made.load_weights(list(weights.items()))
    mx.eval(made.parameters())
    return made
