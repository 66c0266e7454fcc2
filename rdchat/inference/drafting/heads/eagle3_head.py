"""An EAGLE-3 drafter bound to its target: committed rows in a memory, one pass per level of the tree.

The row at position p is computed from the target's features of token p and the embedding of token p + 1; its output
gives the logits of token p + 2. So the row before the root contains the root. Rows of drafted tokens exist only in the
state of the draft, so nothing is rolled back.

The network (Li et al. 2025, arXiv 2503.01840) is a few transformer layers over the target's features, which are the
outputs of several of the target's layers, concatenated; `fc` projects them to the drafter's width. The first layer
attends with the normalised embedding beside them. For a drafted token there are no features, so the layers' own output
replaces them. Module names are those of checkpoints of SafeAILab, SpecForge, vLLM's speculators and DeepSpec, which
differ in their switches; SafeAILab's `midlayer` is `layers.0` here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import override

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.drafting.heads.context_memory import ContextMemory, ContextState
from rdchat.inference.drafting.heads.decoder import (
    DecoderConfig,
    DecoderLayer,
    Shape,
    ShapedModule,
    below,
    bounded,
)
from rdchat.inference.drafting.heads.head import BoundNetwork, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.verification import LoadedModel


class FeatureNorm(StrEnum):
    """How the target's features are normalised before `fc`: not at all, together, or layer by layer."""

    NONE = "none"
    TOGETHER = "norm_before_fc"
    EACH = "fc_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config(DecoderConfig):
    """Sizes and switches of an EAGLE-3 drafter; a row's window includes the row itself.

    Attributes:
        takes_embedding: For each layer whether it attends with the embedding and the hidden state.
        tied_output: Whether the output rows are its own embeddings.
        feature_norm: How the target's features are normalised.
        norm_before_residual: Whether the first layer's residual is the normalised hidden state.
        norm_output: Whether the last norm also applies to the output that replaces the features (EAGLE 3.1).
    """

    takes_embedding: tuple[bool, ...]
    tied_output: bool = False
    feature_norm: FeatureNorm = FeatureNorm.NONE
    norm_before_residual: bool = False
    norm_output: bool = False

    @override
    def shapes(self) -> dict[str, Shape]:
        shapes = DecoderConfig.shapes(self)
        count = len(self.target_layers)
        if self.feature_norm is FeatureNorm.TOGETHER:
            shapes["input_norm.weight"] = (count * self.target_width,)
        if self.feature_norm is FeatureNorm.EACH:
            shapes |= {f"fc_norm.{layer}.weight": (self.target_width,) for layer in range(count)}
        return shapes

    @override
    def norms(self, layer: int) -> list[str]:
        return DecoderConfig.norms(self, layer) + ["hidden_norm"] * self.takes_embedding[layer]

    @override
    def inputs(self, layer: int) -> int:
        return self.hidden_size * (1 + self.takes_embedding[layer])


class Eagle3Network(ShapedModule):
    """The drafter's weights and computations for n rows; the caller keeps keys and values.

    Args:
        config: Sizes and switches.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__(shapes := config.shapes(), config.norm_epsilon)
        self.config = config
        self.layers = [_Layer(config, below(shapes, f"layers.{number}")) for number in range(config.layers)]
        if config.feature_norm is FeatureNorm.EACH:
            self.fc_norm = [nn.RMSNorm(config.target_width, config.norm_epsilon) for _ in config.target_layers]

    def fuse(self, features: mx.array) -> mx.array:
        """Project the target's features, (n, target layers x target_width), to hidden states, (n, hidden_size)."""
        if "input_norm" in self:
            features = self.input_norm(features)
        if "fc_norm" in self:
            parts = mx.split(features, len(self.fc_norm), axis=-1)
            features = mx.concatenate([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], axis=-1)
        hidden: mx.array = self.fc(features)
        return hidden

    def carried(self, output: mx.array) -> mx.array:
        """Return what replaces the target's features after rows with this output, (n, hidden_size)."""
        carried: mx.array = self.norm(output) if self.config.norm_output else output
        return carried


class _Layer(DecoderLayer):
    """A layer as in Llama or Gemma 4; the first one also takes an embedding, in Gemma 4's all do."""

    def __init__(self, config: Eagle3Config, shapes: dict[str, Shape]) -> None:
        super().__init__(config, shapes)
        self._residual_is_normalised = config.norm_before_residual

    def inputs(self, embeddings: mx.array, hidden: mx.array) -> tuple[mx.array, mx.array]:
        """Return the attention's input, (n, 1 or 2 * hidden_size), and the residual, (n, hidden_size), of n rows."""
        if "hidden_norm" not in self:
            return self.input_layernorm(hidden), hidden
        normal = self.hidden_norm(hidden)
        inputs = mx.concatenate([self.input_layernorm(embeddings), normal], axis=-1)
        return inputs, normal if self._residual_is_normalised else hidden


