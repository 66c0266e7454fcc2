"""Training samples: a drafter's inputs at each token of an answer, and the teacher's top-k of the tokens behind it.

At answer token i the drafter gets the hidden state that token i was chosen from, and token i as its root; it is to
predict tokens i+1, i+2, ... User tokens are never predicted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from zipfile import BadZipFile

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.data.shards import TrainingConversation

TEACHER_TOKENS = 16  # the k of the teacher's top-k
_TEACHER_ROWS = 1024  # hidden states turned into logits at a time

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Answers:
    """The tokens of all answers, end to end: N tokens.

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
    def of(cls, conversations: Sequence[TrainingConversation], held_out_every: int = 15) -> "Answers":
        """Concatenate the answers; one conversation of every `held_out_every`, by its number, is held out."""
        lengths = np.array([len(item.answer) for item in conversations], np.int32)
        out = [item.number % held_out_every == held_out_every - 1 for item in conversations]
        return cls(
            np.concatenate([np.array([*item.answer], np.int32) for item in conversations]),
            np.concatenate([np.arange(length - 1, -1, -1, dtype=np.int32) for length in lengths]),
            np.repeat(np.array([*out], bool), lengths),
            np.repeat(np.array([item.temperature == 0 for item in conversations], bool), lengths),
        )

    def __len__(self) -> int:
        return len(self.tokens)


class StateWindows:
    """The hidden states of all answers, some shards at a time, so that memory does not grow with the data.

    Args:
        counts: Number of answer tokens of each shard.
        read: Returns the (tokens, width) states of a shard, from disk or computed again.
        most_tokens: Answer tokens of a window, at most; but a window holds one shard at least.
    """

    def __init__(self, counts: Sequence[int], read: Callable[[int], npt.NDArray[np.float16]], most_tokens: int) -> None:
        self._read = read
        self._windows: list[range] = []
        self._starts = [0, *accumulate(counts)]
        first = 0
        for number in range(1, len(counts) + 1):
            if number == len(counts) or self._starts[number + 1] - self._starts[first] > most_tokens:
                self._windows.append(range(first, number))
                first = number

    def __len__(self) -> int:
        return len(self._windows)

    def span(self, window: int) -> tuple[int, int]:
        """Return the index of a window's first answer token and of the one behind its last."""
        shards = self._windows[window]
        return self._starts[shards.start], self._starts[shards.stop]

    def load(self, window: int) -> npt.NDArray[np.float16]:
        """Return the hidden states of a window, (tokens, width); beside them memory holds those of one shard."""
        shards, (start, stop) = self._windows[window], self.span(window)
        if len(shards) == 1:
            return self._read(shards[0])
        first = self._read(shards[0])
        states = np.empty((stop - start, first.shape[1]), first.dtype)
        for number in shards:
            here = self._starts[number] - start
            states[here : self._starts[number + 1] - start] = first if number == shards[0] else self._read(number)
        return states


