"""The memory of heads that attend to the text: keys and values of committed tokens, in order of position."""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import mlx.core as mx

from rdchat.inference.drafting.heads.head import HeadMemory, Root
from rdchat.inference.target.round_cache import RowBuffer

_MANY = 64  # rows that are computed at once, not with the next draft: a prompt's hidden states are long

_UNKNOWN = -1  # a token that nobody told of


@dataclass(frozen=True, slots=True)
class _Span:
    """Hidden states, (n, width), of neighbouring tokens from a position on."""

    start: int
    hidden: mx.array

    @property
    def positions(self) -> range:
        return range(self.start, self.start + self.hidden.shape[0])

    def before(self, position: int) -> "_Span":
        """Return the part before a position."""
        return _Span(self.start, self.hidden[: max(position - self.start, 0)])


class ContextMemory(HeadMemory):
    """Rows of keys and values, one of each layer and token, that a subclass computes from hidden states.

    Tokens that the target read without anybody looking at their hidden states have no rows. The others keep their own
    positions, so the head sees a text with a gap.

    Args:
        layers: Layers of the head, each with a buffer of keys and one of values.
        looks_ahead: Whether a row is computed from a token's hidden state and the token behind it, as EAGLE's are; else
            from the hidden state alone.

    Attributes:
        buffers: Keys and values of each layer, (1, heads, rows, width).
        positions: Absolute position of each row, ascending.
    """

    def __init__(self, layers: int, *, looks_ahead: bool) -> None:
        self._layers, self._looks_ahead = layers, looks_ahead
        self.reset()

    @override
    def reset(self) -> None:
        """See `HeadMemory`."""
        self.buffers = [RowBuffer() for _ in range(self._layers)]
        self.positions: list[int] = []
        self._text: list[int] = []  # all tokens of the conversation that are known, also those without rows
        self._pending: list[_Span] = []  # tokens that have no row yet

    @abstractmethod
    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int]) -> None:
        """Compute rows behind those there are, and write them to the buffers.

        Args:
            hidden: (n, width) the target's hidden states.
            following: (n,) int32 the token behind each; only where the memory looks ahead, else empty.
            positions: (n,) absolute positions of the hidden states.
        """

    @override
    def begin(self, prompt: Sequence[int]) -> None:
        """See `HeadMemory`."""
        pairs = zip(self._text, prompt, strict=False)
        differs = (i for i, (held, wanted) in enumerate(pairs) if held != wanted)
        shared = next(differs, min(len(self._text), len(prompt)))
        self._drop_from(shared - self._looks_ahead, pending=shared)
        self._text = list(prompt)

    @override
    def take(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        """See `HeadMemory`."""
        known = len(self._text)
        # a token before a gap would wait in vain for the one behind it
        self._drop_from(start, pending=start if start <= known else known - self._looks_ahead)
        self._text += [_UNKNOWN] * (start - len(self._text))
        self._text[start:] = tokens
        self._pending.append(_Span(start, hidden))
        if sum(len(span.positions) for span in self._pending) > _MANY:
            self._feed_pending()
            mx.eval([buffer.arrays for buffer in self.buffers])

    def catch_up(self, root: Root) -> None:
        """Compute the rows of all tokens before a root, of the one just before it whether it was taken or not."""
        known = self._pending[-1].positions[-1:] if self._pending else self.positions[-1:]
        if not known or known[0] < root.position - 1:
            self._pending.append(_Span(root.position - 1, root.hidden[None]))
        self._feed_pending(root)

    def _feed_pending(self, root: Root | None = None) -> None:
        spans, self._pending = self._pending, []
        positions = [position for span in spans for position in span.positions]
        following: list[int | mx.array] = []
        if self._looks_ahead and positions:
            end = positions[-1] + 1
            following = [self._text[position + 1] for position in positions[:-1]]
            if end < len(self._text):
                following.append(self._text[end])
            elif root is not None and end == root.position:
                following.append(root.token)
            else:  # what comes behind the last token is not known yet
                self._pending = [_Span(end - 1, spans[-1].hidden[-1:])]
                positions.pop()
        if positions:
            hidden = mx.concatenate([span.hidden for span in spans])[: len(positions)]
            self.feed(hidden, mx.array(following, mx.int32), positions)
            self.positions += positions

    def _drop_from(self, position: int, pending: int | None = None) -> None:
        """Forget rows from a position on, and hidden states that have no row yet from `pending` on, else from there."""
        kept = bisect_left(self.positions, position)
        for buffer in self.buffers:
            buffer.cut(kept)
        del self.positions[kept:]
        spans = [span.before(position if pending is None else pending) for span in self._pending]
        self._pending = [span for span in spans if len(span.positions)]
