"""The target's tables as a sequence head is trained with: frozen embeddings and output rows, whitened.

Inputs are divided by their root mean square, dimension by dimension, and output rows brought to a unit second moment:
without that, a few dimensions that are far larger than the others decide all (see `head.whitening`). Neither needs a
bias, which published layouts do not have: a mean that is left in is a constant input.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.head.whitening import output_preconditioner
from rdchat.inference.training.sequence_heads.preparation import PreparedSequences


@dataclass(frozen=True, slots=True)
class SharedTables:
    """What a head in training shares with its target; all arrays float32.

    Attributes:
        embed: Returns the embeddings, (..., hidden_size), of token ids, (...), as the head reads them.
        rows: (candidates, hidden_size) output rows of the draft vocabulary.
        preconditioner: (hidden_size, hidden_size), symmetric: `rows @ preconditioner` has a second moment of 1; the
            identity where nothing is whitened.
        input_scales: (features,) what the head's inputs are divided by.
        embedding_weights: (hidden_size,) weights of a norm that bring all dimensions of normalised embeddings to one
            size.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
    """

    embed: Callable[[mx.array], mx.array]
    rows: mx.array
    preconditioner: mx.array
    input_scales: mx.array
    embedding_weights: mx.array
    vocabulary: mx.array

    @classmethod
    def of(
        cls, embeddings: TargetEmbeddings, prepared: PreparedSequences, *, scale: float = 1.0, whiten: bool = True
    ) -> "SharedTables":
        """Measure them.

        Args:
            embeddings: The target's.
            prepared: The data.
            scale: Factor on embeddings; see `target.embeddings.embedding_scale`.
            whiten: Whether anything is changed; for comparison.
        """
        vocabulary = mx.array(prepared.vocabulary)
        rows = embeddings.output_rows(vocabulary).astype(mx.float32)
        width = embeddings.width

        def embed(tokens: mx.array) -> mx.array:
            return embeddings.embed(tokens).astype(mx.float32) * scale

        if not whiten:
            ones = mx.ones(prepared.scales.shape), mx.ones(width)
            return cls(embed, rows, mx.eye(width), *ones, vocabulary)
        seen = np.flatnonzero(prepared.counts)
        normal = fetch(mx.fast.rms_norm(embed(mx.array(seen)), None, 1e-6))
        weights = _inverse_sizes(normal, prepared.counts[seen])
        preconditioner = output_preconditioner(fetch(rows))
        tables = cls(embed, rows, preconditioner, mx.array(prepared.scales), mx.array(weights), vocabulary)
        mx.eval(tables.rows, tables.preconditioner)
        return tables


def first_output_scale(rows: mx.array) -> float:
    """Return the size of features, per dimension, at which logits from these rows have a standard deviation of 1."""
    return 1 / float(mx.mean(mx.linalg.norm(rows, axis=-1)))


def _inverse_sizes(rows: npt.NDArray[np.floating], counts: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    sizes = np.sqrt(np.average(rows**2, axis=0, weights=counts))
    weights: npt.NDArray[np.float32] = (1 / np.maximum(sizes, 1e-3 * sizes.max())).astype(np.float32)
    return weights
