"""A block drafter bound to its target: one pass over a block, then a light correction a step; see `block_network`."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import override

import mlx.core as mx
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.block_config import BlockConfig, LayerStyle
from rdchat.inference.drafting.heads.block_network import BlockNetwork, MarkovHead, Rows
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root, StoredHead
from rdchat.inference.drafting.heads.positions import rotated
from rdchat.inference.drafting.heads.quantised_copy import quantize_weights, usual_bits
from rdchat.inference.target.embeddings import TargetEmbeddings, embedding_scale
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel

_HINT = "Use a drafter that was made for this model."


@dataclass(frozen=True, slots=True)
class StoredBlockHead(StoredHead):
    """A block drafter that is bound to no target yet.

    Attributes:
        config: Its shape.
        weights: Returns the network's tensors by their published names, lazy where they come from a file: then floats
            are never all in memory beside their quantised copies.
        vocabulary: (draft_vocabulary_size,) int32 ids of the tokens that it can draft, ascending; None for all.
    """

    config: BlockConfig
    weights: Callable[[], Mapping[str, mx.array]]
    vocabulary: mx.array | None = None

    def bind(self, model: LoadedModel, bits: int | None = None) -> "BoundBlockHead":
        """See `StoredHead`.

        Args:
            model: The target.
            bits: Of a quantised copy's weights, 4 or 8; 0 for floats. None takes `usual_bits`.
        """
        return BoundBlockHead(self, model, usual_bits() if bits is None else bits)


class BoundBlockHead(Head):
    """A block drafter in the target's precision or quantised, with the tables of its own or the target's; see `Head`.

    Args:
        stored: The drafter.
        model: The target.
        bits: Of the weights of a quantised copy; 0 for floats.

    Raises:
        ModelError: If the target's hidden states or tables are not such as it needs.
    """

    kind = HeadKind.BLOCK
    remembers = True
    drafts_ahead = False
    inverse_temperature = 1.0

    def __init__(self, stored: StoredBlockHead, model: LoadedModel, bits: int) -> None:
        self.config = config = stored.config
        vocabulary = stored.vocabulary
        self.reads = HiddenReads(config.target_layers, trunk=False, normalised=False)
        self.most_drafted = config.most_drafted
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        self._check(model, embeddings)
        self.dtype = embeddings.dtype
        self.network = _network(stored, self.dtype, bits)
        self._masks = mx.full((config.block_size - 1,), config.mask_token, mx.int32)
        own = config.own_embeddings
        self._table: Callable[[mx.array], mx.array] = self.network.embed_tokens if own else embeddings.embed
        width = config.hidden_size
        if own:
            self._scale = float(width**0.5) if config.style is LayerStyle.GEMMA4 else 1.0
        else:
            self._scale = embedding_scale(model.info.architecture, width)
        self._output: Callable[[mx.array], mx.array]
        if config.own_output:
            self._output = self.network.lm_head
        else:
            self._output = embeddings.output() if vocabulary is None else embeddings.output_for(vocabulary)
        self._markov: MarkovHead | None = self.network.get("markov_head")
        self.candidates = config.draft_vocabulary_size
        self.vocabulary = mx.arange(self.candidates, dtype=mx.int32) if vocabulary is None else vocabulary

    @override
    def memory(self) -> HeadMemory:
        """See `Head`."""
        return BlockMemory(self)

    def embeddings(self, root: int | mx.array) -> mx.array:
        """Return the embeddings, (block_size, hidden_size), of a block: a root, () or an id, and masks behind it."""
        first = mx.array(root, mx.int32).reshape(1)
        found = self._table(mx.concatenate([first, self._masks])).astype(self.dtype)
        return found if self._scale == 1 else found * self._scale

    def base_logits(self, hidden: mx.array) -> mx.array:
        """Return (n, candidates) logits without correction, of the hidden states of a block, (n, hidden_size)."""
        logits = self._output(hidden)
        return logits if self.config.softcap is None else _capped(logits, mx.array(self.config.softcap, logits.dtype))

    def state(self, hidden: mx.array, base: mx.array, depth: int, tokens: mx.array, past: mx.array | None) -> HeadState:
        """Return the state of beams, whose logits are only computed where somebody asks for them.

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

    def _check(self, model: LoadedModel, embeddings: TargetEmbeddings) -> None:
        """Look at what a call of the target would give; nothing of it is computed."""
        config, info = self.config, model.info
        if config.hidden_size != embeddings.width:
            raise ModelError(
                f"The drafter is for a model of width {config.hidden_size:,}, that of {info.name} is "
                f"{embeddings.width:,}.",
                _HINT,
            )
        if config.vocabulary_size != info.vocabulary_size:
            raise ModelError(
                f"The drafter is for {config.vocabulary_size:,} tokens, {info.name} has {info.vocabulary_size:,}.",
                _HINT,
            )
        model.hooks.read(self.reads)
        model.network(mx.array([[0]]))
        given = model.hooks.hidden
        if given is None or given.shape != (1, 1, len(config.target_layers) * config.hidden_size):
            raise ModelError(f"The layers of {info.name} give no hidden states that the drafter could read.", _HINT)


class BlockMemory(ContextMemory):
    """Keys and values of the text before a block, in each of the drafter's layers."""

    def __init__(self, head: BoundBlockHead) -> None:
        super().__init__(head.config.layers, looks_ahead=False)
        self._head = head

    @override
    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int]) -> None:
        """See `ContextMemory`."""
        network = self._head.network
        rows = network.context_rows(
            hidden.astype(self._head.dtype), partial(rotated, network.rope, positions=positions)
        )
        for buffer, parts in zip(self.buffers, rows, strict=True):
            buffer.write(parts, 0)

    @override
    def state(self, root: Root) -> HeadState:
        """See `HeadMemory`."""
        self.catch_up(root)
        head, config = self._head, self._head.config
        place = partial(head.network.rope, offset=root.position)
        hidden = head.network.block(head.embeddings(root.token), place, partial(self._extended, root.position))
        hidden = hidden if config.from_anchor else hidden[1:]
        first = mx.array(root.token, mx.int32).reshape(1)
        return head.state(hidden, head.base_logits(hidden), 0, first, None)

    def _extended(self, position: int, layer: int, rows: Rows) -> tuple[Rows, mx.array | str | None]:
        """Return all rows that a block at a position attends to; its own are written behind the kept ones, and go."""
        config, buffer = self._head.config, self.buffers[layer]
        window = config.windows[layer]
        start = 0 if window is None else bisect_left(self.positions, position - window)
        buffer.write(rows, 0)
        keys, values = buffer.view(start)
        buffer.cut(len(self.positions))
        return (keys, values), "causal" if config.causal[layer] else None


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


def _network(stored: StoredBlockHead, dtype: mx.Dtype, bits: int) -> BlockNetwork:
    """Return a network in a precision, quantised where `bits` is not 0; layers that do not fit groups stay floats."""
    network = BlockNetwork(stored.config)
    network.load_weights([(name, tensor.astype(dtype)) for name, tensor in stored.weights().items()])
    quantize_weights(network, bits)
    for _, tensor in tree_flatten(network.parameters()):
        mx.eval(tensor)  # one by one: what it is computed from goes at once
    return network


@partial(mx.compile, shapeless=True)
def _plus(base: mx.array, bias: mx.array) -> mx.array:
    return base.astype(mx.float32) + bias.astype(mx.float32)


@partial(mx.compile, shapeless=True)
def _capped(logits: mx.array, cap: mx.array) -> mx.array:
    return mx.tanh(logits / cap) * cap
