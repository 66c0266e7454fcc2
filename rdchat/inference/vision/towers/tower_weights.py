"""The weights of a tower by name, floats or quantised by MLX, and the layers that towers are made of."""

from collections.abc import Callable, Mapping

import mlx.core as mx
import numpy as np
import numpy.typing as npt

# Attention is computed in parts of so many pairs of patches: MLX may hold the scores of all pairs of a call in memory.
_PAIRS = 2**22


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

    def parts(self, prefix: str) -> list["TowerWeights"]:
        """Return the weights of layers, whose numbers follow a prefix."""
        start = self._prefix + prefix
        numbers = {int(name.removeprefix(start).partition(".")[0]) for name in self._arrays if name.startswith(start)}
        return [self.part(f"{prefix}{number}.") for number in sorted(numbers)]

    def linear(self, name: str, x: mx.array) -> mx.array:
        """Return (..., outputs) for x (..., inputs)."""
        if f"{name}.scales" in self:
            words, scales, biases, group, bits = self._packed(name, x.shape[-1])
            y = mx.quantized_matmul(x, words, scales, biases, True, group, bits)
        else:
            y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self else y

    def norm(self, name: str, x: mx.array, epsilon: float = 1e-6) -> mx.array:
        """Return the layer norm over the last axis."""
        return mx.fast.layer_norm(x, self[f"{name}.weight"], self[f"{name}.bias"], epsilon)

    def rms_norm(self, name: str, x: mx.array) -> mx.array:
        """Return the norm by the root mean square over the last axis."""
        return mx.fast.rms_norm(x, self[f"{name}.weight"], 1e-6)

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
        words, scales, biases = (self[f"{name}.{part}"] for part in ("weight", "scales", "biases"))
        return words, scales, biases, width // scales.shape[-1], words.shape[-1] * 32 // width


def attend(q: mx.array, k: mx.array, v: mx.array, scale: float | None = None) -> mx.array:
    """Return (n, heads * size): attention of all rows to all, for q, k and v (n, heads, size).

    Scores are multiplied by `scale`, usually 1 / sqrt(size).
    """
    q, k, v = (part.swapaxes(0, 1)[None] for part in (q, k, v))
    parts = []
    count = max(_PAIRS // q.shape[2], 1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    for at in range(0, q.shape[2], count):
        parts.append(mx.fast.scaled_dot_product_attention(q[:, :, at : at + count], k, v, scale=scale))
        # Otherwise memory for all parts is taken at once.
        mx.eval(parts[-1])
    return mx.concatenate(parts, axis=2)[0].swapaxes(0, 1).flatten(1)


def rotation(places: npt.NDArray[np.int64], size: int, theta: float, parts: int = 1) -> Callable[[mx.array], mx.array]:
    """Return the function that rotates heads, (n, heads, size): half of the frequencies by each number of a place.

    Args:
        places: (n, 2): such as row and column.
        size: Of a head.
        theta: The base of the frequencies.
        parts: Features i and i + size / (2 * parts) of a part turn together.
    """
    turns = 1 / theta ** (np.arange(0, size // 2, 2) / (size // 2))
    angles = mx.array((places[..., None] * turns).reshape(len(places), 1, parts, -1).astype(np.float32))
    cos = mx.cos(angles)
    sin = mx.sin(angles)

    def turned(heads: mx.array) -> mx.array:
        one, other = mx.split(heads.astype(mx.float32).reshape(*heads.shape[:2], parts, -1), 2, axis=-1)
        both = mx.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)
        return both.reshape(heads.shape).astype(heads.dtype)

    return turned
