"""A block drafter bound to its target: one pass over a block, then a light correction a step; see `block_network`."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import override

import mlx.core as mx

from rdchat.inference.drafting.heads.block_network import BlockConfig, BlockNetwork, MarkovHead
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.decoder import Rows
from rdchat.inference.drafting.heads.head import HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.drafting.heads.stored_network import BoundNetwork, StoredNetwork
from rdchat.inference.target.embeddings import embedding_scale
from rdchat.inference.target.target import LoadedModel


class StoredBlockHead(StoredNetwork[BlockConfig]):
    """A block drafter that is bound to no target yet; see `StoredNetwork`."""

    @override
    def bind(self, model: LoadedModel, bits: int | None = None) -> "BoundBlockHead":
        """See `StoredNetwork`."""
        return BoundBlockHead(self, model, bits)


class BoundBlockHead(BoundNetwork):
    """A block drafter that is bound to its target; see `BoundNetwork`."""

    kind = HeadKind.BLOCK

    def __init__(self, stored: StoredBlockHead, model: LoadedModel, bits: int | None = None) -> None:
        self.config = config = stored.config
        super().__init__(BlockNetwork(config), stored, model, bits)
        self.most_drafted = config.most_drafted
        self._masks = mx.full((config.block_size - 1,), config.mask_token, mx.int32)
        if not config.own_embeddings:
            self._scale = embedding_scale(model.info.architecture, config.hidden_size)
        else:
            self._scale = float(config.hidden_size**0.5) if config.gemma else 1.0
        self._markov: MarkovHead | None = self.network.get("markov_head")

    @override
    def memory(self) -> HeadMemory:
        """See `Head`."""
        return BlockMemory(self)

    def embeddings(self, root: int | mx.array) -> mx.array:
        """Return the embeddings, (block_size, hidden_size), of a block: a root, () or an id, and masks behind it."""
        found = self.embed(mx.concatenate([mx.array(root, mx.int32).reshape(1), self._masks]))
        return found if self._scale == 1 else found * self._scale

    def base_logits(self, hidden: mx.array) -> mx.array:
        """Return (n, candidates) logits without correction, of the hidden states of a block, (n, hidden_size)."""
        logits = self._output(hidden)
        cap = self.config.softcap
        return logits if cap is None else mx.tanh(logits / cap) * cap

    def state(self, hidden: mx.array, base: mx.array, depth: int, tokens: mx.array, past: mx.array | None) -> HeadState:
        """Return the state of beams, whose logits are only computed where they are asked for.

        Args:
            hidden: (n, hidden_size) of the places that draft.
            base: (n, candidates) their `base_logits`.
            depth: The place that drafts next.
            tokens: (beams,) the tokens before.
            past: (beams, rank) recurrent state behind the tokens before those; None for none.
        """
        if self._markov is None:
            logits = mx.broadcast_to(base[depth].astype(mx.float32), (tokens.shape[0], self.candidates))
            return _BlockState(self, hidden, base, depth, logits, None)
        bias, past = self._markov(tokens, hidden[depth], past)
        return _BlockState(self, hidden, base, depth, _plus(base[depth], bias), past)


class BlockMemory(ContextMemory):
    """Keys and values of the text before a block, in each of the drafter's layers."""

    def __init__(self, head: BoundBlockHead) -> None:
        super().__init__(head.config.layers, looks_ahead=False)
        self._head = head

    @override
    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int]) -> None:
        """See `ContextMemory`."""
        rows = self._head.network.context_rows(hidden.astype(self._head.dtype), positions)
        for buffer, parts in zip(self.buffers, rows, strict=True):
            buffer.write(parts, 0)

    @override
    def state(self, root: Root) -> HeadState:
        """See `HeadMemory`."""
        self.catch_up(root)
        head, config, place = self._head, self._head.config, root.position
        positions = range(place, place + config.block_size)
        hidden = head.network.block(head.embeddings(root.token), positions, partial(self._extended, place))
        hidden = hidden if config.from_anchor else hidden[1:]
        first = mx.array(root.token, mx.int32).reshape(1)
        return head.state(hidden, head.base_logits(hidden), 0, first, None)

    def _extended(self, position: int, layer: int, rows: Rows) -> tuple[Rows, mx.array | str | None]:
        """Return all rows that a block at a position attends to; its own are written behind the kept ones, and go."""
        config, buffer = self._head.config, self.buffers[layer]
        window = config.windows[layer]
        start = 0 if window is None else bisect_left(self.positions, position - window)
        buffer.write(rows, 0)
        seen = buffer.view(start)
        buffer.cut(len(self.positions))
        return seen, "causal" if config.causal[layer] else None


@dataclass(frozen=True, slots=True)
class _BlockState(HeadState):
    """See `HeadState`.

    Attributes:
        head: The drafter.
        hidden: (n, hidden_size) of the places that draft.
        base: (n, candidates) their logits without correction.
        depth: The place that drafts next.
        corrected: (beams, candidates) float32: its logits.
        past: (beams, rank) recurrent state behind the tokens before; None for none.
    """

    head: BoundBlockHead
    hidden: mx.array
    base: mx.array
    depth: int
    corrected: mx.array
    past: mx.array | None

    @override
    def logits(self) -> mx.array:
        """See `HeadState`."""
        return self.corrected

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        """See `HeadState`."""
        past = None if self.past is None else self.past[beams]
        return self.head.state(self.hidden, self.base, self.depth + 1, tokens, past)


@partial(mx.compile, shapeless=True)
def _plus(base: mx.array, bias: mx.array) -> mx.array:
    return base.astype(mx.float32) + bias.astype(mx.float32)
