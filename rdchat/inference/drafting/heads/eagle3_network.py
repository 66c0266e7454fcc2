"""The network of EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one transformer layer or a few over the target's features.

A row stands for a token and what the target thought before it: the outputs of several of the target's layers at the
token before, side by side, are brought to the width of the drafter by `fc`; the first layer attends with the normalised
embedding beside them. A drafted token has no features of the target, so the layers' own output takes their place.
Module names are those of the checkpoints of SafeAILab, SpecForge, vLLM's speculators and DeepSpec, which differ in what
is switched on; SafeAILab's `midlayer` is `layers.0` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

from rdchat.inference.drafting.heads.positions import RowPositions, rotated
from rdchat.inference.drafting.heads.rope_config import RopeConfig


class FeatureNorm(StrEnum):
    """Whether the target's features are normalised before `fc`: not, all together, or those of each layer."""

    NONE = "none"
    TOGETHER = "norm_before_fc"
    EACH = "fc_norm"


@dataclass(frozen=True, slots=True)
class Eagle3Layer:
    """One layer of the drafter.

    Attributes:
        takes_embedding: Whether it attends with the embedding beside the hidden state, as the first one does.
        window: Positions that a row sees, its own included; None for all before it.
    """

    takes_embedding: bool
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """Sizes and switches of a drafter, whatever layout they were read from.

    Attributes:
        hidden_size: Width of its hidden states.
        intermediate_size: Width inside its MLPs.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_width: Of each; `heads * head_width` may differ from `hidden_size`.
        norm_epsilon: Of all its RMS norms.
        layers: Its layers.
        target_layers: The target's layers, from 0, whose outputs it reads, in the order of `fc`'s columns.
        target_width: Width of the target's hidden states.
        vocabulary_size: Of the target.
        candidates: Tokens that it can draft.
        rope: Positions of queries and keys.
        own_embeddings: Whether it has a table of its own, (vocabulary_size, hidden_size), and not the target's.
        own_output: Whether it has output rows of its own, (candidates, hidden_size), and not the target's.
        tied_output: Whether its output rows are its own embeddings.
        biases: Names of the linear modules with a bias.
        head_norms: Whether queries and keys are normalised, head by head.
        feature_norm: How the target's features are normalised.
        norm_before_residual: Whether the first layer's residual is the normalised hidden state.
        norm_output: Whether what takes the features' place is normalised by the last norm (EAGLE 3.1).
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_width: int
    norm_epsilon: float
    layers: tuple[Eagle3Layer, ...]
    target_layers: tuple[int, ...]
    target_width: int
    vocabulary_size: int
    candidates: int
    rope: RopeConfig
    own_embeddings: bool = False
    own_output: bool = True
    tied_output: bool = False
    biases: frozenset[str] = frozenset()
    head_norms: bool = False
    feature_norm: FeatureNorm = FeatureNorm.NONE
    norm_before_residual: bool = False
    norm_output: bool = False

    @property
    def shares_tables(self) -> bool:
        """Whether it uses the target's embeddings or output rows, so that it has to be as wide as these."""
        return not self.own_embeddings or not (self.own_output or self.tied_output)

    @property
    def features_width(self) -> int:
        """Width of the target's features, those of all its layers together."""
        return len(self.target_layers) * self.target_width

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight by name; nothing is allocated, so this is safe for sizes that cannot be."""
        width, inner = self.hidden_size, self.intermediate_size
        linear: dict[str, tuple[int, ...]] = {"fc": (width, self.features_width)}
        flat: dict[str, tuple[int, ...]] = {"norm.weight": (width,)}
        if self.own_output:
            linear["lm_head"] = (self.candidates, width)
        if self.own_embeddings:
            flat["embed_tokens.weight"] = (self.vocabulary_size, width)
        if self.feature_norm is FeatureNorm.TOGETHER:
            flat["input_norm.weight"] = (self.features_width,)
        if self.feature_norm is FeatureNorm.EACH:
            flat |= {f"fc_norm.{i}.weight": (self.target_width,) for i in range(len(self.target_layers))}
        for number, layer in enumerate(self.layers):
            name = f"layers.{number}"
            taken = 2 * width if layer.takes_embedding else width
            queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
            linear |= {
                f"{name}.self_attn.q_proj": (queries, taken),
                f"{name}.self_attn.k_proj": (keys, taken),
                f"{name}.self_attn.v_proj": (keys, taken),
                f"{name}.self_attn.o_proj": (width, queries),
                f"{name}.mlp.gate_proj": (inner, width),
                f"{name}.mlp.up_proj": (inner, width),
                f"{name}.mlp.down_proj": (width, inner),
            }
            norms = ["input_layernorm", "post_attention_layernorm", *["hidden_norm"] * layer.takes_embedding]
            flat |= {f"{name}.{norm}.weight": (width,) for norm in norms}
            if self.head_norms:
                flat |= {f"{name}.self_attn.{norm}.weight": (self.head_width,) for norm in ("q_norm", "k_norm")}
        biases = {f"{name}.bias": shape[:1] for name, shape in linear.items() if name in self.biases}
        return flat | {f"{name}.weight": shape for name, shape in linear.items()} | biases


class Eagle3Network(nn.Module):
    """The drafter's weights and what is computed of n rows at a time; its keys and values are kept by the caller.

    Args:
        config: Sizes and switches.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        width, epsilon = config.hidden_size, config.norm_epsilon
        self.fc = nn.Linear(config.features_width, width, bias="fc" in config.biases)
        self.layers = [_Layer(config, number) for number in range(len(config.layers))]
        self.norm = nn.RMSNorm(width, epsilon)
        if config.own_output:
            self.lm_head = nn.Linear(width, config.candidates, bias="lm_head" in config.biases)
        if config.own_embeddings:
            self.embed_tokens = nn.Embedding(config.vocabulary_size, width)
        if config.feature_norm is FeatureNorm.TOGETHER:
            self.input_norm = nn.RMSNorm(config.features_width, epsilon)
        if config.feature_norm is FeatureNorm.EACH:
            self.fc_norm = [nn.RMSNorm(config.target_width, epsilon) for _ in config.target_layers]

    def fuse(self, features: mx.array) -> mx.array:
        """Return the hidden states, (n, hidden_size), that take the target's features, (n, features_width), in."""
        if "input_norm" in self:
            features = self.input_norm(features)
        if "fc_norm" in self:
            parts = mx.split(features, len(self.fc_norm), axis=-1)
            features = mx.concatenate([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], axis=-1)
        hidden: mx.array = self.fc(features)
        return hidden

    def carried(self, output: mx.array) -> mx.array:
        """Return what takes the place of the target's features below the rows with this output, (n, hidden_size)."""
        carried: mx.array = self.norm(output) if self.config.norm_output else output
        return carried


