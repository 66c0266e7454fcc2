"""What EAGLE-3 and DSpark heads in training share: samples, goals, frozen tables of the target, and stored layout.

Inputs are divided by their root mean square, dimension by dimension, and output rows brought to a unit second moment:
without that, a few dimensions that are far larger than the others decide all (see `whitening`). Neither needs a bias,
which published layouts do not have: a mean that is left in is a constant input.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.samples import Halves, Ints, Teacher
from rdchat.inference.training.heads.whitening import output_preconditioner

THETA, POSITIONS = 10_000.0, 8192
EPSILON = 1e-6
_HEAD_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation, perhaps without the beginning of its question: n tokens.

    Attributes:
        tokens: (n,) int32 ids.
        features: (n, width) float16: the target's hidden states at these tokens, as the head reads them.
        position: Absolute position of the first token.
        answer: Index of the answer's first token.
        columns: (n - answer, k) int32: of each answer token, the teacher's top-k as indices into the draft vocabulary.
        probs: (n - answer, k) float32: their probabilities.
        draftable: (n - answer,) bool: whether the token can be drafted.
    """

    tokens: Ints
    features: Halves
    position: int
    answer: int
    columns: Ints
    probs: npt.NDArray[np.float32]
    draftable: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        item: TrainingConversation,
        features: Halves,
        teacher: Teacher,
        vocabulary: Ints,
        question_tokens: int,
    ) -> "Sample":
        """Return a conversation with at most `question_tokens` tokens before its answer."""
        first = max(item.answer_start - question_tokens, 0)
        answer = np.array([*item.answer], np.int32)
        return cls(
            np.array([*item.tokens[first:]], np.int32),
            features[first:].copy(),
            first,
            item.answer_start - first,
            teacher.columns.astype(np.int32),
            teacher.probs.astype(np.float32),
            np.isin(answer, vocabulary),
        )

    def roots(self) -> range:
        """Return the indices of the tokens that can be roots: those of the answer but the last."""
        return range(self.answer, len(self.tokens) - 1)


@dataclass(frozen=True, slots=True)
class Goals:
    """The tokens to be predicted below some roots.

    Attributes:
        tokens: (roots, steps) int32: the tokens after each root; -1 after the answer's end.
        columns: (roots, steps, k) int32: the teacher's top-k.
        probs: (roots, steps, k) float32: their probabilities.
        weights: (roots, steps) float32: 0 where there is nothing to learn: after the answer's end, and from the first
            token on that cannot be drafted, since no draft gets there.
    """

    tokens: Ints
    columns: mx.array
    probs: mx.array
    weights: npt.NDArray[np.float32]

    @classmethod
    def of(cls, sample: Sample, roots: npt.ArrayLike, steps: int) -> "Goals":
        """Return the goals of roots, (roots,) indices into the sample's tokens."""
        ahead = np.add.outer(roots, np.arange(1, steps + 1))
        inside = ahead < len(sample.tokens)
        ahead = np.minimum(ahead, len(sample.tokens) - 1)
        places = ahead - sample.answer
        reached = np.logical_and.accumulate(inside & sample.draftable[places], axis=1)
        return cls(
            np.where(inside, sample.tokens[ahead], -1).astype(np.int32),
            mx.array(sample.columns[places]),
            mx.array(sample.probs[places]),
            reached.astype(np.float32),
        )


