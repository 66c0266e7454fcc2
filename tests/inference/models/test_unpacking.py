"""Weights that are unpacked on a CPU have the bits that MLX would give them."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from rdchat.inference.models import unpacking
from rdchat.inference.models.unpacking import dequantized


class Layers(nn.Module):
    """A table, a layer with a bias and one without; 8 bits in some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(37, 128)
        self.middle = nn.Linear(128, 64, bias=True)
        self.last = nn.Linear(64, 37, bias=False)


def quantised(dtype: mx.Dtype, bits: int, mode: str = "affine", scale: float = 1.0) -> nn.Module:
    mx.random.seed(bits)
    network = Layers()
    network.update({"last": {"weight": mx.random.normal((37, 64)) * scale}})
    network.set_dtype(dtype)
    group = 32
    sizes = {"group_size": group, "bits": bits, "mode": mode}
    nn.quantize(
        network, class_predicate=lambda name, _: {**sizes, "bits": 8} if name == "table" and mode == "affine" else sizes
    )
    return network


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_bits_are_those_of_mlx(dtype: mx.Dtype, bits: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of small weights are not normal numbers in 16 bits; a table is unpacked in pieces."""
    monkeypatch.setattr(unpacking, "_PIECE", 1000)
    expected = dict(tree_flatten(dequantize_model(quantised(dtype, bits, scale=scale)).parameters()))
    network = dequantized(quantised(dtype, bits, scale=scale))
    actual = dict(tree_flatten(network.parameters()))
    assert isinstance(network.table, nn.Embedding)
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        assert mx.array_equal(array.astype(mx.float32), expected[name].astype(mx.float32)), name


def test_other_kinds_of_packing_are_left_to_mlx() -> None:
    expected = dict(tree_flatten(dequantize_model(quantised(mx.bfloat16, 4, "mxfp4")).parameters()))
    actual = dict(tree_flatten(dequantized(quantised(mx.bfloat16, 4, "mxfp4")).parameters()))
    assert all(mx.array_equal(actual[name], array) for name, array in expected.items())
