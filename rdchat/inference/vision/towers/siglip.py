"""SigLIP, a tower for square images, and what SmolVLM, Idefics3 and Gemma 3 make of its patches."""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

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
    return weights.linear("projector.proj", squares.swapaxes(1, 2).flatten(2).flatten(0, 1)), ()


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
    count, heads = pixels.shape[1] // patch, settings.get("num_attention_heads", 16)
    cut = pixels.reshape(channels, count, patch, count, patch).transpose(1, 3, 0, 2, 4).reshape(count**2, -1)
    x = cut.astype(kernel.dtype) @ kernel.flatten(1).T + weights["embeddings.patch_embedding.bias"]
    x += weights.table("embeddings.position_embedding", width)
    for layer in weights.parts("encoder.layers."):
        inner = layer.norm("layer_norm1", x)
        q, k, v = (layer.linear(f"self_attn.{name}_proj", inner).reshape(count**2, heads, -1) for name in "qkv")
        x += layer.linear("self_attn.out_proj", attend(q, k, v))
        x += layer.linear("mlp.fc2", nn.gelu_approx(layer.linear("mlp.fc1", layer.norm("layer_norm2", x))))
        evaluate(x)
    high, broad = grid
    return weights.norm("post_layernorm", x).reshape(high, count // high, broad, count // broad, -1)
