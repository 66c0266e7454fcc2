"""A block drafter bound to its target: one pass over a block, then a correction per step; see `block_network`."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import override

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.block_network import BlockConfig, BlockNetwork, MarkovHead
from rdchat.inference.drafting.heads.bound_network import BoundNetwork, Weights
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.decoder import RowPositions, Rows
from rdchat.inference.drafting.heads.head import HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.verification.target import LoadedModel, embedding_scale


class BoundBlockHead(BoundNetwork):
    """A block drafter that is bound to its target; see `BoundNetwork`."""

    kind = HeadKind.BLOCK
    network_of = BlockNetwork

    def __init__(
        self,
        config: BlockConfig,
        weights: Weights,
        vocabulary: mx.array | None,
        model: LoadedModel,
        bits: int | None = None,
    ) -> None:
        super().__init__(config, weights, vocabulary, model, bits)
        self.max_drafted = config.max_drafted
        self._masks = mx.full((config.block_size - 1,), config.mask_token, mx.int32)
        if not config.own_embeddings:
            self._scale = embedding_scale(model.info.architecture, config.hidden_size)
        else:
            self._scale = float(config.hidden_size**0.5) if config.gemma else 1.0
        self._markov: MarkovHead | None = self.network.get("markov_head")

    @override
    def memory(self) -> HeadMemory:
        return BlockMemory(self)

    def embeddings(self, root: int | mx.array) -> mx.array:
        """Return the embeddings of a block, (block_size, hidden_size): a root, () or an id, then mask tokens."""
        embeddings = self.embed(mx.concatenate([mx.array(root, mx.int32).reshape(1), self._masks]))
        return embeddings if self._scale == 1 else embeddings * self._scale

    def base_logits(self, hidden: mx.array) -> mx.array:
        """Return uncorrected logits, (n, candidates), from a block's hidden states, (n, hidden_size)."""
        logits = self._output(hidden)
        cap = self.config.softcap
        return logits if cap is None else mx.tanh(logits / cap) * cap

    def state(self, hidden: mx.array, base: mx.array, depth: int, tokens: mx.array, past: mx.array | None) -> HeadState:
        """Return the state of beams; their logits are lazy.

        Args:
            hidden: (n, hidden_size): hidden states of the tokens that are drafted.
            base: (n, candidates) their `base_logits`.
            depth: Index of the token that is drafted next.
            tokens: (beams,) the last tokens.
            past: (beams, rank) recurrent state before these tokens; None without one.
        """
        if self._markov is None:
            logits = mx.broadcast_to(base[depth].astype(mx.float32), (tokens.shape[0], self.candidates))
            return _BlockState(self, hidden, base, depth, logits, None)
        bias, past = self._markov(tokens, hidden[depth], past)
        return _BlockState(self, hidden, base, depth, _plus(base[depth], bias), past)


class BlockMemory(ContextMemory):
    """Keys and values of the text before a block, for each layer of the drafter."""

    def __init__(self, head: BoundBlockHead) -> None:
        super().__init__(head.config.layers, looks_ahead=False)
        self._head = head

    @override
    def feed(
        self, hidden: mx.array, following: mx.array, positions: Sequence[int], *, every: bool = False
    ) -> mx.array | None:
        rows = self._head.network.context_rows(hidden.astype(self._head.dtype), positions)
        for buffer, parts in zip(self.buffers, rows, strict=True):
            buffer.write(parts, 0)
        return None

    @override
    def state(self, root: Root) -> HeadState:
        self.catch_up(root)
        head, config, start = self._head, self._head.config, root.position
        block = range(start, start + config.block_size)
        positions: RowPositions = block if root.later is None else mx.array([*block], mx.int32) + root.later
        hidden = head.network.block(head.embeddings(root.token), positions, partial(self._extended, root))
        hidden = hidden if config.from_anchor else hidden[1:]
        first = mx.array(root.token, mx.int32).reshape(1)
        return head.state(hidden, head.base_logits(hidden), 0, first, None)

    def _extended(self, root: Root, layer: int, rows: Rows) -> tuple[Rows, mx.array | str | None]:
        """Return all rows that the block below a root attends to; its own rows are appended and not kept."""
        config, size = self._head.config, self._head.config.block_size
        window, causal = config.windows[layer], config.causal[layer]
        start = 0 if window is None else bisect_left(self.positions, root.position - window)
        seen = self.followed_by(layer, rows, start)
        if root.later is None:
            return seen, "causal" if causal else None
        mask = self.visible(mx.array(np.tri(size, dtype=np.bool_)) if causal else None, size, start)
        if window is not None and mask is not None:
            positions = mx.array([*self.held[start:], *[root.position + root.latest] * size], mx.int32)
            mask = mask & (positions >= root.position + root.later - window)
        return seen, mask


@dataclass(frozen=True, slots=True)
class _BlockState(HeadState):
    """The live beams inside one drafted block.

    Attributes:
        head: The drafter.
        hidden: (n, hidden_size): hidden states of the tokens that are drafted.
        base: (n, candidates): their uncorrected logits.
        depth: Index of the token that is drafted next.
        corrected: (beams, candidates) float32: corrected logits of the token at `depth`.
        past: (beams, rank) recurrent state after the last tokens; None without one.
    """

    head: BoundBlockHead
    hidden: mx.array
    base: mx.array
    depth: int
    corrected: mx.array
    past: mx.array | None

    @override
    def logits(self) -> mx.array:
        return self.corrected

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        past = None if self.past is None else self.past[beams]
        return self.head.state(self.hidden, self.base, self.depth + 1, tokens, past)


@partial(mx.compile, shapeless=True)
def _plus(base: mx.array, bias: mx.array) -> mx.array:
    return base.astype(mx.float32) + bias.astype(mx.float32)
