"""SigLIP, a tower for square images, and SigLIP 2 for those of any shape; and what families make of their patches."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.vision.towers.tower_weights import TowerWeights, attend

type _Evaluate = Callable[[mx.array], None]


def shuffled_rows(
    weights: TowerWeights, settings: Mapping[str, Any], pixels: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of a tile for SmolVLM and Idefics3, (tokens, width): squares of patches side by side, projected.

    Args:
        weights: Those of `tower.` and `projector.`.
        settings: The part `vision_config` of config.json.
        pixels: (3, side, side).
        grid: The tile's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """
    squares = _squares(weights.part("tower."), settings, pixels, grid, evaluate)
    return weights.linear("projector.proj", _side_by_side(squares)), ()


def naflex_rows(
    weights: TowerWeights, settings: Mapping[str, Any], patches: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of a tile of any shape for LFM2-VL, (tokens, width): as `shuffled_rows`, with two layers.

    Args:
        weights: Those of `tower.` and `projector.`.
        settings: The part `vision_config` of config.json, with the entries for the projector.
        patches: (n, patch * patch * channels), row by row.
        grid: The tile's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """
    tower = weights.part("tower.")
    bias = tower["embeddings.patch_embedding.bias"]
    side = math.isqrt(len(patches) // math.prod(grid))
    x = tower.linear("embeddings.patch_embedding", patches.astype(bias.dtype))
    table = tower.table("embeddings.position_embedding", bias.size)
    down, across = (_stretched(math.isqrt(len(table)), side * each) for each in grid)
    positions = across @ (down @ table.reshape(down.shape[1], -1)).reshape(len(down), -1, bias.size)
    x = _encoded(tower, settings, x + positions.reshape(x.shape).astype(x.dtype), evaluate)
    x = _side_by_side(x.reshape(grid[0], side, grid[1], side, -1))
    if settings.get("projector_use_layernorm", True):
        x = weights.norm("projector.layer_norm", x, 1e-5)
    return weights.linear("projector.linear_2", nn.gelu(weights.linear("projector.linear_1", x))), ()


def _stretched(size: int, count: int) -> mx.array:
    """Return (count, size): shares of a line of numbers in a longer or shorter one; a shorter one has means."""
    step = size / count
    centres = (np.arange(count)[:, None] + 0.5) * step
    shares = np.maximum(1 - np.abs(np.arange(size) + 0.5 - centres) / max(step, 1), 0)
    return mx.array((shares / shares.sum(1, keepdims=True)).astype(np.float32))


def _side_by_side(squares: mx.array) -> mx.array:
    """Return (rows * columns, width * side**2) of what `_squares` returns."""
    return squares.swapaxes(1, 2).flatten(2).flatten(0, 1)


def pooled_rows(
    weights: TowerWeights, settings: Mapping[str, Any], pixels: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of a tile for Gemma 3: the mean of each square of patches, normalised and projected.

    The arguments are those of `shuffled_rows`.
    """
    squares = _squares(weights.part("tower."), settings, pixels, grid, evaluate)
    x = mx.fast.rms_norm(squares.mean((1, 3)).flatten(0, 1), 1 + weights["projector.mm_soft_emb_norm.weight"], 1e-6)
    return x @ weights["projector.mm_input_projection_weight"], ()


def _squares(
    weights: TowerWeights, settings: Mapping[str, Any], pixels: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> mx.array:
    """Return what SigLIP makes of a square: (rows, side, columns, side, width), a square of patches for each token."""
    kernel = weights.patch_kernel("embeddings.patch_embedding")
    width, channels, patch, _ = kernel.shape
    count = pixels.shape[1] // patch
    cut = pixels.reshape(channels, count, patch, count, patch).transpose(1, 3, 0, 2, 4).reshape(count**2, -1)
    x = cut.astype(kernel.dtype) @ kernel.flatten(1).T + weights["embeddings.patch_embedding.bias"]
    x = _encoded(weights, settings, x + weights.table("embeddings.position_embedding", width), evaluate)
    high, broad = grid
    return x.reshape(high, count // high, broad, count // broad, -1)


def _encoded(weights: TowerWeights, settings: Mapping[str, Any], x: mx.array, evaluate: _Evaluate) -> mx.array:
    """Return what the layers make of patches, (n, width)."""
    heads = settings.get("num_attention_heads", 16)
    for layer in weights.parts("encoder.layers.")[: settings.get("num_hidden_layers")]:
        inner = layer.norm("layer_norm1", x)
        q, k, v = (layer.linear(f"self_attn.{name}_proj", inner).reshape(len(x), heads, -1) for name in "qkv")
        x += layer.linear("self_attn.out_proj", attend(q, k, v))
        x += layer.linear("mlp.fc2", nn.gelu_approx(layer.linear("mlp.fc1", layer.norm("layer_norm2", x))))
        evaluate(x)
    return weights.norm("post_layernorm", x)
