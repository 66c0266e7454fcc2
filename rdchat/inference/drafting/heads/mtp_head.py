"""A model's own multi-token-prediction (MTP) layers as a drafter: the target's decoder layer, one pass per level.

The row at position p is computed from the target's hidden state of token p and the embedding of token p + 1; its output
gives the logits of token p + 2. Both inputs are normalised, put side by side and projected to the model's width; then
they go through a decoder layer of the target's own class, with keys and values of its own. For a drafted token there is
no hidden state of the target, so the layer's own output replaces it (DeepSeek-V3, arXiv 2412.19437, section 2.2).

With several layers, each drafts one token in turn, and the last one all further tokens. The row of layer k + 1 at
position p + 1 takes layer k's output at position p and the embedding of token p + 2, as in transformers' `MtpModel`. So
each layer has one row less than the one before. In a draft, a level has rows of its layer and of those after it.

Embeddings and output rows are the target's: published copies of them are the same numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product, starmap
from typing import Any, NamedTuple, override

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import ModelError, one_line
from rdchat.inference.api import ImageSpan, shift_before
from rdchat.inference.device import on_gpu
from rdchat.inference.drafting.heads.context_memory import ContextMemory, ContextState
from rdchat.inference.drafting.heads.decoder import Rows
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root, evaluate_weights
from rdchat.inference.verification import HiddenReads, KVCache, LoadedModel, ModelHooks, RowBuffer, TargetEmbeddings

# Modules that stay floats, by the last part of their names: a few rows of them decide a lot.
_ROUTERS = ("gate", "router", "shared_expert_gate")
_HINT = "Use the MTP layers that were published for this model."

Weights = Mapping[str, mx.array]


class Reading(NamedTuple):
    """Which hidden states an MTP layer takes. The wrong choice lowers acceptance, but never changes the text."""

    before_norm: bool = False
    """Whether it reads the target's hidden states before the target's final norm."""
    recycles_before_norm: bool = False
    """Whether its own output replaces them before its output norm."""

    @property
    def description(self) -> str:
        """What the layer reads, for people: the rest of a sentence that begins with "It"."""
        first, then = ("before" if flag else "after" for flag in self)
        return f"reads the hidden state {first} the final norm and its own output {then} its norm"

    def reads(self, model: LoadedModel) -> HiddenReads:
        """Return the target's hidden states that are read."""
        last = len(getattr(model.network, "layers", ())) - 1
        return HiddenReads((last,), trunk=False, normalised=False) if self.before_norm else HiddenReads()


