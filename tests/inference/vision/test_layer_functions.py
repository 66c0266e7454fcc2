"""Attention and activations of towers give what MLX's own give."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat.inference.vision import layer_functions
from rdchat.inference.vision.layer_functions import attend, gelu_approx, gelu_fast_approx, silu


@given(
    some.lists(some.integers(1, 3), max_size=1),
    some.integers(1, 9),
    some.integers(1, 3),
    some.integers(1, 2),
    some.integers(1, 80),
    some.booleans(),
    some.integers(0, 2**32 - 1),
)
def test_attention_in_parts_is_the_same(
    batch: list[int], count: int, heads: int, each: int, pairs: int, as_on_gpu: bool, seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    shapes = [(*batch, count, number, 8) for number in (each * heads, heads, heads)]
    q, k, v = (mx.array(3 * numbers.normal(size=shape)).astype(mx.float32) for shape in shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_functions, "_PAIRS", pairs)
        patch.setattr(layer_functions, "_CPU_PAIRS", pairs)
        patch.setattr(layer_functions, "on_gpu", lambda: as_on_gpu)
        found = attend(q, k, v, 0.5)
    whole = [part.reshape(-1, count, part.shape[-2], 8).swapaxes(1, 2) for part in (q, k, v)]
    expected = mx.fast.scaled_dot_product_attention(*whole, scale=0.5).swapaxes(1, 2)
    assert found.shape == (*batch, count, each * heads * 8)
    assert np.allclose(np.array(found), np.array(expected.reshape(found.shape)), atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(gelu_approx, nn.gelu_approx), (gelu_fast_approx, nn.gelu_fast_approx), (silu, nn.silu)]
)
def test_activations_leave_their_input_as_it_is(
    ours: Callable[[mx.array], mx.array], theirs: Callable[[mx.array], mx.array]
) -> None:
    numbers = np.concatenate([np.linspace(-9, 9, 999), [-1e30, 1e30]]).astype(np.float32)
    x = mx.array(numbers)
    assert np.allclose(np.array(ours(x)), np.array(theirs(x)), atol=1e-6)
    assert np.array_equal(np.array(x), numbers)


def test_numbers_that_are_not_finite_stay_so_without_a_warning() -> None:
    q = mx.array([[[np.inf]], [[1.0]]])
    assert not np.isfinite(np.array(attend(q, q, q))).all()
