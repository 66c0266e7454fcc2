"""A block drafter bound to its target: one pass over a block, then a correction for each token; see `block_network`.

`BlockMemory` keeps the drafter's keys and values of the text. Its `root_state` makes the pass, whose outputs are a
`DraftedBlock`; each further step of the beam search corrects the next token's logits by the tokens before it.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import override

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.block_network import (
    BlockConfig,
    BlockNetwork,
    CandidateSelector,
    CausalRefiner,
    joined,
)
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.decoder import RowPositions, Rows, bounded
from rdchat.inference.drafting.heads.head import BoundNetwork, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.verification import LoadedModel, embedding_scale

# Position that is inside every window: a block's rows see one another.
_ALWAYS_NEAR = 2**30

Correction = Callable[[mx.array, mx.array, mx.array | None], tuple[mx.array, mx.array | None]]
"""Takes (beams,) last tokens, `DraftedBlock.features` of the next and (beams, ...) state or rows of the tokens before.

Returns what is added to each beam's logits, (beams, candidates), and the state or rows after the last tokens."""


class BoundBlockHead(BoundNetwork):
    """A block drafter that is bound to its target; see `BoundNetwork`."""

    kind = HeadKind.BLOCK
    network_of = BlockNetwork

    @override
    def _finish(self, model: LoadedModel) -> None:
        """Choose the scale of the embeddings, and the correction that the network has, if any."""
        config: BlockConfig = self.config
        self.max_drafted = config.max_drafted
        self._masks = mx.full((config.block_size - 1,), config.mask_token, mx.int32)
        if config.input_scale is not None:
            self._scale = config.input_scale
        elif not config.own_embeddings:
            self._scale = embedding_scale(model.info.architecture, config.hidden_size)
        else:
            self._scale = float(config.hidden_size**0.5) if config.gemma else 1.0
        self.candidates = config.selected or self.candidates
        network = self.network
        self._refiner: CausalRefiner | None = network.get("refiner_head")
        self._selector: CandidateSelector | None = network.get("candidate_selector")
        self._correct: Correction | None = network.get("markov_head") or self._refiner or self._selector
        if config.gru_size:
            self._correct = self._domino

    @override
    def memory(self) -> HeadMemory:
        return BlockMemory(self)

    def embeddings(self, root: int | mx.array, rows: int) -> mx.array:
        """Return the embeddings of a block, (rows, hidden_size): a root, () or an id, then mask tokens."""
        return self._scaled(mx.concatenate([mx.array(root, mx.int32).reshape(1), self._masks[: rows - 1]]))

    def beam_of_root(self, hidden: mx.array, root: mx.array, before: mx.array) -> HeadState:
        """Return the state of a single beam with only the root.

        Row 0 of the block is the root's. It drafts the first token if `from_anchor`; otherwise row 1 does, and row 0 is
        of use to the refiner alone.

        Args:
            hidden: (rows, hidden_size): hidden states of a block.
            root: (1,) the root.
            before: (1,) the token before it.
        """
        from_anchor = self.config.from_anchor
        past = None
        block = self._drafted(hidden if from_anchor else hidden[1:])
        if self._refiner is not None:
            features = self._refiner.features(hidden)
            if not from_anchor:
                past = self._refiner(before, features[0], None)[1]
            block = replace(block, features=features if from_anchor else features[1:])
        return self.beam_state(block, 0, root, past)

    def _drafted(self, hidden: mx.array) -> "DraftedBlock":
        """Return a block's uncorrected logits, from the hidden states of its drafted tokens, (n, hidden_size)."""
        config = self.config
        logits = self._output(hidden)
        logits = logits if config.output_scale == 1 else logits * config.output_scale
        logits = bounded(logits, config.softcap)
        if self._selector is None:
            return DraftedBlock(logits, hidden)
        ids, logits, products = self._selector.candidates(hidden, logits, config.selected)
        return DraftedBlock(logits, products, ids)

    def beam_state(self, block: "DraftedBlock", depth: int, tokens: mx.array, past: mx.array | None) -> HeadState:
        """Return the state of beams; their logits are lazy.

        Args:
            block: The block.
            depth: Index of the token that is drafted next.
            tokens: (beams,) the last tokens.
            past: (beams, ...) recurrent state or rows before these tokens; None without.
        """
        base = block.base[depth]
        bias = None
        if self._correct is not None:
            bias, past = self._correct(tokens, block.features[depth], past)
        if bias is None or depth < self.config.uncorrected:
            logits = mx.broadcast_to(base.astype(mx.float32), (tokens.shape[0], self.candidates))
        else:
            logits = _plus(base, bias)
        return _BlockState(self, block, depth, logits, past)

    def _domino(self, tokens: mx.array, hidden: mx.array, past: mx.array | None) -> tuple[mx.array, mx.array]:
        """Return the bias of a Domino's GRU, and its state; see `Correction`."""
        past = self.network.prefix_gru(self._scaled(tokens), past)
        bias = joined(hidden, past)
        for part in self.network.embed_proj:
            bias = part(bias)
        return bias, past

    def _scaled(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens as the block takes them."""
        embeddings = self.embed(tokens)
        return embeddings if self._scale == 1 else embeddings * self._scale


@dataclass(frozen=True, slots=True)
class DraftedBlock:
    """The outputs of one pass over a block.

    Attributes:
        base: (n, candidates): uncorrected logits of the tokens that are drafted.
        features: (n, ...): what the correction reads for each: its hidden state, or what the correction made of it.
        ids: (n, candidates) int32: ids of the columns; None for the head's vocabulary.
    """

    base: mx.array
    features: mx.array
    ids: mx.array | None = None


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
            buffer.append_rows(parts, 0)
        return None

    @override
    def root_state(self, root: Root) -> HeadState:
        self.catch_up(root)
        head = self._head
        start = root.position
        rows = head.config.block_rows(root.drafted)
        block = range(start, start + rows)
        positions: RowPositions = block if root.later is None else mx.array([*block], mx.int32) + root.later
        mask = cache(partial(self._mask, root))
        hidden = head.network.block(head.embeddings(root.token, rows), positions, partial(self._extended, root, mask))
        return head.beam_of_root(hidden, mx.array(root.token, mx.int32).reshape(1), self._before(root))

    def _before(self, root: Root) -> mx.array:
        """Return the token before a root, (1,); where it is not known, the root, as at the beginning of a text."""
        token: int | mx.array = root.token
        if root.later is not None:
            # The last token of the path that was taken ahead.
            token = self.path[root.later]
        elif 0 < root.position <= len(self._text) and self._text[root.position - 1] >= 0:
            token = self._text[root.position - 1]
        return mx.array(token, mx.int32).reshape(1)

    def _extended(
        self, root: Root, mask: "Callable[[int | None, bool], mx.array | str | None]", layer: int, rows: Rows
    ) -> tuple[Rows, mx.array | str | None]:
        """Return all rows that the block below a root attends to; its own rows are appended and not kept."""
        config = self._head.config
        window = config.windows[layer]
        return self.followed_by(layer, rows, self._first(root, window)), mask(window, config.causal[layer])

    def _first(self, root: Root, window: int | None) -> int:
        """Return the index of the first row that a block below a root may see."""
        return 0 if window is None else bisect_left(self.positions, root.position - window)

    def _mask(self, root: Root, window: int | None, causal: bool) -> mx.array | str | None:
        """Return which rows the block's rows see, (block's rows, rows); see `Attention`.

        Without rows taken ahead, and with all the text inside the window, it is "causal" or None. Otherwise a row is
        seen if it is visible (`visible`), and inside the window where that cuts the text.
        """
        size = self._head.config.block_rows(root.drafted)
        near = None if window is None else self._near(root, window, size)
        if root.later is None and near is None:
            return "causal" if causal else None
        own = mx.array(np.tri(size, dtype=np.bool_)) if causal else None
        seen = self.visible(own, size, self._first(root, window))
        if near is None:
            return seen
        return near if seen is None else seen & near

    def _near(self, root: Root, window: int, size: int) -> mx.array | None:
        """Return which rows are inside the windows of a block's rows, (`size`, rows); None if surely all are.

        In a block at position 10, with a window of 4, all rows see the text from position 6 on. Where windows are
        rolling, row 0 (the root's) sees it from 6 on, row 1 from 7 on, and so on.
        """
        text = self.held[self._first(root, window) :]
        # While `later` is 0; otherwise all begin later by it.
        begins = root.position - window + self._head.config.rolling * np.arange(size, dtype=np.int32)
        if not text or text[0] >= begins[-1] + root.latest:
            return None
        later = 0 if root.later is None else root.later
        return mx.array([*text, *[_ALWAYS_NEAR] * size], mx.int32) >= mx.array(begins)[:, None] + later


@dataclass(frozen=True, slots=True)
class _BlockState(HeadState):
    """The live beams inside one drafted block.

    Attributes:
        head: The drafter.
        block: The block.
        depth: Index of the token that is drafted next.
        corrected: (beams, candidates) float32: corrected logits of the token at `depth`.
        past: (beams, ...) recurrent state or rows after the last tokens; None without.
    """

    head: BoundBlockHead
    block: DraftedBlock
    depth: int
    corrected: mx.array
    past: mx.array | None

    @override
    def logits(self) -> mx.array:
        return self.corrected

    @override
    def ids(self) -> mx.array | None:
        return None if self.block.ids is None else self.block.ids[self.depth]

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        past = None if self.past is None else self.past[beams]
        return self.head.beam_state(self.block, self.depth + 1, tokens, past)


@partial(mx.compile, shapeless=True)
def _plus(base: mx.array, bias: mx.array) -> mx.array:
    return base.astype(mx.float32) + bias.astype(mx.float32)
