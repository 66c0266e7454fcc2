"""The memory of heads that attend to the text: keys and values of committed tokens, by position.

A token's row is computed when the next draft needs it, from the target's hidden state; until then the token waits.
While a round is verified, rows are also computed for tokens of which it is not known yet whether they are committed
("taken ahead"). A mask hides the wrong ones from the next draft, and `keep` drops them. `docs/adr/0031` says why.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.decoder import Rows
from rdchat.inference.drafting.heads.head import HeadMemory, HeadState, Root
from rdchat.inference.verification import RowBuffer, take_waits

# If more tokens wait, their rows are computed at once instead of with the next draft: hidden states take memory.
_MAX_WAITING = 64
# Stands for a token that `take_committed` was not given.
_UNKNOWN = -1


class ContextMemory(HeadMemory):
    """Rows of keys and values, one per layer and token, that a subclass computes from hidden states.

    A token whose hidden state was not recorded has no row. The others keep their positions, so the head sees a text
    with a gap. Looking ahead, there is a gap where an image is too: its tokens have no embedding.

    Args:
        layers: Layers of the head, each with a buffer of keys and one of values.
        looks_ahead: Whether a row depends on a token's hidden state and the next token, as in EAGLE; else only on the
            hidden state.

    Attributes:
        buffers: Keys and values of each layer, (1, heads, rows, width). What `RowBuffer` calls the position of a row is
            here its index in `positions`.
        positions: Absolute position of each row, ascending.
        path: (n,) int32, lazy: tokens of the path that was taken ahead last.
    """

    def __init__(self, layers: int, *, looks_ahead: bool) -> None:
        self._layers = layers
        self._looks_ahead = looks_ahead
        self.reset()

    @override
    def reset(self) -> None:
        self.buffers = [RowBuffer() for _ in range(self._layers)]
        self.positions: list[int] = []
        # All known tokens of the conversation, also those without rows.
        self._text: list[int] = []
        # Positions of the tokens whose rows are still to be computed, and their hidden states, (waiting, width).
        self._waiting: list[int] = []
        self._hidden: mx.array | None = None
        # Output of the last row fed, (1, width), where rows have one.
        self._fed: mx.array | None = None
        # Hidden state of the last row, (1, width), where it was taken ahead. If the next token turns out to be another
        # one, `_drop_from` has the row computed again. `keep` sets it; the next tokens or the next reply clear it.
        self._last: mx.array | None = None
        self.path = mx.array([], mx.int32)
        # Which of the rows taken ahead are of committed tokens, (n,) bool, lazy.
        self._ahead: mx.array | None = None

    @abstractmethod
    def feed(
        self, hidden: mx.array, following: mx.array, positions: Sequence[int], *, every: bool = False
    ) -> mx.array | None:
        """Compute further rows and append them to the buffers.

        Args:
            hidden: (n, width) the target's hidden states.
            following: (n,) int32 the token after each; empty unless the memory looks ahead.
            positions: (n,) absolute positions of the hidden states.
            every: Whether the outputs of all rows are needed.

        Returns:
            (n, width) outputs, or (1, width) that of the last row; None where the head has keys and values alone.
        """

    @override
    def begin_reply(self, prompt: Sequence[int]) -> None:
        pairs = zip(self._text, prompt, strict=False)
        differs = (i for i, (known, token) in enumerate(pairs) if known != token)
        shared = next(differs, min(len(self._text), len(prompt)))
        # Looking ahead, the row of the last shared token contains the next token, which differs.
        self._drop_from(shared - self._looks_ahead, waiting=shared)
        self._text = list(prompt)
        self._last = None

    @override
    def take_committed(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        known = len(self._text)
        # Before a gap, a token's next token is unknown, so its row can never be computed.
        self._drop_from(start, waiting=start if start <= known else known - self._looks_ahead)
        self._last = None
        self._text += [_UNKNOWN] * (start - len(self._text))
        self._text[start:] = tokens
        self._wait(range(start, start + hidden.shape[0]), hidden)
        if len(self._waiting) > _MAX_WAITING:
            self._feed_waiting()
            mx.async_eval([buffer.arrays for buffer in self.buffers])
        # The output is not for the next root, and would keep the graph of a long prompt alive.
        self._fed = None

    @override
    def take_ahead(self, tokens: mx.array, hidden: mx.array, before: Root, root: Root) -> None:
        """See `HeadMemory`.

        Rows are computed for the longest path that there may be. A draft does not see those behind the path's end.
        """
        assert root.later is not None
        self.catch_up(before)
        self.path = tokens
        indices = mx.array(np.arange(root.latest + 1, dtype=np.int32))
        following = mx.array([], mx.int32)
        if self._looks_ahead:
            following = mx.where(indices == root.later, root.token, tokens[mx.minimum(indices + 1, root.latest)])
        positions = range(before.position, before.position + root.latest + 1)
        outputs = self.feed(hidden, following, positions, every=True)
        self._fed = None if outputs is None else outputs[root.later][None]
        self._ahead = indices <= root.later

    @override
    def keep(self, tokens: Sequence[int], hidden: mx.array) -> None:
        self._last = hidden if self._looks_ahead else None
        start = self.positions[-1] + 1
        self._text[start:] = tokens
        # The rows of the path came first, so they have these positions; `_end_ahead` cuts those behind them.
        self.positions += range(start, start + len(tokens))
        self._end_ahead()

    @override
    def take_waits(self) -> int:
        return take_waits(self.buffers)

    def catch_up(self, root: Root) -> None:
        """Compute the rows of all tokens before a root, including the one just before it, taken or not."""
        if root.later is not None:
            assert self._ahead is not None
            return
        # The last token that waits or has a row; the one before the root may have neither.
        known = self._waiting or self.positions
        if not known or known[-1] < root.position - 1:
            self._wait([root.position - 1], root.hidden[None])
        self._feed_waiting(root)

    def output_before(self, root: Root) -> mx.array:
        """Catch up and return the output, (1, width), of the row before a root, which contains the root."""
        if root.later is None and self.positions[-1:] == [root.position - 1]:
            # That row contains the root of an earlier draft.
            self._drop_from(root.position - 1)
        self.catch_up(root)
        assert self._fed is not None
        return self._fed

    def followed_by(self, layer: int, rows: Rows, first: int = 0) -> Rows:
        """Return a layer's rows from index `first` on, with a draft's rows behind them.

        The draft's are written into the buffer and not kept, so the committed ones are not copied.
        """
        buffer = self.buffers[layer]
        held = buffer.rows
        buffer.append_rows(rows, 0)
        seen = buffer.view(max(first, buffer.first))
        buffer.cut(buffer.first + held)
        return seen

    @property
    def held(self) -> list[int]:
        """Positions of the rows in the buffers, those taken ahead included."""
        if self._ahead is None:
            return self.positions
        first = self.positions[-1] + 1
        return [*self.positions, *range(first, first + self._ahead.shape[0])]

    def visible(self, seen: mx.array | None, drafted: int, first: int = 0) -> mx.array | None:
        """Return which rows those of a draft see: of the rows in the buffers all that are of committed tokens.

        Args:
            seen: (n, drafted) bool: which they see of the draft's own; None for all.
            drafted: Rows of the draft, their own included.
            first: Index of the first row to consider, one of a committed token.

        Returns:
            (n, all rows) bool, n being 1 where `seen` is None; None where they see all.
        """
        if seen is None and self._ahead is None:
            return None
        seen = mx.ones((1, drafted), mx.bool_) if seen is None else seen
        count = seen.shape[0]
        parts = [mx.ones((count, len(self.positions) - first), mx.bool_), seen]
        if self._ahead is not None:
            parts.insert(1, mx.broadcast_to(self._ahead, (count, self._ahead.shape[0])))
        return mx.concatenate(parts, axis=1)

    def _wait(self, positions: Sequence[int], hidden: mx.array) -> None:
        """Keep the hidden states of tokens whose rows are computed later."""
        self._hidden = hidden if self._hidden is None else mx.concatenate([self._hidden, hidden])
        self._waiting += positions

    def _feed_waiting(self, root: Root | None = None) -> None:
        """Compute the rows of the tokens that wait, as far as the token after each is known where it is needed.

        Args:
            root: The root of a draft, which may follow the last of them; None without a draft.
        """
        following = self._following(root) if self._looks_ahead else []
        count = len(following) if self._looks_ahead else len(self._waiting)
        if not count:
            return
        assert self._hidden is not None
        positions = self._waiting[:count]
        hidden = self._hidden[:count]
        self._keep_waiting(slice(count, None))
        if self._looks_ahead:
            # Only text with text behind it gets rows: tokens of images, and unknown ones, are below 0. The root, which
            # is not in `_text` yet, is text too.
            rows = [i for i, at in enumerate(positions) if min(self._text[at : at + 2], default=0) >= 0]
            if len(rows) < count:
                positions = [positions[i] for i in rows]
                following = [following[i] for i in rows]
                hidden = hidden[mx.array(rows, mx.int32)]
        if positions:
            self._fed = self.feed(hidden, mx.array(following, mx.int32), positions)
            self.positions += positions

    def _following(self, root: Root | None) -> list[int | mx.array]:
        """Return the token after each that waits; that after the last one is left out where it is not known yet."""
        waiting = self._waiting
        following: list[int | mx.array] = [self._text[at + 1] for at in waiting if at + 1 < len(self._text)]
        if root is not None and len(following) < len(waiting) and waiting[-1] + 1 == root.position:
            following.append(root.token)
        return following

    def _keep_waiting(self, part: slice) -> None:
        """Forget the tokens that wait but for a part of them."""
        self._waiting = self._waiting[part]
        self._hidden = self._hidden[part] if self._hidden is not None and self._waiting else None

    def _drop_from(self, position: int, waiting: int | None = None) -> None:
        """Forget rows from a position on, and hidden states without rows from `waiting` on (by default the same).

        The last row that was taken ahead may have to be computed again, with another next token.
        """
        waiting = position if waiting is None else waiting
        self._keep_waiting(slice(bisect_left(self._waiting, waiting)))
        if self._last is not None and position <= self.positions[-1] < waiting:
            self._wait(self.positions[-1:], self._last)
        del self.positions[bisect_left(self.positions, position) :]
        self._end_ahead()

    def _end_ahead(self) -> None:
        """Drop the rows taken ahead that did not become committed ones."""
        self._ahead = None
        for buffer in self.buffers:
            buffer.cut(len(self.positions))


@dataclass(frozen=True, slots=True)
class ContextState(HeadState):
    """The state of a head whose drafted tokens have rows of keys and values too; a subclass adds `logits` and `after`.

    Attributes:
        memory: The committed rows.
        output: (beams, width) outputs for the beams' last tokens.
        rows: Keys and values of each layer of the draft's own rows, level by level; empty before the first.
        position: Position of the next level's rows.
        later: () int32, lazy: is added to all positions of the draft; None for 0.
        seen: (beams, rows of the draft) bool: which of these each beam sees; None where it sees all.
    """

    memory: ContextMemory
    output: mx.array
    rows: list[Rows]
    position: int
    later: mx.array | None
    seen: mx.array | None = None

    def below(self, beams: mx.array) -> tuple[mx.array | None, mx.array | None]:
        """Return which rows those of the next level see: themselves, and what their beams saw.

        Args:
            beams: (n,) the beam that each of them extends.

        Returns:
            `seen` of the next level, and (n, all rows) bool of these and the committed rows; None where they see all.
        """
        count = beams.shape[0]
        drafted = self.rows[0][0].shape[2] if self.rows else 0
        seen = None
        if self.seen is not None or count > 1:
            # On the host this needs fewer launches than `mx.eye`.
            seen = mx.array(np.eye(count, dtype=np.bool_))
            if drafted:
                before = mx.ones((count, drafted), mx.bool_) if self.seen is None else self.seen[beams]
                seen = mx.concatenate([before, seen], axis=1)
        return seen, self.memory.visible(seen, drafted + count)

    def joined(self, layer: int, rows: Rows) -> Rows:
        """Return the draft's own rows of a layer with those of the next level behind them."""
        if not self.rows:
            return rows
        return [mx.concatenate(list(pair), axis=2) for pair in zip(self.rows[layer], rows, strict=True)]