class BoundEagle3Head(BoundNetwork):
    """An EAGLE-3 drafter that is bound to its target; see `BoundNetwork`.

    The target's embeddings are used without a family's scale, which the following norm would remove.
    """

    kind = HeadKind.EAGLE3
    network_of = Eagle3Network

    @override
    def _finish(self, model: LoadedModel) -> None:
        if self.config.tied_output:
            self._output = self.network.embed_tokens.as_linear

    @override
    def memory(self) -> HeadMemory:
        return Eagle3Memory(self)

    def row_logits(self, output: mx.array) -> mx.array:
        """Return the logits, (n, candidates) float32, of the token after each row, from outputs (n, hidden_size)."""
        return bounded(self._output(self.network.norm(output)).astype(mx.float32), self.config.softcap)


class Eagle3Memory(ContextMemory):
    """Keys and values of committed rows; see `HeadMemory`.

    Args:
        head: The drafter.
    """

    def __init__(self, head: BoundEagle3Head) -> None:
        super().__init__(len(head.network.layers), looks_ahead=True)
        self.head = head

    @override
    def feed(
        self, hidden: mx.array, following: mx.array, positions: Sequence[int], *, every: bool = False
    ) -> mx.array | None:
        """See `ContextMemory`; of the last layer only the needed outputs are computed."""
        head = self.head
        last = len(self.buffers) - 1
        x: mx.array = head.network.fuse(hidden.astype(head.dtype))
        embeddings = head.embed(following)
        queried: Sequence[int] = positions
        windows = head.network.config.windows
        for number, (layer, buffer, window) in enumerate(zip(head.network.layers, self.buffers, windows, strict=True)):
            inputs, residual = layer.inputs(embeddings, x)
            buffer.append_rows(layer.self_attn.rows(inputs, positions), 0)
            if number == last and not every:
                # Only the last row's output is needed.
                inputs = inputs[-1:]
                residual = residual[-1:]
                queried = positions[-1:]
            mask: mx.array | str | None = None if len(queried) == 1 else "causal"
            # Index of the first row that a query may see; `self.positions` are those of the rows before this call.
            first = 0
            if window is not None:
                first = bisect_right(self.positions, queried[0] - window)
                mask = _window_mask(queried, [*self.positions[first:], *positions], window)
            x = layer.outputs(residual, layer.self_attn(inputs, queried, buffer.view(first), mask))
        return x

    @override
    def root_state(self, root: Root) -> HeadState:
        output = self.output_before(root)
        windows = any(self.head.network.config.windows)
        positions = np.array([*self.held]) if windows else None
        return _Eagle3State(self, output, [], root.position, root.later, positions=positions)


@dataclass(frozen=True, slots=True)
class _Eagle3State(ContextState):
    """The live beams of an EAGLE-3 draft.

    Attributes:
        positions: (rows,) positions of all rows, the memory's and then the draft's; None where no layer has a window.
    """

    memory: Eagle3Memory
    positions: npt.NDArray[np.int_] | None = None

    @override
    def logits(self) -> mx.array:
        return self.memory.head.row_logits(self.output)

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        memory = self.memory
        network = memory.head.network
        count = tokens.shape[0]
        seen, visible = self.below(beams)
        # The rows of a level share a position, which is lazy in a draft begun ahead.
        position = self.position if self.later is None else self.position + self.later
        positions = None if self.positions is None else np.append(self.positions, [self.position] * count)
        x = network.carried(self.output[beams])
        embeddings = memory.head.embed(tokens)
        rows = []
        for number, (layer, window) in enumerate(zip(network.layers, network.config.windows, strict=True)):
            inputs, residual = layer.inputs(embeddings, x)
            rows.append(self.joined(number, layer.self_attn.rows(inputs, position)))
            mask = visible
            if window is not None:
                assert positions is not None
                if self.later is None:
                    near = _window_mask([self.position], positions, window)
                else:
                    # The draft's own rows move by `later` with the new ones: only distances to the text's rows grow.
                    moved = mx.array(np.arange(len(positions)) < len(memory.held))
                    distances = mx.array((self.position - positions).astype(np.int32))
                    near = _near(distances, moved, self.later, mx.array(window))
                mask = near if visible is None else visible & near
            attended = layer.self_attn(inputs, position, memory.followed_by(number, rows[-1]), mask)
            x = layer.outputs(residual, attended)
        return _Eagle3State(memory, x, rows, self.position + 1, self.later, seen, positions)


def _window_mask(queried: Sequence[int], positions: npt.ArrayLike, window: int) -> mx.array:
    """Return (n, k) bool: which rows at `positions`, (k,), are inside the window of rows at `queried`, (n,)."""
    distances = np.subtract.outer(queried, positions)
    return mx.array((distances >= 0) & (distances < window))


@partial(mx.compile, shapeless=False)
def _near(distances: mx.array, moved: mx.array, later: mx.array, window: mx.array) -> mx.array:
    """Return (k,) bool: which rows are inside the window of a row that stands `later` positions further on.

    Args:
        distances: (k,) int: positions to the rows if `later` were 0.
        moved: (k,) bool: whether these grow by `later`; those to the draft's own rows do not.
        later: () int32.
        window: () int32.
    """
    distances = distances + mx.where(moved, later, 0)
    return (distances >= 0) & (distances < window)
