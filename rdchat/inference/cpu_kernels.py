"""What MLX computes slowly on a CPU under Linux: exponentials, and attention, which is full of them.

MLX computes each exponential alone there (some 15 ns), but for those in functions that it compiles for this processor
(`blas`): such a loop takes 0.6 ns for each, if it runs over arrays without gaps. MLX's attention multiplies and adds up
key by key head; here the query heads of a group are rows of one product.

This module's import puts `attention` in the place of `mx.fast.scaled_dot_product_attention`, which unmodified models
call. With Metal, CUDA or a Mac's CPU it leaves MLX's.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from functools import partial
from typing import Any

import mlx.core as mx

from rdchat import host
from rdchat.inference.device import on_gpu

_mlx_attention = mx.fast.scaled_dot_product_attention


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


if not host.MACOS and not on_gpu():
    vars(mx.fast)["scaled_dot_product_attention"] = attention