def draft_vocabulary(answers: Answers, size: int, known: Ints | None = None) -> Ints:
    """Return the ids of the `size` most frequent tokens, (at most size,), ascending; held-out answers do not count.

    Args:
        answers: The data.
        size: Tokens that can be drafted, at most.
        known: (n,) ids that the drafter could draft before: each counts as once more than it occurs, so that what new
            data lacks goes only where it has something in its place.
    """
    counts = np.bincount(answers.tokens[~answers.held_out], minlength=0 if known is None else int(known.max()) + 1)
    if known is not None:
        counts[known] += 1
    frequent = np.argsort(-counts, kind="stable")[:size]
    return np.sort(frequent[counts[frequent] > 0]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Teacher:
    """The target's top-k at each answer token, among the tokens that can be drafted.

    Attributes:
        columns: (N, TEACHER_TOKENS) uint16 or uint32: the top-k tokens, as indices into the draft vocabulary.
        probs: (N, TEACHER_TOKENS) float16: their probabilities at temperature 1; each row sums to 1.
    """

    columns: npt.NDArray[np.integer]
    probs: npt.NDArray[np.floating]

    @classmethod
    def blank(cls, count: int, candidates: int) -> "Teacher":
        """Return uninitialised arrays for `count` tokens."""
        columns = np.empty((count, TEACHER_TOKENS), np.uint16 if candidates <= 2**16 else np.uint32)
        return cls(columns, np.empty((count, TEACHER_TOKENS), np.float16))

    def part(self, start: int, stop: int) -> "Teacher":
        """Return a view of the tokens from `start` to `stop`: filling it fills this one."""
        return Teacher(self.columns[start:stop], self.probs[start:stop])

    def fill(
        self,
        states: npt.NDArray[np.floating],
        output_rows: mx.array,
        curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    ) -> None:
        """Compute the top-k of all tokens.

        Args:
            states: (N, width): the trunk's hidden states, which the target multiplies with its output rows.
            output_rows: (candidates, width) float32: those of the draft vocabulary.
            curve: The target's logits from these products; rising: see `LogitCurve`.
        """
        for first in range(0, len(states), _TEACHER_ROWS):
            products = fetch(mx.array(states[first : first + _TEACHER_ROWS]).astype(mx.float32) @ output_rows.T)
            best = np.argpartition(-products, TEACHER_TOKENS, axis=-1)[:, :TEACHER_TOKENS]
            values = curve(np.take_along_axis(products, best, axis=-1))
            likely = np.exp(values - values.max(axis=-1, keepdims=True))
            here = slice(first, first + len(best))
            self.columns[here], self.probs[here] = best, likely / likely.sum(axis=-1, keepdims=True)

    def fill_or_read(
        self,
        kept: Path | None,
        window: int,
        states: Callable[[], npt.NDArray[np.floating]],
        output_rows: mx.array,
        curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    ) -> None:
        """Read a window's top-k from the folder `kept` or, where they are not there, compute and write them.

        Args:
            kept: The folder; None for none.
            window: The number of the window.
            states: Returns what `fill` takes.
            output_rows: See `fill`.
            curve: See `fill`.
        """
        file = kept / f"teacher-{window:04}.npz" if kept else None
        if file is not None and self.read(file):
            return
        self.fill(states(), output_rows, curve)
        if file is not None:
            self.write(file)

    def write(self, path: Path) -> None:
        """Write it to an npz file; see `atomic_file`."""
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, columns=self.columns, probs=self.probs)

    def read(self, path: Path) -> bool:
        """Read what `write` wrote; return False where there is no whole file of this size."""
        try:
            with path.open("rb") as file, np.load(file) as kept:
                columns, probs = kept["columns"], kept["probs"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return False
        if columns.shape != self.columns.shape or columns.dtype != self.columns.dtype:
            return False
        self.columns[:], self.probs[:] = columns, probs
        return True


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one optimiser step.

    Attributes:
        hidden: (batch, width) float32: the hidden state that the root was chosen from.
        path: (batch, steps) int32: the root and the tokens behind it but the last one to be predicted.
        columns: (batch, steps, TEACHER_TOKENS) int32: the teacher's top-k behind each, in the draft vocabulary.
        probs: (batch, steps, TEACHER_TOKENS) float32: their probabilities.
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
        teacher: The target's top-k at each of their tokens.
        vocabulary: (candidates,) ids of the tokens that can be drafted, ascending.
        steps: Tokens drafted behind the root.
    """

    def __init__(self, answers: Answers, teacher: Teacher, vocabulary: Ints, steps: int) -> None:
        self.answers = answers
        self._teacher = teacher
        self._draftable = np.isin(answers.tokens, vocabulary)
        self.steps = steps

    def roots(self, start: int, stop: int, held_out: bool) -> npt.NDArray[np.int64]:
        """Return (n,) int64: those of the tokens from `start` to `stop` that are not the last of their answer."""
        here = slice(start, stop)
        return start + np.flatnonzero((self.answers.left[here] > 0) & (self.answers.held_out[here] == held_out))

    def batch(self, roots: npt.NDArray[np.int64], states: npt.NDArray[np.floating]) -> Batch:
        """Return the samples of some roots, (n,), and their hidden states, (n, width)."""
        ahead = roots[:, None] + np.arange(self.steps + 1)
        ahead = np.minimum(ahead, len(self.answers) - 1)
        goals = ahead[:, 1:]
        inside = np.arange(1, self.steps + 1) <= self.answers.left[roots][:, None]
        reachable = np.logical_and.accumulate(self._draftable[goals], axis=1)
        return Batch(
            mx.array(states.astype(np.float32)),
            mx.array(self.answers.tokens[ahead[:, :-1]]),
            mx.array(self._teacher.columns[goals].astype(np.int32)),
            mx.array(self._teacher.probs[goals].astype(np.float32)),
            mx.array((inside & reachable).astype(np.float32)),
        )

    def goals(self, roots: npt.NDArray[np.int64]) -> Ints:
        """Return (n, steps) the tokens that follow each root; -1 behind the answer's end."""
        ahead = np.minimum(roots[:, None] + np.arange(1, self.steps + 1), len(self.answers) - 1)
        inside = np.arange(1, self.steps + 1) <= self.answers.left[roots][:, None]
        return np.where(inside, self.answers.tokens[ahead], -1).astype(np.int32)