@dataclass(frozen=True, slots=True)
class SharedTables:
    """Tables of the target that a head in training uses; all arrays float32.

    Attributes:
        embed: Returns the embeddings, (..., hidden_size), of token ids, (...), as the head reads them.
        rows: (candidates, hidden_size) whitened output rows of the draft vocabulary: their second moment is 1.
        input_scales: (features,) divisors of the head's inputs.
        embedding_weights: (hidden_size,) weights of a norm that bring all dimensions of normalised embeddings to one
            size.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (vocabulary size,) int32: how often each token occurs in the answers.
    """

    embed: Callable[[mx.array], mx.array]
    rows: mx.array
    input_scales: mx.array
    embedding_weights: mx.array
    vocabulary: Ints
    counts: Ints

    @classmethod
    def of(
        cls,
        embeddings: TargetEmbeddings,
        rows: mx.array,
        input_sizes: npt.NDArray[np.float32],
        *,
        vocabulary: Ints,
        counts: Ints,
        scale: float,
    ) -> "SharedTables":
        """Measure them.

        Args:
            embeddings: The target's.
            rows: (candidates, hidden_size) the target's output rows.
            input_sizes: (features,) root mean square of each input.
            vocabulary: See above.
            counts: See above.
            scale: Factor on embeddings; see `target.embeddings.embedding_scale`.
        """

        def embed(tokens: mx.array) -> mx.array:
            return embeddings.embed(tokens).astype(mx.float32) * scale

        seen = np.flatnonzero(counts)
        normal = fetch(mx.fast.rms_norm(embed(mx.array(seen)), None, EPSILON))
        sizes = np.sqrt(np.average(normal**2, axis=0, weights=counts[seen]))
        weights = (1 / np.maximum(sizes, 1e-3 * sizes.max())).astype(np.float32)
        whitened = rows @ output_preconditioner(fetch(rows))
        mx.eval(whitened)
        return cls(embed, whitened, mx.array(input_sizes), mx.array(weights), vocabulary, counts)


class SequenceHead(ABC):
    """A head in training: it turns a conversation into features, whose products with output rows are logits.

    Args:
        network: Fresh; its output norm is scaled so that logits begin with a standard deviation of 1.
        tables: The target's.
        steps: Tokens predicted below a root.
        roots: Roots of a step in one conversation, at most; 0 is all of them.
    """

    def __init__(self, network: nn.Module, tables: SharedTables, steps: int, roots: int = 0) -> None:
        self.network, self.tables, self.steps, self.roots_per_sample = network, tables, steps, roots
        network.norm.weight = network.norm.weight * (1 / float(mx.mean(mx.linalg.norm(tables.rows, axis=-1))))

    @abstractmethod
    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """Return (roots, steps, width) float32, along the sample's own tokens (teacher forcing).

        Args:
            sample: The conversation.
            roots: (roots,) indices of its tokens, ascending, each in `Sample.roots`.
        """

    def rows(self) -> mx.array:
        """Return (candidates, width) float32 output rows."""
        return self.tables.rows

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the published configuration."""

    def shared_settings(self, head_width: int, inner_width: int) -> dict[str, Any]:
        """Return the settings that both layouts have.

        Args:
            head_width: Width of an attention head.
            inner_width: Width inside of the MLP.
        """
        config = self.network.config
        return {
            "hidden_size": config.hidden_size,
            "intermediate_size": inner_width,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": head_width,
            "hidden_act": "silu",
            "rms_norm_eps": config.norm_epsilon,
            "rope_theta": config.rope.theta,
            "max_position_embeddings": config.rope.max_positions,
            "vocab_size": config.vocabulary_size,
            "draft_vocab_size": len(self.tables.vocabulary),
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
        }

    def published(self) -> PublishedDrafter:
        """Return the head in its published layout, for plain inputs and output rows, in float32."""
        settings = self.settings()
        weights = dict(tree_flatten(self.network.parameters()))
        weights["fc.weight"] = weights["fc.weight"] / self.tables.input_scales
        weights["lm_head.weight"] = self.tables.rows
        ids = self.tables.vocabulary.astype(np.int64)
        weights["d2t"] = mx.array(ids - np.arange(len(ids)))
        weights["t2d"] = mx.array(np.isin(np.arange(settings["vocab_size"]), ids))
        return PublishedDrafter(settings, weights)

    def chosen_roots(self, sample: Sample, draw: np.random.Generator) -> Ints:
        """Return the roots of a step in a sample, (n,), ascending: all, or as many as are wanted, drawn at random."""
        there = np.array([*sample.roots()], np.int32)
        if not 0 < self.roots_per_sample < len(there):
            return there
        return np.sort(draw.permutation(there)[: self.roots_per_sample])


def attention_heads(width: int) -> tuple[int, int]:
    """Return the numbers of query heads and of key heads: heads of a width of about 64, keys shared by three or two."""
    heads = max(width // _HEAD_WIDTH, 1)
    while width % heads or (width // heads) % 2:
        heads -= 1
    return heads, next(heads // shared for shared in (3, 2, 1) if heads % shared == 0)
