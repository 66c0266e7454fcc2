"""The answers of a training, their hidden states in windows, and the teacher: the target's top-k at each token.

The teacher is computed from hidden states and output rows. In most families their products are the logits. Cohere and
Granite scale the products, Gemma caps them with a tanh. The function rises in all of them, so a curve measured on the
target serves every family.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.device import fetch
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.verification import LoadedModel, TargetEmbeddings

# The k of the teacher's top-k.
TEACHER_TOKENS = 16
# One conversation of so many is kept for evaluation.
_HELD_OUT_EVERY = 15
# Tokens from which a logit curve is measured.
_CURVE_TOKENS = 64
# Limit of the points of the curve.
_CURVE_POINTS = 1025
# Hidden states turned into logits at a time.
_TEACHER_ROWS = 1024

Ints = npt.NDArray[np.int32]
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Answers:
    """The tokens of all answers, concatenated: N tokens.

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
    def concatenate(cls, conversations: Sequence[TrainingConversation]) -> "Answers":
        """Concatenate the answers; by the number of its conversation, one of every 15 is held out."""
        lengths = np.array([len(item.answer) for item in conversations], np.int32)
        out = [item.number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1 for item in conversations]
        return cls(
            np.concatenate([np.array([*item.answer], np.int32) for item in conversations]),
            np.concatenate([np.arange(length - 1, -1, -1, dtype=np.int32) for length in lengths]),
            np.repeat(np.array([*out], bool), lengths),
            np.repeat(np.array([item.temperature == 0 for item in conversations], bool), lengths),
        )

    def __len__(self) -> int:
        return len(self.tokens)


class StateWindows:
    """The hidden states of conversations, loaded for some at a time, so that memory does not grow with the data.

    Args:
        tokens: The tokens of each conversation whose states are used.
        read: Yields the states of some conversations, at all tokens: index in the range, and (tokens, width).
        token_limit: Limit of the used tokens of a window; a window has at least one conversation.

    Attributes:
        starts: Index of each conversation's first state among all, then the number of all.
    """

    def __init__(
        self, tokens: Sequence[range], read: Callable[[range], Iterable[tuple[int, Halves]]], token_limit: int
    ) -> None:
        self._tokens = tokens
        self._read = read
        # The last window; a single window is read once for all epochs.
        self._loaded: tuple[int, Halves] | None = None
        self._windows: list[range] = []
        self.starts = [0, *accumulate(map(len, tokens))]
        first = 0
        for number in range(1, len(tokens) + 1):
            if number == len(tokens) or self.starts[number + 1] - self.starts[first] > token_limit:
                self._windows.append(range(first, number))
                first = number

    def __len__(self) -> int:
        return len(self._windows)

    def span(self, window: int) -> tuple[int, int]:
        """Return the index of a window's first state, and that after its last."""
        numbers = self._windows[window]
        return self.starts[numbers.start], self.starts[numbers.stop]

    def loading(self, window: int) -> Iterator[float]:
        """Load a window; yield the finished share after each conversation, so that the caller can stop there.

        Nothing is yielded if it is loaded already.
        """
        if self._loaded is not None and self._loaded[0] == window:
            return
        self._loaded = None  # Freed before the next one is loaded.
        numbers = self._windows[window]
        start, stop = self.span(window)
        states: Halves | None = None
        for done, (index, read) in enumerate(self._read(numbers), start=1):
            if states is None:
                states = np.empty((stop - start, read.shape[1]), np.float16)
            number = numbers[index]
            used = self._tokens[number]
            states[self.starts[number] - start : self.starts[number + 1] - start] = read[used.start : used.stop]
            yield done / len(numbers)
        assert states is not None, "a window holds a conversation"
        self._loaded = window, states

    def read_states(self, window: int) -> Halves:
        """Return the hidden states of a window, (tokens, width); it is loaded first if necessary."""
        for _ in self.loading(window):
            pass
        assert self._loaded is not None
        return self._loaded[1]


