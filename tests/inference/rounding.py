"""A device whose rounding depends on the number of rows, as Metal's does, on any machine.

Metal has one kernel for products of one row (`qmv`), another for a few (`qmv_wide`, tiles of 5 rows) and another for
many (`qmm`), and each adds up in an order of its own. `rounding_by_rows` does so to every product of matrices that is
begun from Python: it becomes a sum of products of pieces, whose lengths depend on the number of rows, and the sums
between them are rounded to 16 bits. That is coarser than Metal, which rounds once, at the end.

The products are made of additions and multiplications element by element, which IEEE 754 defines to the bit. The host's
own products are not used: its BLAS picks kernels by processor, and some give a row other bits beside others.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from math import prod
from typing import Any

import mlx.core as mx
import pytest

_PIECES = ((1, 16), (5, 24))  # up to so many rows: so many columns a piece
_PIECE = 40  # with more rows

active: list[mx.Dtype | None] = []  # what sums are rounded to, in each `rounding_by_rows` that is open

_matmul = mx.matmul


@contextmanager
def rounding_by_rows(rounded_to: mx.Dtype | None = None) -> Iterator[None]:
    """Within, let the rounding of matrix products depend on their number of rows, for all threads.

    Args:
        rounded_to: What sums of pieces are rounded to; None takes the products' own type, which changes float32 by some
            1e-7 only.
    """
    with pytest.MonkeyPatch.context() as patch:
        for place, name, function in _replacements(_Rounding(rounded_to)):
            patch.setattr(place, name, function)
        mx.disable_compile()  # functions that are compiled here would keep these products; and g++ takes seconds
        active.append(rounded_to)
        try:
            yield
        finally:
            active.pop()
            mx.enable_compile()


def coarse_rounding_by_rows() -> AbstractContextManager[None]:
    """Let it depend on rows, and round to bfloat16 even what is float32, so that near-ties are many."""
    return rounding_by_rows(mx.bfloat16)


def _replacements(rounding: "_Rounding") -> list[tuple[Any, str, Callable[..., mx.array]]]:
    def operator(a: mx.array, b: mx.array) -> mx.array:  # a bound method would be no method of arrays
        return rounding.product(a, b)

    return [
        (mx.array, "__matmul__", operator),
        (mx, "matmul", rounding.product),
        (mx, "addmm", rounding.sum_of_product),
        (mx, "quantized_matmul", rounding.quantized_product),
        (mx, "gather_mm", rounding.gathered_product),
        (mx, "gather_qmm", rounding.gathered_quantized_product),
        (mx.fast, "scaled_dot_product_attention", rounding.attention),
    ]


class _Rounding:
    """MLX's products, with its own signatures."""

    def __init__(self, rounded_to: mx.Dtype | None) -> None:
        self._rounded_to = rounded_to

    def product(self, a: mx.array, b: mx.array) -> mx.array:
        if not isinstance(b, mx.array) or min(a.ndim, b.ndim) < 2 or not mx.issubdtype(b.dtype, mx.floating):
            return _matmul(a, b)
        return self._in_pieces(a.size // a.shape[-1] if b.ndim == 2 else a.shape[-2], a, b)

    def sum_of_product(self, c: mx.array, a: mx.array, b: mx.array, alpha: float = 1.0, beta: float = 1.0) -> mx.array:
        return beta * c + alpha * self.product(a, b)

    def quantized_product(
        self, x: mx.array, w: mx.array, scales: mx.array, biases: Any = None, transpose: bool = True, **options: Any
    ) -> mx.array:
        return self.product(x, _unpacked(x, w, scales, biases, transpose, options))

    def gathered_product(
        self, a: mx.array, b: mx.array, lhs_indices: Any = None, rhs_indices: Any = None, sorted_indices: bool = False
    ) -> mx.array:
        left, right = (
            matrices.reshape(-1, *matrices.shape[-2:])[_all_of(matrices) if indices is None else indices]
            for matrices, indices in ((a, lhs_indices), (b, rhs_indices))
        )
        return self._in_pieces(a.size // a.shape[-1], left, right)

    def gathered_quantized_product(
        self,
        x: mx.array,
        w: mx.array,
        scales: mx.array,
        biases: Any = None,
        lhs_indices: Any = None,
        rhs_indices: Any = None,
        transpose: bool = True,
        sorted_indices: bool = False,
        **options: Any,
    ) -> mx.array:
        weights = _unpacked(x, w, scales, biases, transpose, options)
        return self.gathered_product(x, weights, lhs_indices, rhs_indices)

    def attention(
        self, q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: Any = None, sinks: Any = None, **_: Any
    ) -> mx.array:
        k, v = (mx.repeat(rows, q.shape[1] // rows.shape[1], axis=1) for rows in (k, v))
        scores = self.product(q * scale, k.swapaxes(-1, -2)).astype(mx.float32)
        if isinstance(mask, str):
            mask = mx.tril(mx.ones(scores.shape[-2:], mx.bool_), scores.shape[-1] - scores.shape[-2])
        if mask is not None:
            scores = mx.where(mask, scores, -mx.inf) if mask.dtype == mx.bool_ else scores + mask
        if sinks is not None:
            beside = mx.broadcast_to(sinks.reshape(1, -1, 1, 1).astype(scores.dtype), (*scores.shape[:3], 1))
            scores = mx.concatenate([beside, scores], axis=-1)
        weights = mx.softmax(scores, axis=-1)[..., scores.shape[-1] - k.shape[-2] :]
        return self.product(weights.astype(v.dtype), v)

    def _in_pieces(self, rows: int, a: mx.array, b: mx.array) -> mx.array:
        """Return a @ b, rounded as for so many rows; a is (..., n, inner) and b (..., inner, m)."""
        kept = mx.result_type(a, b)
        length = next((piece for most, piece in _PIECES if rows <= most), _PIECE)
        terms = a.astype(mx.float32)[..., None] * b.astype(mx.float32)[..., None, :, :]
        total: mx.array | None = None
        for part in _sums_of_pieces(terms, length):
            total = part if total is None else total + part
            total = total.astype(self._rounded_to or kept).astype(mx.float32)
        assert total is not None
        return total.astype(kept)


def _sums_of_pieces(terms: mx.array, length: int) -> list[mx.array]:
    """Return the sums (..., m) of every `length` rows of (..., n, m); whole pieces are added up together."""
    pieces = terms.shape[-2] // length
    width = terms.shape[-1]
    sums = []
    if pieces:
        whole = terms[..., : pieces * length, :].reshape(*terms.shape[:-2], pieces, length, width)
        together = _sum_of_rows(whole)
        sums += [together[..., piece, :] for piece in range(pieces)]
    if terms.shape[-2] % length:
        sums.append(_sum_of_rows(terms[..., pieces * length :, :]))
    return sums


def _sum_of_rows(terms: mx.array) -> mx.array:
    """Return the sum (..., m) of (..., n, m), added up in an order that only n decides."""
    while terms.shape[-2] % 2 == 0:
        half = terms.shape[-2] // 2
        terms = terms[..., :half, :] + terms[..., half:, :]
    return reduce(operator.add, (terms[..., row, :] for row in range(terms.shape[-2])))


def _all_of(matrices: mx.array) -> mx.array:
    """Return the indices of all matrices, in the shape of their batch."""
    return mx.arange(prod(matrices.shape[:-2])).reshape(matrices.shape[:-2])


def _unpacked(
    x: mx.array, w: mx.array, scales: mx.array, biases: mx.array | None, transpose: bool, options: dict[str, Any]
) -> mx.array:
    """Return quantised weights as (..., inner, m), in the type of what they are multiplied with."""
    weights = mx.dequantize(w, scales, biases, **options).astype(x.dtype)
    return weights.swapaxes(-1, -2) if transpose else weights
