"""What MLX computes slowly on a CPU under Linux: exponentials, and attention, which is full of them.

MLX computes each exponential alone there (some 15 ns), but for those in functions that it compiles for this processor
(`blas`): such a loop takes 0.6 ns for each, if it runs over arrays without gaps. MLX's attention multiplies and adds up
key by key head; here the query heads of a group are rows of one product. And it computes the sines and cosines of
positions anew in each layer.

This module's import puts `attention` and `rope` in the places of `mx.fast.scaled_dot_product_attention` and
`mx.fast.rope`, which unmodified models call. With Metal, CUDA or a Mac's CPU it leaves MLX's.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import mlx.core as mx

from rdchat import host
from rdchat.inference.device import on_gpu

_mlx_attention = mx.fast.scaled_dot_product_attention
_mlx_rope = mx.fast.rope


@partial(mx.compile, shapeless=True)
def exponentials(x: mx.array) -> mx.array:
    """Return exp(x), float32 of any shape, exact to 2e-7 (1 + |x|) of it, as MLX's own is.

    MLX compiles no function of a single operation, so there is a product as well.
    """
    return mx.exp(x * 1.0)


def attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    **options: Any,
) -> mx.array:
    """Return softmax(scale * queries @ keys.T + mask) @ values: (batch, heads, rows, value size).

    Other types than float32, options of MLX's function that are not named here, and shapes that it refuses go to MLX's.

    Args:
        queries: (batch, heads, rows, size).
        keys: (batch, key heads, columns, size); each key head serves a group of neighbouring query heads.
        values: (batch, key heads, columns, value size).
        scale: Of the scores.
        mask: Added to the scores, or which of them count, in a shape that broadcasts to (batch, heads, rows, columns);
            `causal` if the rows are the last ones, and see what is before them.
        sinks: (heads,): a score of each head that takes a share of the softmax, but has no value.
        **options: See `mx.fast.scaled_dot_product_attention`.
    """
    parts = [queries, keys, values]
    if options or any(part.ndim != 4 or part.dtype != mx.float32 for part in parts):
        return _mlx_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks, **options)
    batch, heads, rows, size = queries.shape
    columns = keys.shape[2]
    groups = (batch, keys.shape[1], heads // keys.shape[1])
    stacked = (*groups[:2], groups[2] * rows)
    scores = ((queries * scale).reshape(*stacked, size) @ keys.swapaxes(-1, -2)).reshape(*groups, rows, columns)
    if mask is not None:
        scores = _masked(scores, mask)
    top = mx.max(scores, axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.reshape(1, *groups[1:], 1, 1)
        top = mx.maximum(top, sinks)
    weights = exponentials(scores - top)
    total = mx.sum(weights, axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - top)
    sums = weights.reshape(*stacked, columns) @ values / total.reshape(*stacked, 1)
    return sums.reshape(batch, heads, rows, -1)


def _masked(scores: mx.array, mask: mx.array | str) -> mx.array:
    """Return scores, (batch, key heads, group, rows, columns), with a mask as MLX applies it."""
    if isinstance(mask, str):
        rows, columns = scores.shape[-2:]
        mask = mx.arange(columns - rows, columns)[:, None] >= mx.arange(columns)
    if mask.ndim > 2:
        heads = (1, 1) if mask.shape[-3] == 1 else scores.shape[1:3]
        mask = mx.unflatten(mask, -3, heads)
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, mx.finfo(mx.float32).min)
    return scores + mask


# The call that a thread is in: what rows are turned by, at which positions, with the options of `rope`. None outside of
# a call. Tables end with it, because they are lazy: they count on the thread's streams, and on the function that is
# being traced.
_tables: ContextVar[dict[tuple[Any, ...], tuple[mx.array, mx.array, dict[str, Any]]] | None]
_tables = ContextVar("_tables", default=None)


@contextmanager
def shared_positions() -> Iterator[None]:
    """Within the block, a model's call, layers share the sines and cosines of their positions."""
    before = _tables.set({})
    try:
        yield
    finally:
        _tables.reset(before)


def rope(x: mx.array, dims: int, **options: Any) -> mx.array:
    """Return the rows turned by their positions, exactly as `mx.fast.rope` does in float32.

    Other types and shapes, rows that are turned in part or as pairs of neighbours, and those outside of
    `shared_positions` go to MLX's.

    Args:
        x: (batch, heads, rows, dims).
        dims: How much of a row is turned.
        **options: See `mx.fast.rope`.
    """
    tables = _tables.get()
    whole = x.ndim == 4 and x.dtype == mx.float32 and dims == x.shape[-1]
    if tables is None or not whole or options["traditional"] or "stream" in options:
        return _mlx_rope(x, dims, **options)
    rows = x.shape[-2]
    named = [(name, id(value) if isinstance(value, mx.array) else value) for name, value in options.items()]
    key = (rows, dims, *named)
    if key not in tables:
        # With the options, so that the identities of their arrays stay theirs.
        tables[key] = (*_turns(rows, dims, options), options)
    cosines, sines, _ = tables[key]
    first, second = mx.split(x, 2, axis=-1)
    return x * cosines + mx.concatenate([second, first], axis=-1) * sines


def _turns(rows: int, size: int, options: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Return what rows are multiplied by, and their swapped halves: (1 or batch, 1, rows, size) each."""
    freqs = options.get("freqs")
    if freqs is None:
        half = size // 2
        turns = mx.exp(mx.arange(half) * (-mx.log(mx.array(options["base"])) / half))
    else:
        turns = 1 / freqs
    positions = mx.arange(rows) + mx.array(options["offset"]).reshape(-1, 1, 1)
    angles = (positions * options["scale"])[..., None] * turns
    cosines = mx.cos(angles)
    sines = mx.sin(angles)
    return mx.concatenate([cosines, cosines], axis=-1), mx.concatenate([-sines, sines], axis=-1)


if not host.MACOS and not on_gpu():
    vars(mx.fast).update(scaled_dot_product_attention=attention, rope=rope)
