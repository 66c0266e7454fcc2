"""Training samples: what the drafter sees at each token of an answer, and what the target says of the tokens behind it.

At answer token i the drafter gets the hidden state that token i was chosen from, and token i as its root; it is to
predict tokens i+1, i+2, ... User tokens are never predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import RdchatError
from rdchat.inference.training.shards import Conversation, ShardFolder

TEACHER_TOKENS = 16  # likeliest tokens that are distilled
_TEACHER_ROWS = 1024  # hidden states turned into logits at a time

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers, end to end: N tokens.

    Attributes:
        tokens: (N,) int32.
        left: (N,) int32: how many tokens of the same answer follow.
        held_out: (N,) bool: whether the answer is kept for evaluation.
        greedy: (N,) bool: whether the answer was made at temperature 0.
    """

    tokens: Ints
    left: Ints
    held_out: npt.NDArray[np.bool_]
    greedy: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, conversations: Sequence[Conversation], held_out_every: int = 15) -> "Answers":
        """Put answers end to end; one conversation of every `held_out_every` is held out."""
        lengths = np.array([len(item.answer) for item in conversations], np.int32)
        out = [item.number % held_out_every == held_out_every - 1 for item in conversations]
        return cls(
            np.concatenate([np.array(item.answer, np.int32) for item in conversations]),
            np.concatenate([np.arange(length - 1, -1, -1, dtype=np.int32) for length in lengths]),
            np.repeat(np.array(out, bool), lengths),
            np.repeat(np.array([item.temperature == 0 for item in conversations], bool), lengths),
        )

    def __len__(self) -> int:
        return len(self.tokens)


class States:
    """The hidden states of all answers, mapped from disk shard by shard.

    Args:
        shards: Where they are; each shard must have its states.
        columns: Which of a state's numbers are read.
    """

    def __init__(self, shards: ShardFolder, columns: slice = slice(None)) -> None:
        parts = [shards.states(number) for number in range(len(shards))]
        if any(part is None for part in parts):
            raise RdchatError("The hidden states of some training data are missing.", "Make the data again.")
        self._parts = [part for part in parts if part is not None]
        self._columns = columns
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, indices: npt.NDArray[np.integer]) -> Floats:
        """Return (n, width) float32."""
        homes = np.searchsorted(self._starts, indices, side="right") - 1
        width = self._parts[0][:0, self._columns].shape[1]
        rows = np.empty((len(indices), width), np.float32)
        for home in np.unique(homes):
            here = homes == home
            rows[here] = self._parts[home][indices[here] - self._starts[home]][:, self._columns]
        return rows


def draft_vocabulary(answers: Answers, size: int) -> Ints:
    """Return the ids of the most frequent tokens of the answers, ascending; held-out answers do not count."""
    counts = np.bincount(answers.tokens[~answers.held_out])
    frequent = np.argsort(-counts, kind="stable")[:size]
    return np.sort(frequent[counts[frequent] > 0]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Teacher:
    """What the target says of each answer token, among the tokens that can be drafted.

    Attributes:
        columns: (N, TEACHER_TOKENS) int32: the likeliest, as indices into the draft vocabulary.
        probs: (N, TEACHER_TOKENS) float32: how likely; each row sums to 1.
    """

    columns: npt.NDArray[np.integer]
    probs: npt.NDArray[np.floating]

    @classmethod
    def of(cls, states: States, output_rows: mx.array, logit_scale: float = 1.0) -> "Teacher":
        """Compute it from the hidden states.

        Args:
            states: Theirs must be what the target multiplies with its output rows.
            output_rows: (candidates, width) those of the draft vocabulary.
            logit_scale: What the target multiplies its logits with.
        """
        columns = np.empty((len(states), TEACHER_TOKENS), np.uint16 if len(output_rows) <= 2**16 else np.uint32)
        probs = np.empty((len(states), TEACHER_TOKENS), np.float16)
        for start in range(0, len(states), _TEACHER_ROWS):
            here = np.arange(start, min(start + _TEACHER_ROWS, len(states)))
            logits = np.array(mx.array(states.rows(here)) @ output_rows.T) * logit_scale
            best = np.argpartition(-logits, TEACHER_TOKENS, axis=-1)[:, :TEACHER_TOKENS]
            values = np.take_along_axis(logits, best, axis=-1)
            likely = np.exp(values - values.max(axis=-1, keepdims=True))
            columns[here], probs[here] = best, likely / likely.sum(axis=-1, keepdims=True)
        return cls(columns, probs)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one optimiser step.

    Attributes:
        hidden: (batch, width) float32: the state that the root was chosen from.
        path: (batch, steps) int32: the root and the tokens behind it but the last one to be predicted.
        columns: (batch, steps, TEACHER_TOKENS) int32: what the target may say behind each, in the draft vocabulary.
        probs: (batch, steps, TEACHER_TOKENS) float32: how likely.
        weights: (batch, steps) float32: 0 where there is nothing to learn: behind the answer's end, and from the first
            token on that cannot be drafted, since no draft gets there.
    """

    hidden: mx.array
    path: mx.array
    columns: mx.array
    probs: mx.array
    weights: mx.array


class SampleReader:
    """Cuts batches out of the answers.

    Args:
        answers: All answers.
        states: Their hidden states.
        teacher: What the target says of them.
        vocabulary: (candidates,) ids of the tokens that can be drafted, ascending.
        steps: Tokens drafted behind the root.
    """

    def __init__(self, answers: Answers, states: States, teacher: Teacher, vocabulary: Ints, steps: int) -> None:
        self.answers = answers
        self._states = states
        self._teacher = teacher
        self._draftable = np.isin(answers.tokens, vocabulary)
        self._steps = steps

    def indices(self, held_out: bool) -> npt.NDArray[np.int64]:
        """Return the roots that at least one token follows."""
        return np.flatnonzero((self.answers.left > 0) & (self.answers.held_out == held_out))

    def batch(self, roots: npt.NDArray[np.int64]) -> Batch:
        """Return the samples of some roots."""
        ahead = roots[:, None] + np.arange(self._steps + 1)
        ahead = np.minimum(ahead, len(self.answers) - 1)
        goals = ahead[:, 1:]
        inside = np.arange(1, self._steps + 1) <= self.answers.left[roots][:, None]
        reachable = np.logical_and.accumulate(self._draftable[goals], axis=1)
        return Batch(
            mx.array(self._states.rows(roots)),
            mx.array(self.answers.tokens[ahead[:, :-1]]),
            mx.array(self._teacher.columns[goals].astype(np.int32)),
            mx.array(self._teacher.probs[goals].astype(np.float32)),
            mx.array((inside & reachable).astype(np.float32)),
        )

    def goals(self, roots: npt.NDArray[np.int64]) -> Ints:
        """Return (n, steps) the tokens that follow each root; -1 behind the answer's end."""
        ahead = np.minimum(roots[:, None] + np.arange(1, self._steps + 1), len(self.answers) - 1)
        inside = np.arange(1, self._steps + 1) <= self.answers.left[roots][:, None]
        return np.where(inside, self.answers.tokens[ahead], -1).astype(np.int32)