def draft_vocabulary(answers: Answers, size: int) -> Ints:
    """Return the ids of the `size` most frequent tokens, (at most size,), ascending, without held-out answers."""
    counts = np.bincount(answers.tokens[~answers.held_out])
    frequent = np.argsort(-counts, kind="stable")[:size]
    return np.sort(frequent[counts[frequent] > 0]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class LogitCurve:
    """The target's logits as a function of products of hidden states and output rows: rising and piecewise linear.

    Attributes:
        products: (points,) float32, ascending: products of hidden state and output row.
        logits: (points,) float32: the target's logit of each. Below the first product the first logit holds. Beyond the
            last one the slope of the last tenth continues: in 16 bits the slope of two points is mostly rounding.
    """

    products: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]

    @classmethod
    def measure(cls, model: LoadedModel, embeddings: TargetEmbeddings) -> "LogitCurve":
        """Measure the curve in one call of the target, with tokens from all of its vocabulary.

        Of all products that were measured it keeps some that are evenly spread, each with its logit. A logit that is
        below one before it, as by rounding, is raised to that.
        """
        size = model.info.vocabulary_size
        tokens = mx.linspace(0, size - 1, min(_CURVE_TOKENS, size)).astype(mx.int32)
        logits = model.network(tokens[None])[0].astype(mx.float32)
        assert model.hooks.hidden is not None
        states = model.hooks.hidden[0, :, : embeddings.width].astype(mx.float32)
        products = states @ embeddings.output_rows(mx.arange(size)).astype(mx.float32).T
        x, y = (each.ravel() for each in fetch(products, logits))
        order = np.argsort(x, kind="stable")
        x = x[order]
        y = y[order]
        chosen = np.minimum(np.searchsorted(x, np.linspace(x[0], x[-1], _CURVE_POINTS)), x.size - 1)
        x, indices = np.unique(x[chosen], return_index=True)
        return cls(x, np.maximum.accumulate(y[chosen][indices]))

    def __call__(self, products: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the logits of products, in the shape of `products`."""
        x = self.products
        y = self.logits
        tenth = min(int(np.searchsorted(x, x[-1] - 0.1 * (x[-1] - x[0]))), x.size - 2)
        slope = (y[-1] - y[tenth]) / (x[-1] - x[tenth])
        logits: npt.NDArray[np.floating] = np.interp(products, x, y) + slope * np.maximum(products - x[-1], 0)
        return logits


class Teacher:
    """The target's top-k at each of N answer tokens, among the tokens that can be drafted; uninitialised at first.

    Args:
        count: N.

    Attributes:
        columns: (N, TEACHER_TOKENS) uint16: the top-k tokens, as indices into the draft vocabulary.
        probs: (N, TEACHER_TOKENS) float16: their probabilities at temperature 1; each row sums to 1.
    """

    def __init__(self, count: int) -> None:
        shape = count, TEACHER_TOKENS
        self.columns: npt.NDArray[np.integer] = np.empty(shape, np.uint16)
        self.probs: npt.NDArray[np.floating] = np.empty(shape, np.float16)

    def fill(
        self,
        start: int,
        states: npt.NDArray[np.floating],
        output_rows: mx.array,
        curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    ) -> None:
        """Compute the top-k of some tokens.

        Args:
            start: Index of the first token.
            states: (n, width): the trunk's hidden states.
            output_rows: (candidates, width) float32: those of the draft vocabulary.
            curve: The target's logits from their products; see `LogitCurve`.
        """
        for first in range(0, len(states), _TEACHER_ROWS):
            products = fetch(mx.array(states[first : first + _TEACHER_ROWS]).astype(mx.float32) @ output_rows.T)
            best = np.argpartition(-products, TEACHER_TOKENS, axis=-1)[:, :TEACHER_TOKENS]
            values = curve(np.take_along_axis(products, best, axis=-1))
            likely = np.exp(values - values.max(axis=-1, keepdims=True))
            here = slice(start + first, start + first + len(best))
            self.columns[here] = best
            self.probs[here] = likely / likely.sum(axis=-1, keepdims=True)