READINGS = tuple(starmap(Reading, product((False, True), repeat=2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpConfig:
    """The settings of an MTP layer that its files give; all others are the target's.

    Attributes:
        target_width: Width of the target's hidden states.
        target_depth: Number of the target's layers.
        vocabulary_size: Number of the target's tokens.
        norm_epsilon: Added to the mean square in each norm.
        hidden_first: Whether the projection takes [hidden, embedding] instead of [embedding, hidden].
        readings: The possible readings, the most likely first.
        layers: Layers in the files.
        target_layers: Layers of the target that are read besides; see `HiddenReads`.
    """

    target_width: int
    target_depth: int
    vocabulary_size: int
    norm_epsilon: float
    hidden_first: bool
    readings: tuple[Reading, ...]
    layers: int = 1
    target_layers: tuple[int, ...] = ()


class LayerCache:
    """Stands in for a KV cache in a call of mlx-lm's decoder layer: `extend` takes the new rows of keys and values.

    It returns all rows that the new ones attend to.
    """

    def __init__(self, extend: Callable[[list[mx.array]], list[mx.array]]) -> None:
        self._extend = extend
        # Position of the first new row.
        self.offset = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add new rows, (1, heads, n, width); return all."""
        self.keys, self.values = self._extend([keys, values])
        return self.keys, self.values


class MtpNetwork(nn.Module):
    """The layer with its norms and its projection.

    Args:
        config: Its sizes.
        block: A decoder layer of the target's class.
        caches: Caches that the layer takes: 1, or 2 in a list; also an attribute.
    """

    def __init__(self, config: MtpConfig, block: nn.Module, caches: int) -> None:
        super().__init__()
        width = config.target_width
        self.enorm, self.hnorm, self.norm = (nn.RMSNorm(width, config.norm_epsilon) for _ in range(3))
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.block = block
        self._hidden_first = config.hidden_first
        self.caches = caches
        self._hooks = ModelHooks(self)

    def rows(
        self,
        embeddings: mx.array,
        hidden: mx.array,
        positions: Sequence[int],
        caches: Sequence[LayerCache],
        mask: mx.array | None,
        *,
        later: mx.array | None = None,
    ) -> mx.array:
        """Return the layer's outputs, (n, width), for n rows.

        Args:
            embeddings: (n, width) of the tokens after the rows' own.
            hidden: (n, width) hidden states of the target, or what replaces them.
            positions: (n,) absolute positions of the hidden states.
            caches: The layer's caches.
            mask: (n, all rows) bool: which rows each one attends to; None where it attends to all.
            later: () int32, lazy: to be added to the positions; None for 0.
        """
        parts = [self.enorm(embeddings), self.hnorm(hidden)]
        x = self.eh_proj(mx.concatenate(parts[::-1] if self._hidden_first else parts, axis=-1))
        # The layer rotates rows by their caches' offset, counted up from row to row. Where that is wrong, `depths` has
        # each row's distance from the first instead, and the hooks of the layer's rope add it.
        first = positions[0]
        for cache in caches:
            cache.offset = first
        consecutive = positions[-1] - first == len(positions) - 1
        depths = None
        if later is not None or not consecutive:
            depths = mx.array(np.subtract(positions, first), mx.int32)
            depths = depths if later is None else depths + later
        with self._hooks.packed(depths):
            output: mx.array = self.block(x[None], mask, caches[0] if self.caches == 1 else [*caches])
        return output[0]


class BoundMtpHead(Head):
    """MTP layers that are bound to their target; see `Head`.

    Args:
        config: The settings in the layers' files.
        networks: A fresh network for each layer, with a decoder layer of the target's class.
        weights: Return the weights of each by name in `MtpNetwork`, lazy.
        model: The target.

    Attributes:
        embed: Returns the embeddings of tokens, (n,) ids, (n, width).
        readings: The possible readings, the most likely first; `read_as` chooses one.

    Raises:
        ModelError: If its weights are not those of the target's decoder layer.
    """

    kind = HeadKind.MTP

    def __init__(
        self,
        config: MtpConfig,
        networks: Sequence[MtpNetwork],
        weights: Sequence[Callable[[], Weights]],
        model: LoadedModel,
    ) -> None:
        info = model.info
        embeddings = TargetEmbeddings(model.network, info.vocabulary_size)
        self.dtype = embeddings.dtype
        self.candidates = info.vocabulary_size
        self.vocabulary = mx.arange(self.candidates, dtype=mx.int32)
        self.networks = networks
        for network, read in zip(networks, weights, strict=True):
            self._load(network, read, model)
        self.embed = embeddings.embed
        self._output = embeddings.output()
        self._reads = {reading: reading.reads(model) for reading in READINGS}
        self.readings = config.readings
        self.read_as(config.readings[0])

    def read_as(self, reading: Reading) -> None:
        """Choose which hidden states it takes; memories made before are useless then."""
        self.reading = reading
        self.reads = self._reads[reading]

    @contextmanager
    def reading_as(self, reading: Reading) -> Iterator[None]:
        """Within the block, take these hidden states."""
        usual = self.reading
        self.read_as(reading)
        try:
            yield
        finally:
            self.read_as(usual)

    @override
    def memory(self) -> HeadMemory:
        return MtpMemory(self)

    def row_logits(self, output: mx.array, layer: int = 0) -> mx.array:
        """Return the logits, (n, candidates) float32, of the token after rows of a layer, from outputs (n, width)."""
        return self._output(self.networks[layer].norm(output)).astype(mx.float32)

    def recycled(self, output: mx.array, layer: int) -> mx.array:
        """Return what replaces the target's hidden states after rows with this output of a layer, (n, width)."""
        recycled: mx.array = output if self.reading.recycles_before_norm else self.networks[layer].norm(output)
        return recycled

    def _load(self, network: MtpNetwork, read: Callable[[], Weights], model: LoadedModel) -> None:
        """Read a layer's weights into its network, quantised as they are stored or, on a GPU, as the target is."""
        try:
            # The target's own `sanitize`, which expects all tensors, makes them.
            weights = dict(read())
            packed = {name.removesuffix(".scales") for name in weights if name.endswith(".scales")}
            if packed:
                nn.quantize(
                    network, class_predicate=lambda name, _: name in packed and _packing(name, weights, network)
                )
            network.load_weights([(name, _cast(name, tensor, self.dtype)) for name, tensor in weights.items()])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            reason = one_line(error)[:200]
            raise ModelError(f"The MTP layers are not those of {model.info.name}: {reason}", _HINT) from error
        if not packed and on_gpu():
            _quantize_as(network, model.network)
        network.eval()
        evaluate_weights(network)


class MtpMemory(ContextMemory):
    """Keys and values of committed rows, and the outputs that further layers read; see `HeadMemory`.

    The outputs of all layers for a token are side by side, (n, layers * width); zeros where a layer has no row. For
    rope, rows have the positions that the target gives their tokens: images shift those behind them.
    """

    def __init__(self, head: BoundMtpHead) -> None:
        self.head = head
        self._images: Sequence[ImageSpan] = ()
        # Buffers of a layer: its caches, then its outputs.
        self.stride = head.networks[0].caches + 1
        super().__init__(len(head.networks) * self.stride, looks_ahead=True)

    @override
    def use_cache(self, cache: KVCache) -> None:
        self._images = cache.images

    def _rope_position(self, position: int) -> int:
        """Return the position by which a token's row is rotated."""
        return position + shift_before(self._images, position)

    @override
    def reset(self) -> None:
        super().reset()
        # Row 0 of a layer is at the position of its number.
        for number, buffer in enumerate(self.buffers):
            buffer.first = number // self.stride

    @override
    def feed(
        self, hidden: mx.array, following: mx.array, positions: Sequence[int], *, every: bool = False
    ) -> mx.array | None:
        """See `ContextMemory`.

        Layer 0 has a row for each hidden state. A row of a further layer reads the layer before it at the row before.
        So for a text of three tokens, layer 0 has three rows, layer 1 two, and layer 2 one.
        """
        head = self.head
        count = len(positions)
        # What the next layer's rows read.
        taken = hidden.astype(head.dtype)
        embeddings = head.embed(following)
        if self._images:
            positions = [*map(self._rope_position, positions)]
        outputs: list[mx.array] = []
        for layer, network in enumerate(head.networks):
            *buffers, output_buffer = self.buffers[layer * self.stride : (layer + 1) * self.stride]
            held = buffers[0].rows
            # `count`, or fewer at the beginning of a text, where each layer has one less than the layer before.
            rows = taken.shape[0]
            output = mx.zeros((0, taken.shape[1]), head.dtype)
            if rows:
                mask = None if rows == 1 else mx.tril(mx.ones((rows, held + rows), mx.bool_), held)
                caches = [LayerCache(partial(_append, buffer)) for buffer in buffers]
                output = network.rows(embeddings[-rows:], taken, positions[-rows:], caches, mask)
            if network is not head.networks[-1] and rows:
                output_buffer.append_rows([output[None, None]], 0)
                # A row reads the output of the row before it: the buffer's rows without the last one, of which this
                # call needs `count` at most. Without rows, `taken` stays empty for all further layers.
                taken = head.recycled(output_buffer.view(output_buffer.first)[0][0, 0, :-1][-count:], layer)
            outputs.append(mx.pad(output, [(count - rows, 0), (0, 0)]) if rows < count else output)
        everything = mx.concatenate(outputs, axis=-1)
        return everything if every else everything[-1:]

    @override
    def root_state(self, root: Root) -> HeadState:
        return _MtpState(self, self.output_before(root), [], self._rope_position(root.position), root.later)


@dataclass(frozen=True, slots=True)
class _MtpState(ContextState):
    """See `ContextState`; a cache that a layer takes is a layer there, and `rows` begins with those of `layer`.

    With three layers, the root's logits come from layer 0, those of the first drafted token from layer 1, and all
    further ones from layer 2.

    Attributes:
        level: Drafted tokens.
    """

    memory: MtpMemory
    level: int = 0

    @property
    def layer(self) -> int:
        """The layer that gives the logits."""
        return min(self.level, len(self.memory.head.networks) - 1)

    @override
    def logits(self) -> mx.array:
        head = self.memory.head
        outputs = mx.split(self.output, len(head.networks), axis=-1)
        return head.row_logits(outputs[self.layer], self.layer)

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        """See `HeadState`.

        Each layer from the next level's on reads the output of the layer before it. Once every layer has drafted, the
        last one reads its own. With three layers, level 1 has rows of layers 1 and 2, and all further levels one of
        layer 2: at level 2 it reads layer 1, and from level 3 on itself.
        """
        memory = self.memory
        head = memory.head
        last = len(head.networks) - 1
        seen, mask = self.below(beams)
        earlier = mx.split(self.output[beams], last + 1, axis=-1)
        embeddings = head.embed(tokens)
        positions = [self.position] * tokens.shape[0]
        outputs = [*earlier]
        rows = list[Rows]()
        for layer in range(min(self.level + 1, last), last + 1):
            network = head.networks[layer]
            source = layer if self.level >= last else layer - 1
            hidden = head.recycled(earlier[source], source)
            caches = [LayerCache(partial(self._follow, rows, layer, number)) for number in range(network.caches)]
            # Each layer has a row less than the one before it, at the beginning of the text.
            visible_mask = None if mask is None else mask[:, min(layer, memory.buffers[0].rows) :]
            outputs[layer] = network.rows(embeddings, hidden, positions, caches, visible_mask, later=self.later)
        output = mx.concatenate(outputs, axis=-1)
        return _MtpState(memory, output, rows, self.position + 1, self.later, seen, self.level + 1)

    def _follow(self, rows: list[Rows], layer: int, cache: int, new: Rows) -> Rows:
        """Append a cache's rows of the draft, the new ones last, to `rows`; return them behind the text's rows.

        `joined` counts the caches of the layers that drafted last, from `self.layer` on. The memory's buffers are those
        of all layers, with a buffer of outputs behind each layer's caches.
        """
        stride = self.memory.stride
        rows.append(self.joined((layer - self.layer) * (stride - 1) + cache, new))
        return self.memory.followed_by(layer * stride + cache, rows[-1])


def _append(buffer: RowBuffer, new: list[mx.array]) -> list[mx.array]:
    """Write new rows into a buffer; return all."""
    buffer.append_rows(new, 0)
    return buffer.view(buffer.first)


def _cast(name: str, tensor: mx.array, dtype: mx.Dtype) -> mx.array:
    """Return a tensor in the target's precision; packed weights and the router's bias stay as they are."""
    keep = not mx.issubdtype(tensor.dtype, mx.floating) or name.endswith("e_score_correction_bias")
    return tensor if keep else tensor.astype(dtype)


def _packing(name: str, weights: Weights, network: nn.Module) -> dict[str, Any]:
    """Return group size and bits of a packed matrix, from its shape and the shape of the matrix it replaces."""
    width = dict(network.named_modules())[name].weight.shape[-1]
    group = width // weights[f"{name}.scales"].shape[-1]
    return {"group_size": group, "bits": weights[f"{name}.weight"].shape[-1] * 32 // width}


def _quantize_as(network: nn.Module, target: nn.Module) -> None:
    """Quantise an MTP layer as its target is, if it is; its projection and routers stay floats.

    A draft's time on a GPU is spent reading weights.
    """
    packed: Any = next((module for module in target.modules() if isinstance(module, nn.QuantizedLinear)), None)
    if packed is None:
        return

    def fits(name: str, module: nn.Module) -> bool:
        small = name.rsplit(".", 1)[-1] in (*_ROUTERS, "eh_proj")
        return hasattr(module, "to_quantized") and not small and module.weight.shape[-1] % packed.group_size == 0

    nn.quantize(network, packed.group_size, packed.bits, mode=packed.mode, class_predicate=fits)
