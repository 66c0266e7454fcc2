"""Attention and exponentials on a CPU: as exact as MLX's, for each form that models use."""

from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdchat import host
from rdchat.inference import cpu_kernels
from rdchat.inference.cpu_kernels import attention, exponentials, rope, shared_positions
from rdchat.inference.device import on_gpu

pytestmark = pytest.mark.skipif(on_gpu(), reason="of a CPU")
mlx_attention = cpu_kernels._mlx_attention
mlx_rope = cpu_kernels._mlx_rope


def exact(q, k, v, scale, mask, sinks):
    """Return the attention in float64."""
    q, k, v = (np.array(part, np.float64) for part in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = scale * q @ np.repeat(k, group, axis=1).swapaxes(-1, -2)
    rows, columns = scores.shape[-2:]
    if isinstance(mask, str):
        mask = mx.array(np.tri(rows, columns, columns - rows, dtype=bool))
    if mask is not None:
        mask = np.array(mask)
        scores = np.where(mask, scores, np.finfo(np.float32).min) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    extra = 0.0
    if sinks is not None:
        sinks = np.array(sinks, np.float64)[:, None, None]
        top = np.maximum(top, sinks)
        extra = np.exp(sinks - top)
    weights = np.exp(scores - top)
    return weights / (weights.sum(-1, keepdims=True) + extra) @ np.repeat(v, group, axis=1)


@st.composite
def calls(draw):
    """Draw queries, keys, values, scale, mask and sinks; keys may be a view of longer ones, as from a cache."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    normal = lambda *shape: mx.array(random.normal(size=shape).astype(np.float32))  # noqa: E731
    batch, key_heads, group = (draw(st.integers(1, 3)) for _ in range(3))
    rows = draw(st.sampled_from([1, 2, 5, 16]))
    columns = rows + draw(st.integers(0, 40))
    size, value_size = draw(st.sampled_from([(8, 8), (16, 8), (64, 64)]))
    queries = normal(batch, rows, key_heads * group, size).swapaxes(1, 2) * draw(st.sampled_from([1.0, 8.0]))
    keys = normal(batch, key_heads, columns + 9, size)[:, :, :columns]
    values = normal(batch, key_heads, columns + 9, value_size)[:, :, 9:]
    heads = key_heads * group
    shape = draw(
        st.sampled_from(
            [(rows, columns), (1, 1, rows, columns), (batch, 1, rows, columns), (batch, heads, rows, columns)]
        )
    )
    seen = random.random(shape) < 0.7
    mask = draw(
        st.sampled_from(
            [
                None,
                "causal",
                mx.array(seen),
                mx.array(np.where(seen, random.normal(size=shape), -1e9).astype(np.float32)),
            ]
        )
    )
    sinks = draw(st.sampled_from([None, normal(heads)]))
    return queries, keys, values, size**-0.5, mask, sinks


@given(calls())
def test_it_is_as_exact_as_the_function_of_mlx(call):
    queries, keys, values, scale, mask, sinks = call
    truth = exact(*call)
    ours = attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    theirs = mlx_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    assert ours.shape == theirs.shape
    error = np.abs(np.array(ours) - truth).max()
    # The products add up in another order: each is exact to its largest score.
    rounding = 2e-7 * (1 + mx.abs(scale * queries).max().item() * mx.abs(keys).max().item())
    assert error <= 2 * np.abs(np.array(theirs) - truth).max() + rounding * mx.abs(values).max().item()


def test_it_is_what_models_call_on_a_cpu():
    expected = mlx_attention if host.MACOS else attention
    assert mx.fast.scaled_dot_product_attention is expected


def test_other_types_are_left_to_mlx():
    q, k, v = (mx.random.normal((1, 2, 4, 8), dtype=mx.bfloat16) for _ in range(3))
    assert mx.array_equal(attention(q, k, v, scale=1.0), mlx_attention(q, k, v, scale=1.0))


def test_refused_shapes_are_refused_by_mlx():
    with pytest.raises(ValueError, match="rank 4"):
        attention(*[mx.zeros((2, 4, 8))] * 3, scale=1.0)


@given(st.lists(st.floats(-104, 88, width=32), min_size=1, max_size=70))
def test_exponentials_are_exact(numbers):
    result = np.array(exponentials(mx.array(numbers, mx.float32)), np.float64)
    numbers = np.float64(np.float32(numbers))
    # Below exp(-87) float32 loses digits.
    assert np.all(np.abs(result - np.exp(numbers)) <= 2e-7 * (1 + np.abs(numbers)) * np.exp(numbers) + 1e-37)


def test_exponentials_of_what_is_no_number():
    result = exponentials(mx.array([-mx.inf, mx.inf, mx.nan, -1e9, 0.0]))
    assert result.tolist()[:2] == [0.0, mx.inf]
    assert mx.isnan(result[2])
    assert result.tolist()[3:] == [0.0, 1.0]


@st.composite
def turns(draw):
    """Draw the arguments of a rope, its offset one number or one for each batch row."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    batch, heads, rows = (draw(st.integers(1, 3)) for _ in range(3))
    size = draw(st.sampled_from([4, 16, 64]))
    x = mx.array(random.normal(size=(batch, rows, heads, size)).astype(np.float32)).swapaxes(1, 2)
    starts = mx.array(random.integers(0, 4000, batch))
    offset = draw(st.sampled_from([0, 7, 3000, mx.array(5), starts]))
    freqs = draw(st.sampled_from([None, mx.array(random.uniform(1, 1e4, size // 2).astype(np.float32))]))
    base = None if freqs is not None else draw(st.sampled_from([1e4, 5e5]))
    scale = draw(st.sampled_from([1.0, 0.25]))
    dims = draw(st.sampled_from([size, size // 2])) if freqs is None else size
    traditional = draw(st.booleans())
    return x, dims, {"traditional": traditional, "base": base, "scale": scale, "offset": offset, "freqs": freqs}


@given(turns())
def test_rows_are_turned_as_mlx_turns_them(call):
    x, dims, options = call
    expected = mlx_rope(x, dims, **options)
    with shared_positions():
        for _ in range(2):
            assert np.allclose(rope(x, dims, **options), expected, atol=1e-6)
    assert np.array_equal(rope(x, dims, **options), expected)


def test_positions_that_a_compiled_call_was_traced_with_are_not_used_again():
    def call(x, offset):
        with shared_positions():
            return rope(x, 8, traditional=False, base=1e4, scale=1.0, offset=offset)

    compiled = mx.compile(call)
    x = mx.random.normal((2, 1, 3, 8))
    for first in (1, 50, 9):
        offset = mx.array([first, 3])
        expected = mlx_rope(x, 8, traditional=False, base=1e4, scale=1.0, offset=offset)
        assert np.allclose(compiled(x, offset), expected, atol=1e-6)
        assert np.allclose(call(x, offset), expected, atol=1e-6)


def test_a_call_in_another_thread_has_its_own_positions():
    x = mx.random.normal((1, 1, 3, 8))
    mx.eval(x)

    def turn():
        result = rope(x, 8, traditional=False, base=1e4, scale=1.0, offset=17)
        mx.eval(result)
        return np.array(result)

    with shared_positions():
        here = turn()
        with ThreadPoolExecutor(1) as pool:
            assert np.allclose(pool.submit(turn).result(), here, atol=1e-6)
