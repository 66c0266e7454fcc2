"""An EAGLE-3 drafter bound to its target: committed rows in a memory, a level of the tree in one pass.

The row at position p is computed from the target's features of token p and the embedding of token p + 1; its output
gives the logits of token p + 2. So the row before the root holds the root itself. Rows of drafted tokens live in the
state of the draft alone: nothing is rolled back.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import MOST_BEAM_ROWS
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Network
from rdchat.inference.drafting.heads.head import HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.drafting.heads.stored_network import BoundNetwork, StoredNetwork
from rdchat.inference.target.target import LoadedModel


class StoredEagle3(StoredNetwork[Eagle3Config]):
    """An EAGLE-3 drafter that is bound to no target yet; see `StoredNetwork`."""

    @override
    def bind(self, model: LoadedModel, bits: int | None = None) -> "BoundEagle3Head":
        """See `StoredNetwork`."""
        return BoundEagle3Head(self, model, bits)


class BoundEagle3Head(BoundNetwork):
    """An EAGLE-3 drafter that is bound to its target; see `BoundNetwork`.

    The target's embeddings are used without a family's scale, which the norm behind them would take out again.
    """

    kind = HeadKind.EAGLE3
    most_drafted = MOST_BEAM_ROWS

    def __init__(self, stored: StoredEagle3, model: LoadedModel, bits: int | None = None) -> None:
        super().__init__(Eagle3Network(stored.config), stored, model, bits)
        if stored.config.tied_output:
            self._output = self.network.embed_tokens.as_linear

    @override
    def memory(self) -> HeadMemory:
        """See `Head`."""
        return Eagle3Memory(self)

    def fuse(self, features: mx.array) -> mx.array:
        """Return `Eagle3Network.fuse` of the target's features."""
        fused: mx.array = self.network.fuse(features.astype(self.dtype))
        return fused

    def logits(self, output: mx.array) -> mx.array:
        """Return (n, candidates) float32: of the token behind each row, of its output, (n, hidden_size)."""
        return self._output(self.network.norm(output)).astype(mx.float32)


@dataclass(frozen=True, slots=True)
class _Tip:
    """The output, (1, hidden_size), of the row before a root, and the root that it holds."""

    position: int
    token: int | mx.array
    output: mx.array

    def is_of(self, root: Root) -> bool:
        """Tell whether it is this root's; a lazy token is only compared with itself."""
        if isinstance(root.token, mx.array) or isinstance(self.token, mx.array):
            return self.token is root.token and self.position == root.position - 1
        return self.token == root.token and self.position == root.position - 1


