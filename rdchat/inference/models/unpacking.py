"""Unpacks quantised weights on the host, with the bits that `mx.dequantize` gives.

MLX computes 16-bit products and sums in software on a CPU, which takes three times as long as the rest of its work.
Here they are computed in float32 and rounded to the type of the scales, which gives the same numbers.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.verification.device import fetch

# Codes do not cross bytes.
_BITS = (2, 4, 8)
# Weights that are unpacked together: they stay in the cache of the processor.
_TOGETHER = 2**16
_EXPONENT = 0x7F80_0000

type _Floats = npt.NDArray[np.float32]


def can_unpack(module: nn.Module) -> bool:
    """Return whether `unpacked` reads the weights of a layer."""
    is_affine = getattr(module, "mode", None) == "affine" and module.bits in _BITS
    return is_affine and module.scales.dtype in (mx.float16, mx.bfloat16)


def unpacked(module: nn.Module) -> mx.array:
    """Return the weights of a quantised layer: (..., columns) float32, rounded to the type of its scales.

    Weight = code * scale + bias, by groups of a row; the first code is in the lowest bits.
    """
    packed, scales, biases = fetch(module.weight, module.scales.astype(mx.float32), module.biases.astype(mx.float32))
    columns = packed.shape[-1] * 32 // module.bits
    weights = np.empty((packed.size * 32 // module.bits // columns, columns), np.float32)
    codes = packed.reshape(len(weights), -1).view(np.uint8)
    scales = scales.reshape(len(weights), -1, 1)
    biases = biases.reshape(scales.shape)
    per_byte = 8 // module.bits
    rows = max(_TOGETHER // columns, 1)
    for start in range(0, len(weights), rows):
        part = slice(start, start + rows)
        for place in range(per_byte):
            weights[part, place::per_byte] = codes[part] >> place * module.bits & 2**module.bits - 1
        groups = weights[part].reshape(*scales[part].shape[:2], -1)
        groups *= scales[part]
        _round(groups, module.scales.dtype)
        groups += biases[part]
        _round(groups, module.scales.dtype)
    return mx.array(weights.reshape(*packed.shape[:-1], columns))


def _round(numbers: _Floats, dtype: mx.Dtype) -> None:
    """Round numbers in place to a 16-bit type, to the nearest, and halves to even.

    Adding a number so large that float32 has no finer digits rounds them so, and subtracting it is exact.
    """
    limits = mx.finfo(dtype)
    large = (numbers.view(np.uint32) & np.uint32(_EXPONENT)).view(np.float32)
    np.maximum(large, np.float32(limits.smallest_normal), out=large)
    large *= np.float32(1.5 * limits.eps / np.finfo(np.float32).eps)
    numbers += large
    numbers -= large
