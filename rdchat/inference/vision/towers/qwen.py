"""The tower of Qwen3-VL and of Qwen3.5 to 3.8: images of any size, a table of positions, and rotary ones.

The patches of an image come in blocks of 2 x 2, which become one row. In Qwen3-VL some inner layers give features too
(DeepStack).
"""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.vision.towers.tower_weights import TowerWeights, attend, rotation

_QWEN_THETA = 10_000
_DEEP_LAYERS = (8, 16, 24)


def qwen_rows(
    weights: TowerWeights,
    settings: Mapping[str, Any],
    patches: mx.array,
    grid: tuple[int, int],
    evaluate: Callable[[mx.array], None],
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """Return the rows of an image, (tokens, width), and its deep features, each of the same shape.

    Args:
        weights: The tower's.
        settings: The part `vision_config` of config.json.
        patches: (n, channels * times * patch * patch), in blocks.
        grid: The image's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """
    merge = settings.get("spatial_merge_size", 2)
    heads = settings.get("num_heads", 16)
    # Patches come block by block.
    places = np.indices((merge * grid[0], merge * grid[1])).reshape(2, grid[0], merge, grid[1], merge)
    row, column = places.swapaxes(2, 3).reshape(2, -1)
    kernel = weights.patch_kernel("patch_embed.proj", settings.get("in_channels", 3))
    x = patches.astype(kernel.dtype) @ kernel.flatten(1).T + weights["patch_embed.proj.bias"]
    width = x.shape[-1]
    x += _resized(weights.table("pos_embed", width), row, column)
    turned = rotation(np.stack([row, column], -1), width // heads, _QWEN_THETA)
    mergers = weights.parts("deepstack_merger_list.")
    merged = width * merge**2
    deep = []
    taken = dict(zip(settings.get("deepstack_visual_indexes", _DEEP_LAYERS), mergers, strict=False))
    for number, block in enumerate(weights.parts("blocks.")[: settings.get("depth")]):
        q, k, v = block.linear("attn.qkv", block.norm("norm1", x)).reshape(-1, 3, heads, width // heads).swapaxes(0, 1)
        x += block.linear("attn.proj", attend(turned(q), turned(k), v))
        x += block.linear("mlp.linear_fc2", nn.gelu_approx(block.linear("mlp.linear_fc1", block.norm("norm2", x))))
        if (merger := taken.get(number)) is not None:
            deep.append(_merged(merger, merger.norm("norm", x.reshape(-1, merged))))
        evaluate(x)
    merger = weights.part("merger.")
    # DeepStack's mergers normalise after the merge, this one before it.
    return _merged(merger, merger.norm("norm", x).reshape(-1, merged)), tuple(deep)


def _merged(merger: TowerWeights, blocks: mx.array) -> mx.array:
    return merger.linear("linear_fc2", nn.gelu(merger.linear("linear_fc1", blocks)))


def _resized(table: mx.array, row: npt.NDArray[np.int64], column: npt.NDArray[np.int64]) -> mx.array:
    """Return the table's positions, a square, stretched over an image: bilinear, corner to corner."""
    side = int(table.shape[0] ** 0.5)
    y, x = (each * np.float32((side - 1) / max(int(each.max()), 1)) for each in (row, column))
    top = np.floor(y).astype(np.int64)
    left = np.floor(x).astype(np.int64)
    result = mx.zeros((len(row), table.shape[1]), table.dtype)
    for down, right in np.ndindex(2, 2):
        share = abs(1 - down - (y - top)) * abs(1 - right - (x - left))
        near = np.minimum(top + down, side - 1) * side + np.minimum(left + right, side - 1)
        result += table[mx.array(near)] * mx.array(share.astype(np.float32))[:, None].astype(table.dtype)
    return result
