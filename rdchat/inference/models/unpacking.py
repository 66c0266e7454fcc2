"""Unpacks quantised weights on the host, with the bits that `mx.dequantize` gives.

MLX computes 16-bit products and sums in software on a CPU, which takes three times as long as the rest of its work.
Here they are computed in float32 and rounded to the type of the scales, which gives the same numbers.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.device import fetch

# Bits of a code; with these, no code crosses the border of a byte.
_BITS = (2, 4, 8)
# Groups that are unpacked together: they stay in the cache of the processor.
_TOGETHER = 2048
# The bits of a float32's exponent.
_EXPONENT = np.uint32(0x7F80_0000)


def can_unpack(module: nn.Module) -> bool:
    """Return whether `unpacked` reads the weights of a layer."""
    is_affine = getattr(module, "mode", None) == "affine"
    return is_affine and module.bits in _BITS and bool(module.scales.dtype.size == 2)


def unpacked(module: nn.Module) -> mx.array:
    """Return the weights of a quantised layer: (..., columns) float32, rounded to the type of its scales.

    Weight = code * scale + bias, by groups of a row; the first code is in the lowest bits.
    """
    float32 = (module[name].astype(mx.float32) for name in ("scales", "biases"))
    packed, scales, biases = fetch(module.weight, *float32)
    scales = scales.reshape(-1, 1)
    biases = biases.reshape(-1, 1)
    per_byte = 8 // module.bits
    codes = packed.view(np.uint8).reshape(len(scales), -1)
    weights = np.empty((len(codes), module.group_size), np.float32)
    # A damaged file may have scales that are not finite.
    with np.errstate(all="ignore"):
        for start in range(0, len(codes), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            groups = weights[part]
            for place in range(per_byte):
                groups[:, place::per_byte] = codes[part] >> place * module.bits & 2**module.bits - 1
            groups *= scales[part]
            _round(groups, module.scales.dtype)
            groups += biases[part]
            _round(groups, module.scales.dtype)
    return mx.array(weights.reshape(*packed.shape[:-1], -1))


def _round(numbers: npt.NDArray[np.float32], dtype: mx.Dtype) -> None:
    """Round numbers in place to a 16-bit type, to the nearest, and halves to even.

    Adding a number so large that float32 has no finer digits rounds them so, and subtracting it is exact. `large` is
    made for each number: first the power of two not above it, or the 16-bit type's smallest one; then as many times
    that as float32 is finer than the 16-bit type. With the factor 1.5, the sum stays between the same powers of two for
    both signs.
    """
    limits = mx.finfo(dtype)
    large = (numbers.view(np.uint32) & _EXPONENT).view(np.float32)
    np.maximum(large, np.float32(limits.smallest_normal), out=large)
    large *= np.float32(1.5 * limits.eps / np.finfo(np.float32).eps)
    numbers += large
    numbers -= large
