"""The decoder layers that block drafters and EAGLE-3 share: sizes, tensor shapes, attention and MLP.

Modules are made from the shapes of their tensors (`DecoderConfig.shapes`), which were compared with a checkpoint's
before anything is allocated. There is no batch axis: n rows are (n, width), one for each token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

Shape = tuple[int, ...]
# Keys and values, each (1, kv_heads, n, head_size).
Rows = list[mx.array]
type RowPositions = int | Sequence[int] | mx.array
"""Positions of n rows: one for all, (n,) ascending ones, or (n,) arbitrary ones as an array."""

# Modules whose weight is a table of rows by token, and not a matrix to multiply with.
_TABLES = {"embed_tokens", "markov_w1", "predecessor_codebook", "successor_codebook", "token_embed"}


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Arguments of `mlx_lm.models.rope_utils.initialize_rope`.

    Attributes:
        theta: Base of the frequencies.
        scaling: Kind and parameters.
        traditional: Whether neighbouring values rotate as a pair, instead of values half a head apart.
        max_positions: Positions the drafter was made for.
    """

    theta: float
    scaling: dict[str, Any] | None = None
    traditional: bool = False
    max_positions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Sizes and switches that block drafters and EAGLE-3 share.

    Attributes:
        hidden_size: Width of the drafter.
        vocabulary_size: Tokens of the target.
        draft_vocabulary_size: Tokens that can be drafted.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        head_size: `heads * head_size` may differ from `hidden_size`.
        inner_size: Width inside an MLP.
        norm_epsilon: Added to the mean square in each norm.
        rope: Rotary positions.
        windows: For each layer the positions that a row sees; None for all.
        target_layers: Layers of the target whose outputs are read, from 0, in the column order of `fc`.
        target_width: Width of the target's hidden states.
        target_depth: Layers of the target; None where the checkpoint does not say.
        own_embeddings: Whether it has embeddings; otherwise the target's are used.
        own_output: Whether it has output rows; otherwise the target's are used.
        biases: Full names of linear modules with a bias.
        qk_norm: Whether queries and keys are normalised, head by head.
        gemma: Whether the layers are those of Gemma 4's full attention; otherwise Qwen3's or Llama's.
        values_from_keys: Whether the values are the projected keys (Gemma 4).
        softcap: Bound of the logits, before any correction.
    """

    hidden_size: int
    vocabulary_size: int
    draft_vocabulary_size: int
    heads: int
    kv_heads: int
    head_size: int
    inner_size: int
    norm_epsilon: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    target_layers: tuple[int, ...]
    target_width: int
    target_depth: int | None = None
    own_embeddings: bool = False
    own_output: bool = False
    biases: frozenset[str] = frozenset()
    qk_norm: bool = False
    gemma: bool = False
    values_from_keys: bool = False
    softcap: float | None = None

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return len(self.windows)

    @property
    def reduced(self) -> bool:
        """Whether it can draft only a part of the target's tokens."""
        return self.draft_vocabulary_size < self.vocabulary_size

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of each tensor of the network by name; allocates nothing, whatever the sizes are."""
        hidden = self.hidden_size
        linear: dict[str, Shape] = {"fc": (hidden, len(self.target_layers) * self.target_width)}
        if self.own_output:
            linear["lm_head"] = (self.draft_vocabulary_size, hidden)
        shapes: dict[str, Shape] = {"norm.weight": (hidden,)}
        if self.own_embeddings:
            shapes["embed_tokens.weight"] = (self.vocabulary_size, hidden)
        for number in range(self.layers):
            name = f"layers.{number}"
            linear |= {f"{name}.{module}": shape for module, shape in self._matrices(number).items()}
            shapes |= {f"{name}.{norm}.weight": (hidden,) for norm in self.norms(number)}
            if self.gemma:
                shapes[f"{name}.layer_scalar"] = (1,)
            if self.qk_norm:
                shapes |= {f"{name}.self_attn.{norm}.weight": (self.head_size,) for norm in ("q_norm", "k_norm")}
        biases = {f"{name}.bias": shape[:1] for name, shape in linear.items() if name in self.biases}
        return {f"{name}.weight": shape for name, shape in linear.items()} | biases | shapes

    def norms(self, layer: int) -> list[str]:  # noqa: ARG002
        """Return the names of a layer's norms; Gemma 4 also normalises the outputs of attention and MLP."""
        more = ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if self.gemma else []
        return ["input_layernorm", "post_attention_layernorm", *more]

    def inputs(self, layer: int) -> int:  # noqa: ARG002
        """Return the input width of a layer's attention; in EAGLE-3 it differs by layer."""
        return self.hidden_size

    def _matrices(self, layer: int) -> dict[str, Shape]:
        """Return the shapes of a layer's linear modules, by name."""
        hidden = self.hidden_size
        inner = self.inner_size
        input_size = self.inputs(layer)
        queries = self.heads * self.head_size
        rows = self.kv_heads * self.head_size
        matrices: dict[str, Shape] = {
            "self_attn.q_proj": (queries, input_size),
            "self_attn.k_proj": (rows, input_size),
            "self_attn.v_proj": (rows, input_size),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        if self.values_from_keys:
            del matrices["self_attn.v_proj"]
        return matrices


def bounded(logits: mx.array, bound: float | None) -> mx.array:
    """Return logits that a hyperbolic tangent keeps between two bounds; None for no bound."""
    return logits if bound is None else mx.tanh(logits / bound) * bound


def below(shapes: Mapping[str, Shape], name: str) -> dict[str, Shape]:
    """Return the shapes of a module's tensors by their names inside it."""
    return {key.removeprefix(f"{name}."): shape for key, shape in shapes.items() if key.startswith(f"{name}.")}


class ShapedModule(nn.Module):
    """A module with the tables, linear layers and norms of some tensors, without those of inner modules.

    A name without a dot is an array of the module itself, such as `layer_scalar`. With one dot, the shape tells: one
    axis is a norm, two are a table of `_TABLES` or a linear layer. More dots belong to inner modules.

    Args:
        shapes: Shape by name of the tensor.
        epsilon: Epsilon of the norms.
    """

    def __init__(self, shapes: Mapping[str, Shape], epsilon: float = 0.0) -> None:
        super().__init__()
        for name, shape in shapes.items():
            part, _, kind = name.rpartition(".")
            if not part:
                setattr(self, kind, mx.ones(shape))
            elif "." in part or kind == "bias":
                continue
            elif len(shape) == 1:
                setattr(self, part, nn.RMSNorm(shape[0], epsilon))
            elif part in _TABLES:
                setattr(self, part, nn.Embedding(*shape))
            else:
                setattr(self, part, nn.Linear(shape[1], shape[0], bias=f"{part}.bias" in shapes))


def rotated(rope: Callable[..., mx.array], rows: mx.array, positions: RowPositions) -> mx.array:
    """Return rows of queries or keys, (1, heads, n, width), rotated by their positions.

    Positions that follow one another need only the first one, from which the kernel counts up. This is the usual case.
    """
    if isinstance(positions, Sequence):
        if positions[-1] - positions[0] == len(positions) - 1:
            return rope(rows, offset=positions[0])
        positions = mx.array(list(positions), mx.int32)
    # Each row gets a batch entry of its own, so that the kernel does not count up from one to the next.
    return rope(rows.transpose(2, 1, 0, 3), offset=positions).transpose(2, 1, 0, 3)


class DecoderLayer(ShapedModule):
    """The parts of a decoder layer; subclasses combine them."""

    def __init__(self, config: DecoderConfig, shapes: Mapping[str, Shape]) -> None:
        super().__init__(shapes, config.norm_epsilon)
        self.self_attn = Attention(config, below(shapes, "self_attn"))
        self.mlp = Mlp(config, below(shapes, "mlp"))

    def outputs(self, residual: mx.array, attended: mx.array) -> mx.array:
        """Return the outputs, (n, hidden_size), of a layer as in Llama, or in Gemma 4."""
        if "layer_scalar" in self:
            x = residual + self.post_attention_layernorm(attended)
            scaled: mx.array = (
                x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
            ) * self.layer_scalar
            return scaled
        hidden = residual + attended
        output: mx.array = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class Attention(ShapedModule):
    """Attention of n rows, (n, inputs); the caller keeps keys and values."""

    def __init__(self, config: DecoderConfig, shapes: Mapping[str, Shape]) -> None:
        super().__init__(shapes, config.norm_epsilon)
        self._size = config.head_size
        self._epsilon = config.norm_epsilon
        self._gemma = config.gemma
        self._scale = 1.0 if self._gemma else config.head_size**-0.5
        rope = config.rope
        self._rope = initialize_rope(config.head_size, rope.theta, rope.traditional, rope.scaling, rope.max_positions)

    def rows(self, x: mx.array, positions: RowPositions) -> Rows:
        """Return the keys and values of n rows."""
        keys = self._heads(self.k_proj(x))
        values = self._heads(self.v_proj(x)) if "v_proj" in self else keys
        if self._gemma:
            values = mx.fast.rms_norm(values, None, self._epsilon)
        if "k_norm" in self:
            keys = self.k_norm(keys)
        return [rotated(self._rope, keys.transpose(1, 0, 2)[None], positions), values.transpose(1, 0, 2)[None]]

    def __call__(
        self, x: mx.array, positions: RowPositions, rows: Sequence[mx.array], mask: mx.array | str | None
    ) -> mx.array:
        """Return the attention output of n rows, (n, hidden_size).

        Args:
            x: (n, inputs).
            positions: Their positions.
            rows: Keys and values, (1, kv_heads, k, head_size), including their own.
            mask: (n, k) bool: which rows each sees; "causal" where the n rows are the last ones; None for all.
        """
        queries = self._heads(self.q_proj(x))
        if "q_norm" in self:
            queries = self.q_norm(queries)
        queries = rotated(self._rope, queries.transpose(1, 0, 2)[None], positions)
        attended = mx.fast.scaled_dot_product_attention(queries, *rows, scale=self._scale, mask=mask)
        output: mx.array = self.o_proj(attended[0].transpose(1, 0, 2).flatten(1))
        return output

    def _heads(self, x: mx.array) -> mx.array:
        """Return rows split into heads, (n, heads, head_size)."""
        return x.reshape(x.shape[0], -1, self._size)


class Mlp(ShapedModule):
    """A gated MLP: SiLU, or with Gemma's layers the approximate GELU."""

    def __init__(self, config: DecoderConfig, shapes: Mapping[str, Shape]) -> None:
        super().__init__(shapes, config.norm_epsilon)
        self._gated = _gelu_gate if config.gemma else swiglu

    def __call__(self, x: mx.array) -> mx.array:
        output: mx.array = self.down_proj(self._gated(self.gate_proj(x), self.up_proj(x)))
        return output


@partial(mx.compile, shapeless=True)
def _gelu_gate(gate: mx.array, up: mx.array) -> mx.array:
    result: mx.array = nn.gelu_approx(gate) * up
    return result
