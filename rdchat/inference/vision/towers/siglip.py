"""SigLIP, a tower for square images, and what SmolVLM, Idefics3 and Gemma 3 make of its patches."""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.vision.towers.tower_weights import TowerWeights, attend

type _Evaluate = Callable[[mx.array], None]


def shuffled_rows(
    weights: TowerWeights, config: Mapping[str, Any], pixels: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of a tile for SmolVLM and Idefics3, (tokens, width): squares of patches side by side, projected.

    Args:
        weights: Those of `tower.` and `projector.`.
        config: The content of config.json.
        pixels: (3, side, side).
        grid: The tile's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """
    x = _siglip(weights.part("tower."), config["vision_config"], 16, pixels, evaluate)
    high, broad = grid
    x = x.reshape(high, x.shape[0] // high, broad, x.shape[1] // broad, -1).swapaxes(1, 2).reshape(high * broad, -1)
    return weights.linear("projector.proj", x), ()


def pooled_rows(
    weights: TowerWeights, config: Mapping[str, Any], pixels: mx.array, grid: tuple[int, int], evaluate: _Evaluate
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of a tile for Gemma 3: the mean of each square of patches, normalised and projected.

    The arguments are those of `shuffled_rows`.
    """
    x = _siglip(weights.part("tower."), config["vision_config"], 12, pixels, evaluate)
    high, broad = grid
    x = x.reshape(high, x.shape[0] // high, broad, x.shape[1] // broad, -1).mean((1, 3)).flatten(0, 1)
    x = mx.fast.rms_norm(x, 1 + weights["projector.mm_soft_emb_norm.weight"], 1e-6)
    return x @ weights["projector.mm_input_projection_weight"], ()


def _siglip(
    weights: TowerWeights, settings: Mapping[str, Any], usual_heads: int, pixels: mx.array, evaluate: _Evaluate
) -> mx.array:
    """Return (patches, patches, width) for the pixels of a square."""
    kernel = weights.patch_kernel("embeddings.patch_embedding")
    width, channels, patch, _ = kernel.shape
    count, heads = pixels.shape[1] // patch, settings.get("num_attention_heads", usual_heads)
    cut = pixels.reshape(channels, count, patch, count, patch).transpose(1, 3, 0, 2, 4).reshape(count**2, -1)
    x = cut @ kernel.flatten(1).T + weights["embeddings.patch_embedding.bias"]
    x += weights.table("embeddings.position_embedding", width)
    for layer in weights.parts("encoder.layers."):
        inner = layer.norm("layer_norm1", x)
        q, k, v = (layer.linear(f"self_attn.{name}_proj", inner).reshape(count**2, heads, -1) for name in "qkv")
        x += layer.linear("self_attn.out_proj", attend(q, k, v))
        x += layer.linear("mlp.fc2", nn.gelu_approx(layer.linear("mlp.fc1", layer.norm("layer_norm2", x))))
        evaluate(x)
    return weights.norm("post_layernorm", x).reshape(count, count, -1)