class _Layer(nn.Module):
    """A layer of llama's kind, of which the first takes an embedding too."""

    def __init__(self, config: Eagle3Config, number: int) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.norm_epsilon
        self.window = config.layers[number].window
        self._residual_is_normalised = config.norm_before_residual
        self.input_layernorm = nn.RMSNorm(width, epsilon)
        if config.layers[number].takes_embedding:
            self.hidden_norm = nn.RMSNorm(width, epsilon)
        self.self_attn = _Attention(config, number)
        self.post_attention_layernorm = nn.RMSNorm(width, epsilon)
        self.mlp = _Mlp(config, number)

    def inputs(self, embeddings: mx.array, hidden: mx.array) -> tuple[mx.array, mx.array]:
        """Return what n rows attend with, (n, 1 or 2 * hidden_size), and their residual, (n, hidden_size)."""
        if "hidden_norm" not in self:
            return self.input_layernorm(hidden), hidden
        normal = self.hidden_norm(hidden)
        taken = mx.concatenate([self.input_layernorm(embeddings), normal], axis=-1)
        return taken, normal if self._residual_is_normalised else hidden

    def outputs(self, residual: mx.array, attended: mx.array) -> mx.array:
        """Return the layer's outputs, (n, hidden_size)."""
        hidden = residual + attended
        output: mx.array = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class _Attention(nn.Module):
    def __init__(self, config: Eagle3Config, number: int) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._width = config.heads, config.kv_heads, config.head_width
        taken = config.hidden_size * (2 if config.layers[number].takes_embedding else 1)

        def linear(name: str, inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=f"layers.{number}.self_attn.{name}" in config.biases)

        self.q_proj = linear("q_proj", taken, config.heads * config.head_width)
        self.k_proj = linear("k_proj", taken, config.kv_heads * config.head_width)
        self.v_proj = linear("v_proj", taken, config.kv_heads * config.head_width)
        self.o_proj = linear("o_proj", config.heads * config.head_width, config.hidden_size)
        if config.head_norms:
            self.q_norm = nn.RMSNorm(config.head_width, config.norm_epsilon)
            self.k_norm = nn.RMSNorm(config.head_width, config.norm_epsilon)
        rope = config.rope
        self._rope = initialize_rope(config.head_width, rope.theta, rope.traditional, rope.scaling, rope.max_positions)

    def rows(self, taken: mx.array, positions: RowPositions) -> list[mx.array]:
        """Return the keys and values of n rows, each (1, kv_heads, n, head_width)."""
        keys = self.k_proj(taken).reshape(-1, self._kv_heads, self._width)
        if "k_norm" in self:
            keys = self.k_norm(keys)
        values = self.v_proj(taken).reshape(-1, self._kv_heads, self._width)
        return [rotated(self._rope, keys.transpose(1, 0, 2)[None], positions), values.transpose(1, 0, 2)[None]]

    def __call__(
        self, taken: mx.array, positions: RowPositions, rows: Sequence[mx.array], mask: mx.array | str | None
    ) -> mx.array:
        """Return what n rows attend to, (n, hidden_size).

        Args:
            taken: (n, width) what `inputs` gave.
            positions: Theirs.
            rows: Keys and values, (1, kv_heads, k, head_width), their own among them.
            mask: (n, k) bool: what each sees; "causal" where the rows are the last ones, None for all.
        """
        queries = self.q_proj(taken).reshape(-1, self._heads, self._width)
        if "q_norm" in self:
            queries = self.q_norm(queries)
        queries = rotated(self._rope, queries.transpose(1, 0, 2)[None], positions)
        attended = mx.fast.scaled_dot_product_attention(queries, *rows, scale=self._width**-0.5, mask=mask)
        output: mx.array = self.o_proj(attended[0].transpose(1, 0, 2).reshape(taken.shape[0], -1))
        return output


class _Mlp(nn.Module):
    def __init__(self, config: Eagle3Config, number: int) -> None:
        super().__init__()

        def linear(name: str, inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=f"layers.{number}.mlp.{name}" in config.biases)

        self.gate_proj = linear("gate_proj", config.hidden_size, config.intermediate_size)
        self.up_proj = linear("up_proj", config.hidden_size, config.intermediate_size)
        self.down_proj = linear("down_proj", config.intermediate_size, config.hidden_size)

    def __call__(self, x: mx.array) -> mx.array:
        output: mx.array = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
        return output
