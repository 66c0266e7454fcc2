"""The towers of all families, and their weights by name, floats or quantised by MLX.

A tower is a function from a `TowerCall`, which has the patches of one tile, to the rows that a network gets.
`image_rows` calls it. The names of weights are our own, see `families`.

- Gemma 4: images of any size, positions by column and row, and a row for each square of patches.
- Qwen: images of any size. The patches of an image come in blocks of 2 x 2, which become one row.
- Pixtral, also that of Mistral 3 and Ministral 3: images of any size, and positions by row and column.
- SigLIP, for square images, and SigLIP 2 for those of any shape; and what families make of their patches.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.vision.layer_functions import attend, gelu_approx, gelu_fast_approx, silu

# Constants that no configuration of these families changes (`Family.assumed`), or that are usual.
_GEMMA_THETA = 100
_AXIAL_THETA = 10_000
_PIXTRAL_EPSILON = 1e-5
_DEEP_LAYERS = (8, 16, 24)
# Names in the merger of Qwen3-VL and later: its norm and its two layers.
_NEWER_MERGER = ("norm", "linear_fc1", "linear_fc2")
# The layers of Qwen2.5-VL that see the complete image.
_FULL_LAYERS = (7, 15, 23, 31)
type _Evaluate = Callable[[mx.array], None]


class SeenImage(NamedTuple):
    """The rows and features of an image, or of a tile of it, as a network gets them.

    Attributes:
        rows: (tokens, width).
        deep: Features for the first layers, each (tokens, width).
    """

    rows: mx.array
    deep: tuple[mx.array, ...] = ()

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        """The rows, then the features."""
        return self.rows, *self.deep


class TowerWeights:
    """The weights of a tower, or of a part of it.

    Args:
        arrays: By name: floats, or affine packed words with `scales` and `biases` beside them.
        prefix: Of all names.
    """

    def __init__(self, arrays: Mapping[str, mx.array], prefix: str = "") -> None:
        self._arrays = arrays
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._arrays

    def __getitem__(self, name: str) -> mx.array:
        return self._arrays[self._prefix + name]

    def part(self, prefix: str) -> "TowerWeights":
        """Return the weights below a prefix."""
        return TowerWeights(self._arrays, self._prefix + prefix)

    def layer_weights(self, prefix: str, count: int | None = None) -> list["TowerWeights"]:
        """Return the weights of the first `count` layers, or of all, whose numbers follow a prefix.

        Raises:
            LookupError: If there are fewer.
        """
        start = self._prefix + prefix
        numbers = {int(name.removeprefix(start).partition(".")[0]) for name in self._arrays if name.startswith(start)}
        if count is not None and not numbers.issuperset(range(count)):
            raise LookupError(f"Not all of {count} layers")
        return [self.part(f"{prefix}{number}.") for number in sorted(numbers)[:count]]

    def linear(self, name: str, x: mx.array) -> mx.array:
        """Return (..., outputs) for x (..., inputs)."""
        if f"{name}.scales" in self:
            codes, scales, biases, group, bits = self._packed(name, x.shape[-1])
            y = mx.quantized_matmul(x, codes, scales, biases, True, group, bits)
        else:
            y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self else y

    def norm(self, name: str, x: mx.array, epsilon: float = 1e-6) -> mx.array:
        """Return the layer norm over the last axis."""
        return mx.fast.layer_norm(x, self[f"{name}.weight"], self[f"{name}.bias"], epsilon)

    def rms_norm(self, name: str, x: mx.array, epsilon: float = 1e-6) -> mx.array:
        """Return the norm by the root mean square over the last axis."""
        return mx.fast.rms_norm(x, self[f"{name}.weight"], epsilon)

    def table(self, name: str, width: int) -> mx.array:
        """Return (rows, width): a table of embeddings."""
        if f"{name}.scales" not in self:
            return self[f"{name}.weight"]
        return mx.dequantize(*self._packed(name, width))

    def patch_kernel(self, name: str, channels: int = 3) -> mx.array:
        """Return (width, channels, ..., patch, patch): a kernel that cuts patches.

        PyTorch's has the channels in this place; copies by mlx-vlm have them last.
        """
        kernel = self[f"{name}.weight"]
        return kernel if kernel.shape[1] == channels else mx.moveaxis(kernel, -1, 1)

    def _packed(self, name: str, width: int) -> tuple[mx.array, mx.array, mx.array, int, int]:
        """Return words, scales and biases of a matrix with this many inputs, and its group size and bits."""
        codes, scales, biases = (self[f"{name}.{part}"] for part in ("weight", "scales", "biases"))
        return codes, scales, biases, width // scales.shape[-1], codes.shape[-1] * 32 // width


@dataclass(frozen=True, slots=True)
class TowerCall:
    """A tile for a tower.

    Attributes:
        weights: Qwen's own; those of the others begin with `tower.` and `projector.`.
        settings: The part `vision_config` of config.json, with those of the projector, and the text model's
            `text_norm_eps`.
        patches: (n, numbers of a patch) as `Prepared` has them, or the tile's pixels (3, side, side).
        grid: The tile's rows and columns of tokens.
        evaluate: Called with the state after each layer.
    """

    weights: TowerWeights
    settings: Mapping[str, Any]
    patches: mx.array
    grid: tuple[int, int]
    evaluate: _Evaluate

    @property
    def tower(self) -> TowerWeights:
        """The weights without the projector's."""
        return self.weights.part("tower.")

    @property
    def side(self) -> int:
        """The number of patches along each side of a token; not for a tile of pixels, which is not cut yet."""
        return math.isqrt(len(self.patches) // math.prod(self.grid))


def rotation(positions: npt.NDArray[Any], size: int, theta: float, parts: int = 1) -> Callable[[mx.array], mx.array]:
    """Return the function that rotates heads, (n, heads, size), by the two numbers of each place.

    Features turn in pairs, half of the pairs by each number. In a head of 8 features, these are the pairs:

    | parts | by the first number | by the second |
    |---|---|---|
    | 1 | 0 and 4, 1 and 5 | 2 and 6, 3 and 7 |
    | 2 | 0 and 2, 1 and 3 | 4 and 6, 5 and 7 |

    Args:
        positions: (n, 2): such as row and column.
        size: Of a head.
        theta: The base of the frequencies.
        parts: 2 if each number turns its own half of the head; 1 if the pairs span the complete head.
    """
    turns = 1 / theta ** (np.arange(0, size // 2, 2) / (size // 2))
    angles = mx.array((positions[..., None] * turns).reshape(len(positions), 1, parts, -1).astype(np.float32))
    cos = mx.cos(angles)
    sin = mx.sin(angles)

    def turned(heads: mx.array) -> mx.array:
        one, other = mx.split(heads.astype(mx.float32).reshape(*heads.shape[:2], parts, -1), 2, axis=-1)
        both = mx.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)
        return both.reshape(heads.shape).astype(heads.dtype)

    return turned


def gemma4_rows(call: TowerCall) -> SeenImage:
    """Return the rows of an image for Gemma 4: the mean of each square of patches, normalised and projected.

    Its patches have numbers from 0 to 1, and come row by row.
    """
    tower = call.tower
    side = call.side
    high, broad = (side * each for each in call.grid)
    # The tables of columns and of rows.
    across, down = tower["patch_embedder.position_embedding_table"]
    x = tower.linear("patch_embedder.input_proj", (2 * (call.patches - 0.5)).astype(across.dtype))
    x += (down[:high, None] + across[:broad]).reshape(x.shape)
    layers = tower.layer_weights("encoder.layers.", call.settings.get("num_hidden_layers"))
    size = layers[0]["self_attn.q_norm.weight"].size
    column_and_row = np.indices((high, broad))[::-1].reshape(2, -1).T
    turned = rotation(column_and_row, size, _GEMMA_THETA, parts=2)
    for layer in layers:
        inner = layer.rms_norm("input_layernorm", x)
        q, k, v = (_linear(layer, f"self_attn.{name}_proj", inner).reshape(len(x), -1, size) for name in "qkv")
        q, k = (turned(layer.rms_norm(f"self_attn.{name}_norm", part)) for name, part in (("q", q), ("k", k)))
        inner = attend(q, k, mx.fast.rms_norm(v, None, 1e-6), scale=1.0, evaluate=call.evaluate)
        x += layer.rms_norm("post_attention_layernorm", _linear(layer, "self_attn.o_proj", inner))
        inner = layer.rms_norm("pre_feedforward_layernorm", x)
        inner = gelu_approx(_linear(layer, "mlp.gate_proj", inner)) * _linear(layer, "mlp.up_proj", inner)
        x += layer.rms_norm("post_feedforward_layernorm", _linear(layer, "mlp.down_proj", inner))
        call.evaluate(x)
    # Such numbers may be too large for 16 bits.
    pooled = x.astype(mx.float32).reshape(call.grid[0], side, call.grid[1], side, -1).mean((1, 3)).flatten(0, 1)
    pooled *= math.sqrt(x.shape[-1])
    if "std_scale" in tower:
        pooled = (pooled - tower["std_bias"]) * tower["std_scale"]
    normal = mx.fast.rms_norm(pooled.astype(x.dtype), None, 1e-6)
    return SeenImage(call.weights.linear("projector.embedding_projection", normal))


def _linear(weights: TowerWeights, name: str, x: mx.array) -> mx.array:
    """Return a linear layer's output; some checkpoints bound its inputs and outputs."""
    return _bounded(weights, f"{name}.output", weights.linear(f"{name}.linear", _bounded(weights, f"{name}.input", x)))


def _bounded(weights: TowerWeights, name: str, x: mx.array) -> mx.array:
    """Return x within the bounds of this name; as it is where the checkpoint has none."""
    return mx.clip(x, weights[f"{name}_min"], weights[f"{name}_max"]) if f"{name}_min" in weights else x


def qwen_rows(call: TowerCall) -> SeenImage:
    """Return the rows of an image for Qwen's models, and its deep features.

    The weights and their names tell the versions apart:
    - Qwen2-VL: layer norms, and every layer sees the complete image.
    - Qwen2.5-VL, with gates in its layers (`is_gated`): RMS norms, and most layers see only windows, all but `full`.
    - Qwen3-VL and later, with `pos_embed.weight`: as Qwen2-VL, but with a table of positions beside the rotary ones,
      and other names in the merger. In Qwen3-VL some inner layers (`taken`) give features too (DeepStack).
    """
    weights = call.weights
    settings = call.settings
    tokens = math.prod(call.grid)
    kernel = weights.patch_kernel("patch_embed.proj", settings.get("in_channels", 3))
    x = call.patches.astype(kernel.dtype) @ kernel.flatten(1).T
    positions = _block_positions(call)
    merger_names = ("ln_q", "mlp.0", "mlp.2")
    if "pos_embed.weight" in weights:
        x += weights["patch_embed.proj.bias"]
        x += _resized(weights.table("pos_embed", x.shape[-1]), *positions.T)
        merger_names = _NEWER_MERGER
    heads = settings.get("num_heads", 16)
    turned = rotation(positions, x.shape[-1] // heads, _AXIAL_THETA)
    is_gated = "blocks.0.mlp.gate_proj.weight" in weights
    norm = TowerWeights.rms_norm if is_gated else TowerWeights.norm
    full = settings.get("fullatt_block_indexes", _FULL_LAYERS)
    windows = _windows(settings, len(x), call.grid) if is_gated else []
    mergers = weights.layer_weights("deepstack_merger_list.")
    # By number of the inner layer, the merger that makes features of its output.
    taken = dict(zip(settings.get("deepstack_visual_indexes", _DEEP_LAYERS), mergers, strict=False))
    deep = list[mx.array]()
    for number, block in enumerate(weights.layer_weights("blocks.", settings.get("depth"))):
        qkv = block.linear("attn.qkv", norm(block, "norm1", x)).reshape(len(x), 3, heads, -1)
        q, k, v = qkv.swapaxes(0, 1)
        q = turned(q)
        k = turned(k)
        if windows and number not in full:
            inner = _attend_within(windows, q, k, v, call.evaluate)
        else:
            inner = attend(q, k, v, evaluate=call.evaluate)
        x += block.linear("attn.proj", inner)
        x += _qwen_mlp(block, norm(block, "norm2", x))
        if (merger := taken.get(number)) is not None:
            deep.append(_merged(merger, merger.norm("norm", x.reshape(tokens, -1)), *_NEWER_MERGER[1:]))
        call.evaluate(x)
    # DeepStack's mergers normalise after the merge, this one before it.
    merger = weights.part("merger.")
    name, *layers = merger_names
    return SeenImage(_merged(merger, norm(merger, name, x).reshape(tokens, -1), *layers), tuple(deep))


def _block_positions(call: TowerCall) -> npt.NDArray[Any]:
    """Return (patches, 2): row and column of each patch. They come block by block: a token's are neighbours."""
    rows, columns = call.grid
    side = call.side
    positions = np.indices((side * rows, side * columns)).reshape(2, rows, side, columns, side)
    return positions.swapaxes(2, 3).reshape(2, -1).T


def _qwen_mlp(block: TowerWeights, x: mx.array) -> mx.array:
    """Return the output of a layer's MLP: that of Qwen2.5-VL, of Qwen2-VL, or of Qwen3-VL and later, by its names."""
    if "mlp.gate_proj.weight" in block:
        return _gated(block, "mlp", x)
    if "mlp.fc1.weight" in block:
        return block.linear("mlp.fc2", gelu_fast_approx(block.linear("mlp.fc1", x)))
    return block.linear("mlp.linear_fc2", gelu_approx(block.linear("mlp.linear_fc1", x)))


def pixtral_rows(call: TowerCall) -> SeenImage:
    """Return the rows of an image for Pixtral and Mistral 3. The latter merges squares of patches.

    Patches come row by row.
    """
    tower = call.tower
    settings = call.settings
    weights = call.weights
    side = call.side
    rows, columns = call.grid
    kernel = tower.patch_kernel("patch_conv", settings.get("num_channels", 3))
    x = tower.rms_norm("ln_pre", call.patches.astype(kernel.dtype) @ kernel.flatten(1).T, _PIXTRAL_EPSILON)
    heads = settings.get("num_attention_heads", 16)
    size = x.shape[-1] // heads
    positions = np.indices((side * rows, side * columns)).reshape(2, -1).T
    # Rows turn by frequencies 0, 2, 4 and so on, columns by those between them.
    turned = rotation(positions * [1, _AXIAL_THETA ** (-2 / size)], size, _AXIAL_THETA)
    activation = silu if settings.get("hidden_act") == "silu" else nn.gelu
    for layer in tower.layer_weights("transformer.layers.", settings.get("num_hidden_layers")):
        inner = _attended(layer, "attention", layer.rms_norm("attention_norm", x, _PIXTRAL_EPSILON), call, turned)
        x += layer.linear("attention.o_proj", inner)
        x += _gated(layer, "feed_forward", layer.rms_norm("ffn_norm", x, _PIXTRAL_EPSILON), activation)
        call.evaluate(x)
    if "projector.norm.weight" in weights:
        squares = weights.rms_norm("projector.norm", x, settings["text_norm_eps"])
        # The same feature of all patches next to each other.
        squares = squares.reshape(rows, side, columns, side, -1).transpose(0, 2, 4, 1, 3).flatten(2).flatten(0, 1)
        x = weights.linear("projector.patch_merger.merging_layer", squares)
    return SeenImage(_merged(weights, x, "projector.linear_1", "projector.linear_2"))


def _attended(
    layer: TowerWeights, name: str, x: mx.array, call: TowerCall, turned: Callable[[mx.array], mx.array] = lambda x: x
) -> mx.array:
    """Return what a layer's attention gives, (n, width), before its output; queries and keys may be rotated."""
    heads = call.settings.get("num_attention_heads", 16)
    q, k, v = (layer.linear(f"{name}.{each}_proj", x).reshape(len(x), heads, -1) for each in "qkv")
    return attend(turned(q), turned(k), v, evaluate=call.evaluate)


def _gated(layer: TowerWeights, name: str, x: mx.array, activation: Callable[[mx.array], mx.array] = silu) -> mx.array:
    """Return the output of a gated MLP."""
    inner = activation(layer.linear(f"{name}.gate_proj", x)) * layer.linear(f"{name}.up_proj", x)
    return layer.linear(f"{name}.down_proj", inner)


def _windows(settings: Mapping[str, Any], patches: int, grid: tuple[int, int]) -> list[mx.array]:
    """Return the windows of each size, (windows, patches of each): indices of patches. Those at edges are smaller."""
    # Patches of a token, which follow one another; `side` is that of a window, in tokens.
    unit = patches // math.prod(grid)
    side = settings.get("window_size", 112) // (settings.get("patch_size", 14) * math.isqrt(unit))
    tokens = np.arange(math.prod(grid)).reshape(grid)
    corners = [(top, left) for top in range(0, grid[0], side) for left in range(0, grid[1], side)]
    windows = [tokens[top : top + side, left : left + side].ravel() for top, left in corners]
    of_a_size = [np.stack([each for each in windows if len(each) == size]) for size in {*map(len, windows)}]
    return [mx.array((each[..., None] * unit + np.arange(unit)).reshape(len(each), -1)) for each in of_a_size]


def _attend_within(windows: list[mx.array], q: mx.array, k: mx.array, v: mx.array, evaluate: _Evaluate) -> mx.array:
    """Return what `attend` does, where each patch sees those of its window."""
    result = mx.zeros_like(v.flatten(1))
    for each in windows:
        result[each] = attend(q[each], k[each], v[each], evaluate=evaluate)
    return result


def _merged(merger: TowerWeights, blocks: mx.array, one: str, other: str) -> mx.array:
    """Return the rows of blocks of patches, (tokens, width): two layers, by name."""
    return merger.linear(other, nn.gelu(merger.linear(one, blocks)))


def _resized(table: mx.array, row: npt.NDArray[np.int64], column: npt.NDArray[np.int64]) -> mx.array:
    """Return the table's positions, a square, stretched over an image: bilinear, corner to corner, as Qwen3-VL does it.

    SigLIP 2 does it in another way: `_stretched`.
    """
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


def shuffled_rows(call: TowerCall) -> SeenImage:
    """Return the rows of a square tile for SmolVLM and Idefics3: squares of patches next to each other, projected."""
    return SeenImage(call.weights.linear("projector.proj", _side_by_side(_squares(call))))


def naflex_rows(call: TowerCall) -> SeenImage:
    """Return the rows of a tile of any shape for LFM2-VL: as `shuffled_rows`, with two layers. Patches come by rows."""
    tower = call.tower
    weights = call.weights
    side = call.side
    bias = tower["embeddings.patch_embedding.bias"]
    x = tower.linear("embeddings.patch_embedding", call.patches.astype(bias.dtype))
    table = tower.table("embeddings.position_embedding", bias.size)
    down, across = (_stretched(math.isqrt(len(table)), side * each) for each in call.grid)
    positions = across @ (down @ table.reshape(down.shape[1], -1)).reshape(len(down), -1, bias.size)
    x = _encoded(call, x + positions.reshape(x.shape).astype(x.dtype))
    x = _side_by_side(x.reshape(call.grid[0], side, call.grid[1], side, -1))
    if call.settings.get("projector_use_layernorm", True):
        x = weights.norm("projector.layer_norm", x, 1e-5)
    return SeenImage(_merged(weights, x, "projector.linear_1", "projector.linear_2"))


def _stretched(size: int, count: int) -> mx.array:
    """Return (count, size): the shares of `size` numbers in a line of `count` numbers that is stretched from them.

    It is linear interpolation with antialiasing, as SigLIP 2 does it: edge to edge, and a shorter line has weighted
    means. For 2 numbers in 4: [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]].
    """
    step = size / count
    centres = (np.arange(count)[:, None] + 0.5) * step
    shares = np.maximum(1 - np.abs(np.arange(size) + 0.5 - centres) / max(step, 1), 0)
    return mx.array((shares / shares.sum(1, keepdims=True)).astype(np.float32))


def _side_by_side(squares: mx.array) -> mx.array:
    """Return (rows * columns, width * side**2) of what `_squares` returns."""
    return squares.swapaxes(1, 2).flatten(2).flatten(0, 1)


def pooled_rows(call: TowerCall) -> SeenImage:
    """Return the rows of a square tile for Gemma 3: the mean of each square of patches, normalised and projected."""
    weights = call.weights
    pooled = _squares(call).mean((1, 3)).flatten(0, 1)
    x = mx.fast.rms_norm(pooled, 1 + weights["projector.mm_soft_emb_norm.weight"], 1e-6)
    return SeenImage(x @ weights["projector.mm_input_projection_weight"])


def _squares(call: TowerCall) -> mx.array:
    """Return what SigLIP makes of pixels: (rows, side, columns, side, width), a square of patches for each token.

    Pixels that are over at the right and below, as in SmolVLM 2.2B (384 pixels, patches of 14), count for nothing.
    """
    tower = call.tower
    kernel = tower.patch_kernel("embeddings.patch_embedding")
    width, channels, patch, _ = kernel.shape
    count = call.patches.shape[1] // patch
    pixels = call.patches[:, : count * patch, : count * patch]
    cut = pixels.reshape(channels, count, patch, count, patch).transpose(1, 3, 0, 2, 4).reshape(count**2, -1)
    x = cut.astype(kernel.dtype) @ kernel.flatten(1).T + tower["embeddings.patch_embedding.bias"]
    x = _encoded(call, x + tower.table("embeddings.position_embedding", width))
    high, broad = call.grid
    return x.reshape(high, count // high, broad, count // broad, -1)


def _encoded(call: TowerCall, x: mx.array) -> mx.array:
    """Return what the layers of SigLIP make of patches, (n, width)."""
    for layer in call.tower.layer_weights("encoder.layers.", call.settings.get("num_hidden_layers")):
        inner = _attended(layer, "self_attn", layer.norm("layer_norm1", x), call)
        x += layer.linear("self_attn.out_proj", inner)
        x += layer.linear("mlp.fc2", gelu_approx(layer.linear("mlp.fc1", layer.norm("layer_norm2", x))))
        call.evaluate(x)
    return call.tower.norm("post_layernorm", x)


TOWERS = {
    "qwen": qwen_rows,
    "pixtral": pixtral_rows,
    "shuffled siglip": shuffled_rows,
    "pooled siglip": pooled_rows,
    "siglip of any shape": naflex_rows,
    "gemma4": gemma4_rows,
}
"""The functions that families name."""
