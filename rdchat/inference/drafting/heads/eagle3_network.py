"""The network of EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one transformer layer or a few over the target's features.

A row stands for a token and what the target computed for the token before it: the outputs of several of the target's
layers, side by side, are brought to the drafter's width by `fc`; the first layer attends with the normalised embedding
beside them. A drafted token has no features of the target: the layers' own output takes their place.
Module names are those of the checkpoints of SafeAILab, SpecForge, vLLM's speculators and DeepSpec, which differ in what
is switched on; SafeAILab's `midlayer` is `layers.0` here.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import override

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.drafting.heads.decoder import DecoderConfig, DecoderLayer, Shape, add_modules, below


class FeatureNorm(StrEnum):
    """How the target's features are normalised before `fc`: not, all together, or layer by layer."""

    NONE = "none"
    TOGETHER = "norm_before_fc"
    EACH = "fc_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config(DecoderConfig):
    """An EAGLE-3 drafter; a row's window includes the row itself."""

    takes_embedding: tuple[bool, ...]  # for each layer: it attends with the embedding beside the hidden state
    tied_output: bool = False  # the output rows are its own embeddings
    feature_norm: FeatureNorm = FeatureNorm.NONE
    norm_before_residual: bool = False  # the first layer's residual is the normalised hidden state
    norm_output: bool = False  # the last norm is applied to what takes the features' place (EAGLE 3.1)

    @property
    def shares_tables(self) -> bool:
        """Whether it uses the target's embeddings or output rows, so that it has to be as wide as these."""
        return not self.own_embeddings or not (self.own_output or self.tied_output)

    @override
    def shapes(self) -> dict[str, Shape]:
        """See `DecoderConfig`."""
        shapes, count = DecoderConfig.shapes(self), len(self.target_layers)
        if self.feature_norm is FeatureNorm.TOGETHER:
            shapes["input_norm.weight"] = (count * self.target_width,)
        if self.feature_norm is FeatureNorm.EACH:
            shapes |= {f"fc_norm.{layer}.weight": (self.target_width,) for layer in range(count)}
        return shapes

    @override
    def norms(self, layer: int) -> list[str]:
        """See `DecoderConfig`."""
        return DecoderConfig.norms(self, layer) + ["hidden_norm"] * self.takes_embedding[layer]

    @override
    def inputs(self, layer: int) -> int:
        """See `DecoderConfig`."""
        return self.hidden_size * (1 + self.takes_embedding[layer])


class Eagle3Network(nn.Module):
    """The drafter's weights and what is computed of n rows at a time; its keys and values are kept by the caller.

    Args:
        config: Sizes and switches.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config, shapes = config, config.shapes()
        add_modules(self, shapes, config.norm_epsilon)
        self.layers = [_Layer(config, below(shapes, f"layers.{number}")) for number in range(config.layers)]
        if config.feature_norm is FeatureNorm.EACH:
            self.fc_norm = [nn.RMSNorm(config.target_width, config.norm_epsilon) for _ in config.target_layers]

    def fuse(self, features: mx.array) -> mx.array:
        """Return the hidden states, (n, hidden_size), of the target's features, (n, target layers x target_width)."""
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


class _Layer(DecoderLayer):
    """A layer of llama's kind, of which the first takes an embedding too."""

    def __init__(self, config: Eagle3Config, shapes: dict[str, Shape]) -> None:
        super().__init__(config, shapes)
        self._residual_is_normalised = config.norm_before_residual

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
