"""Weights that are unpacked on the host have the bits of MLX's own."""

from itertools import product

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat.inference.models.unpacking import can_unpack, unpacked
from tests.grids import share

ROWS = 96
COLUMNS = 256
FLOATS = [mx.float16, mx.bfloat16]
# Ordinary weights, rows that differ by many powers of two, and weights below the smallest normal number.
SIZES = [1.0, "mixed", 1e-6]


def layer(bits: int, dtype: mx.Dtype, size: float | str, group: int = 32) -> nn.QuantizedLinear:
    rng = np.random.default_rng(bits)
    scale = 2.0 ** rng.integers(-20, 8, (ROWS, 1)) if size == "mixed" else float(size)
    weights = rng.normal(size=(ROWS, COLUMNS)) * scale
    plain = nn.Linear(COLUMNS, ROWS, bias=False)
    plain.weight = mx.array(weights.astype(np.float32)).astype(dtype)
    return nn.QuantizedLinear.from_linear(plain, group, bits)


def from_mlx(module: nn.Module) -> mx.array:
    parts = module.weight, module.scales, module.biases
    return mx.dequantize(*parts, module.group_size, module.bits, module.mode).astype(mx.float32)


def same_bits(first: mx.array, second: mx.array) -> bool:
    return first.shape == second.shape and bool(mx.array_equal(first.view(mx.uint32), second.view(mx.uint32)))


@pytest.mark.parametrize(("bits", "dtype", "size"), share(list(product([2, 4, 8], FLOATS, SIZES)), 6))
def test_the_bits_are_those_of_mlx(bits: int, dtype: mx.Dtype, size: float | str) -> None:
    for group in (32, 64, 128):
        module = layer(bits, dtype, size, group)
        assert can_unpack(module)
        assert same_bits(unpacked(module), from_mlx(module))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_code_of_random_scales_has_the_bits_of_mlx(dtype: mx.Dtype) -> None:
    """Halves between two numbers of 16 bits occur in every row."""
    module = layer(8, dtype, 1.0)
    module.weight = mx.array(
        np.arange(ROWS * COLUMNS, dtype=np.uint32).astype(np.uint8).view(np.uint32).reshape(ROWS, -1)
    )
    rng = np.random.default_rng(1)
    module.scales = mx.array(rng.normal(size=module.scales.shape).astype(np.float32)).astype(dtype)
    module.biases = mx.array(rng.normal(size=module.scales.shape).astype(np.float32)).astype(dtype)
    assert same_bits(unpacked(module), from_mlx(module))


def test_stacked_experts_keep_their_shape() -> None:
    module = layer(4, mx.float16, 1.0)
    for name in ("weight", "scales", "biases"):
        module[name] = module[name].reshape(4, ROWS // 4, -1)
    assert same_bits(unpacked(module), from_mlx(module))


@pytest.mark.parametrize("bits", [3, 6])
def test_codes_across_bytes_are_left_to_mlx(bits: int) -> None:
    assert not can_unpack(layer(bits, mx.float16, 1.0))
    assert not can_unpack(layer(4, mx.float32, 1.0))
    assert not can_unpack(nn.Linear(2, 2))
