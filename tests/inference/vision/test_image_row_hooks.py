"""Rope by axis in the hooks for image rows, for every kind of rope."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rdchat.inference.mlx_lm_fixes.network_fixes import rope_of
from rdchat.inference.vision.image_rows import CallRows, ImageRowHooks

LONG = {"rope_theta": 1e4, "original_max_position_embeddings": 64, "factor": 4.0}
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_theta": 1e4},
    "linear": {**LONG, "rope_type": "linear"},
    "yarn": {**LONG, "rope_type": "yarn"},
    "llama3": {**LONG, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
SIZE = 24
DIMS = 16


class Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rope: Any = rope_of(KINDS[kind], DIMS, False, 256)


class Network(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = [Layer(kind)]

    def turned(self, heads: np.ndarray, offset: int) -> np.ndarray:
        return np.array(self.layers[0].rope(mx.array(heads), offset=offset))


def heads(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((1, 3, rows, SIZE)).astype(np.float32)


def call_of(positions: np.ndarray) -> CallRows:
    return CallRows(mx.zeros((1, positions.shape[1], 8)), mx.array(positions.astype(np.int32)))


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(rows=some.integers(1, 9), offset=some.integers(0, 200))
@settings(max_examples=20)
def test_one_number_for_all_axes_is_the_plain_position(kind: str, rows: int, offset: int) -> None:
    """YaRN also scales what it turns, once."""
    network = Network(kind)
    x = heads(rows)
    plain = network.turned(x, offset)
    hooks = ImageRowHooks(network, (3, 3, 2))
    with hooks.rows_for_call(call_of(np.tile(np.arange(offset, offset + rows), (3, 1)))):
        assert np.allclose(network.turned(x, 0), plain, atol=1e-5)
    assert np.array_equal(network.turned(x, offset), plain)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("kind", sorted(KINDS))
@given(some.lists(some.tuples(*[some.integers(0, 99)] * 3), min_size=1, max_size=6))
@settings(max_examples=20)
def test_each_frequency_turns_by_its_axis(kind: str, interleaved: bool, positions: list[tuple[int, int, int]]) -> None:
    """Frequencies 1, 4 and 7 by the row, 2 and 5 by the column, for three of the row and two of the column.

    Qwen2-VL and Qwen2.5-VL: the first three by the time, the next three by the row, two by the column.
    """
    network = Network(kind)
    x = heads(len(positions))
    by_axis = np.array(positions).T
    alone = [
        np.concatenate([network.turned(x[:, :, [row]], int(at)) for row, at in enumerate(axis)], 2) for axis in by_axis
    ]
    axis_of = ([0, 1, 2, 0, 1, 2, 0, 1] if interleaved else [0, 0, 0, 1, 1, 1, 2, 2]) * 2 + [0] * (SIZE - DIMS)
    wanted = np.stack([alone[axis][..., feature] for feature, axis in enumerate(axis_of)], axis=-1)
    with ImageRowHooks(network, (3, 3, 2), interleaved=interleaved).rows_for_call(call_of(by_axis)):
        assert np.allclose(network.turned(x, 0), wanted, atol=1e-5)


def test_an_error_ends_the_call() -> None:
    network = Network("default")
    x = heads(2)
    plain = network.turned(x, 7)
    hooks = ImageRowHooks(network, (3, 3, 2))
    with pytest.raises(InterruptedError), hooks.rows_for_call(call_of(np.ones((3, 2)))):
        raise InterruptedError
    assert np.array_equal(network.turned(x, 7), plain)
