"""A conversation as EAGLE-3 and DSpark heads are trained on it, and the goals below its roots."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.samples import Halves, Ints, Teacher


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