class Eagle3Memory(ContextMemory):
    """Keys and values of committed rows; see `HeadMemory`.

    Args:
        head: The drafter.
    """

    def __init__(self, head: BoundEagle3Head) -> None:
        super().__init__(len(head.network.layers), looks_ahead=True)
        self._head = head

    @override
    def reset(self) -> None:
        """See `HeadMemory`."""
        super().reset()
        self._fed: mx.array | None = None  # output of the last row that was fed
        self._tip: _Tip | None = None

    @override
    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int]) -> None:
        """See `ContextMemory`; of the last layer's outputs only the last row's is asked for."""
        head, last = self._head, len(self.buffers) - 1
        x, embeddings = head.fuse(hidden), head.embed(following)
        asked: Sequence[int] = positions
        windows = head.network.config.windows
        for number, (layer, buffer, window) in enumerate(zip(head.network.layers, self.buffers, windows, strict=True)):
            taken, residual = layer.inputs(embeddings, x)
            buffer.write(layer.self_attn.rows(taken, positions), 0)
            if number == last:
                taken, residual, asked = taken[-1:], residual[-1:], positions[-1:]
            mask: mx.array | str | None = None if len(asked) == 1 else "causal"
            first = 0
            if window is not None:
                first = bisect_right(self.positions, asked[0] - window)
                mask = _window_mask(asked, [*self.positions[first:], *positions], window)
            x = layer.outputs(residual, layer.self_attn(taken, asked, buffer.view(first), mask))
        self._fed = x

    @override
    def take(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        """See `HeadMemory`."""
        super().take(tokens, hidden, start)
        self._fed = self._tip = None  # neither is the next root's, and they would keep the graph of a long prompt

    @override
    def state(self, root: Root) -> HeadState:
        """See `HeadMemory`."""
        if self.positions[-1:] == [root.position - 1] and not (self._tip and self._tip.is_of(root)):
            self._drop_from(root.position - 1)  # the row holds another root
        self.catch_up(root)
        if self._fed is not None:
            self._tip, self._fed = _Tip(root.position - 1, root.token, self._fed), None
        assert self._tip is not None
        rows = [buffer.view(0) for buffer in self.buffers]
        windows = any(self._head.network.config.windows)
        positions = np.array([*self.positions]) if windows else None
        return _Eagle3State(self._head, self._tip.output, rows, len(self.positions), positions, root.position)


@dataclass(frozen=True, slots=True)
class _Eagle3State(HeadState):
    """See `HeadState`.

    The committed rows are copied once a level, with the level's own behind them; that is little beside the weights.

    Attributes:
        head: The drafter.
        output: (beams, hidden_size) outputs of the rows of the beams' last tokens.
        rows: Keys and values of each layer: the committed rows, then those of the draft, level by level.
        committed: Number of the committed ones.
        positions: (rows,) of all rows; only where a layer has a window.
        position: Of the next level's rows.
        seen: (beams, rows of the draft) bool: which of these each beam sees; None where it sees all of them.
    """

    head: BoundEagle3Head
    output: mx.array
    rows: list[list[mx.array]]
    committed: int
    positions: npt.NDArray[np.int_] | None
    position: int
    seen: mx.array | None = None

    @override
    def logits(self) -> mx.array:
        """See `HeadState`."""
        return self.head.logits(self.output)

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        """See `HeadState`."""
        network, count = self.head.network, tokens.shape[0]
        seen = self._seen_by(beams, count)
        visible = None if seen is None else mx.concatenate([mx.ones((count, self.committed), mx.bool_), seen], axis=1)
        positions = None if self.positions is None else np.append(self.positions, [self.position] * count)
        x, embeddings = network.carried(self.output[beams]), self.head.embed(tokens)
        rows = []
        for layer, held, window in zip(network.layers, self.rows, network.config.windows, strict=True):
            taken, residual = layer.inputs(embeddings, x)
            own = layer.self_attn.rows(taken, self.position)
            rows.append([mx.concatenate(list(pair), axis=2) for pair in zip(held, own, strict=True)])
            mask = visible
            if window is not None:
                assert positions is not None
                near = _window_mask([self.position], positions, window)
                mask = near if visible is None else visible & near
            x = layer.outputs(residual, layer.self_attn(taken, self.position, rows[-1], mask))
        return _Eagle3State(self.head, x, rows, self.committed, positions, self.position + 1, seen)

    def _seen_by(self, beams: mx.array, count: int) -> mx.array | None:
        """Return `seen` of the next level, each row of which sees itself and what its beam saw."""
        if self.seen is None and count == 1:
            return None
        drafted = self.rows[0][0].shape[2] - self.committed
        own = mx.array(np.eye(count, dtype=np.bool_))  # made by the host: fewer launches than `mx.eye`
        if not drafted:
            return own
        before = mx.ones((count, drafted), mx.bool_) if self.seen is None else self.seen[beams]
        return mx.concatenate([before, own], axis=1)


def _window_mask(asked: Sequence[int], positions: npt.ArrayLike, window: int) -> mx.array:
    """Return which rows, by their positions (k,), those at other positions, (n,), see: (n, k) bool."""
    distances = np.subtract.outer(asked, positions)
    return mx.array((distances >= 0) & (distances < window))
