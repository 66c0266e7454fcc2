"""Attention and activations of towers.

On a CPU, MLX computes exponentials one number at a time. NumPy computes many at once: 30 times as fast on x86. So they
are computed in place there, in blocks that stay in the processor's cache.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.device import change_in_place, on_gpu

# Attention is computed in parts of so many pairs of patches: MLX may hold the scores of all pairs of a call in memory.
_PAIRS = 2**22
# With NumPy, pairs of which the scores (4 MB) stay in the processor's cache.
_CPU_PAIRS = 2**20
type _Numbers = npt.NDArray[np.float32]
# Whether the block of `nothing_computed` runs.
_lazy = ContextVar("lazy", default=False)


@contextmanager
def nothing_computed() -> Iterator[None]:
    """Within the block, the functions here compute nothing: their results have shapes alone, unless evaluated."""
    token = _lazy.set(True)
    try:
        yield
    finally:
        _lazy.reset(token)


def _by_mlx() -> bool:
    """Return whether MLX computes: on a GPU, and where nothing is to be computed."""
    return on_gpu() or _lazy.get()


def attend(
    q: mx.array, k: mx.array, v: mx.array, scale: float | None = None, evaluate: Callable[[mx.array], None] = mx.eval
) -> mx.array:
    """Return (..., n, heads * size): attention of all rows to all, for q, k and v (..., n, heads, size).

    Args:
        q: Queries.
        k: Keys. They and the values may have fewer heads, each for several of the queries'.
        v: Values.
        scale: Scores are multiplied by it; None for 1 / sqrt(size).
        evaluate: Called with each part of the result: otherwise memory for all parts is taken at once. Within
            `nothing_computed` it must do nothing.
    """
    shape = q.shape
    scale = shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (part.reshape(-1, *part.shape[-3:]).swapaxes(1, 2) for part in (q, k, v))
    compute = _by_kernel if _by_mlx() else _by_numpy
    return compute(q, k, v, scale, evaluate).swapaxes(1, 2).reshape(*shape[:-2], -1)


def _by_kernel(q: mx.array, k: mx.array, v: mx.array, scale: float, evaluate: Callable[[mx.array], None]) -> mx.array:
    """Return what `attend` does, (batch, heads, n, size), with MLX's own kernel, for some queries at a time."""
    parts = []
    count = max(_PAIRS // (len(q) * q.shape[2]), 1)
    for at in range(0, q.shape[2], count):
        parts.append(mx.fast.scaled_dot_product_attention(q[:, :, at : at + count], k, v, scale=scale))
        evaluate(parts[-1])
    return mx.concatenate(parts, axis=2)


def _by_numpy(q: mx.array, k: mx.array, v: mx.array, scale: float, evaluate: Callable[[mx.array], None]) -> mx.array:
    """Return what `attend` does, (batch, heads, n, size), with NumPy's exponentials.

    A part is some heads at a time if all of a head fits, otherwise some queries of one head.
    """
    shape = q.shape
    q, k, v = (mx.repeat(part, shape[1] // part.shape[1], axis=1).flatten(0, 1) for part in (q, k, v))
    heads = max(_CPU_PAIRS // shape[2] ** 2, 1)
    rows = max(_CPU_PAIRS // shape[2], 1)
    results = []
    for first in range(0, len(q), heads):
        some = slice(first, first + heads)
        parts = []
        for at in range(0, shape[2], rows):
            scores = (q[some, at : at + rows] * scale) @ k[some].swapaxes(1, 2)
            total = change_in_place(scores, _exponentials)
            parts.append(scores @ v[some] / mx.array(total))
            evaluate(parts[-1])
        results.append(mx.concatenate(parts, axis=1))
    return mx.concatenate(results).reshape(shape)


def gelu_approx(x: mx.array) -> mx.array:
    """Return GELU's approximation with tanh."""
    return nn.gelu_approx(x) if _by_mlx() else _gated(x, (8 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))


def gelu_fast_approx(x: mx.array) -> mx.array:
    """Return GELU's approximation with a sigmoid."""
    return nn.gelu_fast_approx(x) if _by_mlx() else _gated(x, 1.702 * x)


def silu(x: mx.array) -> mx.array:
    """Return SiLU, x * sigmoid(x)."""
    return nn.silu(x) if _by_mlx() else _gated(x, x)


def _gated(x: mx.array, gate: mx.array) -> mx.array:
    """Return x * sigmoid(gate)."""
    half = gate * 0.5
    change_in_place(half, lambda numbers: np.tanh(numbers, out=numbers))
    return x * (0.5 + 0.5 * half)


def _exponentials(scores: _Numbers) -> _Numbers:
    """Change scores to weights, but for their sums over the last axis, which are returned."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    return scores.sum(-1, keepdims=True)
