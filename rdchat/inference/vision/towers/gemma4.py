"""The tower of Gemma 4: images of any size, positions by column and row, and a row for each square of patches."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.vision.towers.tower_weights import TowerWeights, attend, rotation

_GEMMA_THETA = 100


def gemma4_rows(
    weights: TowerWeights,
    settings: Mapping[str, Any],
    patches: mx.array,
    grid: tuple[int, int],
    evaluate: Callable[[mx.array], None],
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of an image, (tokens, width): the mean of each square of patches, normalised and projected.

    Args:
        weights: Those of `tower.` and `projector.`.
        settings: The part `vision_config` of config.json.
        patches: (n, patch * patch * channels) from 0 to 1, row by row.
        grid: The image's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """
    tower = weights.part("tower.")
    side = math.isqrt(len(patches) // math.prod(grid))
    high, broad = (side * each for each in grid)
    across, down = tower["patch_embedder.position_embedding_table"]
    x = tower.linear("patch_embedder.input_proj", (2 * (patches - 0.5)).astype(across.dtype))
    x += (down[:high, None] + across[:broad]).reshape(x.shape)
    layers = tower.parts("encoder.layers.")[: settings.get("num_hidden_layers")]
    size = layers[0]["self_attn.q_norm.weight"].size
    column_and_row = np.indices((high, broad))[::-1].reshape(2, -1).T
    turned = rotation(column_and_row, size, _GEMMA_THETA, parts=2)
    for layer in layers:
        inner = layer.rms_norm("input_layernorm", x)
        q, k, v = (_linear(layer, f"self_attn.{name}_proj", inner).reshape(len(x), -1, size) for name in "qkv")
        q, k = (turned(layer.rms_norm(f"self_attn.{name}_norm", part)) for name, part in (("q", q), ("k", k)))
        inner = _linear(layer, "self_attn.o_proj", attend(q, k, mx.fast.rms_norm(v, None, 1e-6), scale=1.0))
        x += layer.rms_norm("post_attention_layernorm", inner)
        inner = layer.rms_norm("pre_feedforward_layernorm", x)
        inner = nn.gelu_approx(_linear(layer, "mlp.gate_proj", inner)) * _linear(layer, "mlp.up_proj", inner)
        x += layer.rms_norm("post_feedforward_layernorm", _linear(layer, "mlp.down_proj", inner))
        evaluate(x)
    # Such numbers may be too large for 16 bits.
    pooled = x.astype(mx.float32).reshape(grid[0], side, grid[1], side, -1).mean((1, 3)).flatten(0, 1)
    pooled *= math.sqrt(x.shape[-1])
    if "std_scale" in tower:
        pooled = (pooled - tower["std_bias"]) * tower["std_scale"]
    normal = mx.fast.rms_norm(pooled.astype(x.dtype), None, 1e-6)
    return weights.linear("projector.embedding_projection", normal), ()


def _linear(weights: TowerWeights, name: str, x: mx.array) -> mx.array:
    """Return a linear layer's output; some checkpoints bound its inputs and outputs."""
    return _bounded(weights, f"{name}.output", weights.linear(f"{name}.linear", _bounded(weights, f"{name}.input", x)))


def _bounded(weights: TowerWeights, name: str, x: mx.array) -> mx.array:
    return mx.clip(x, weights[f"{name}_min"], weights[f"{name}_max"]) if f"{name}_min" in weights else x
