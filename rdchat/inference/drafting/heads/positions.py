"""Rotary positions of rows that need not follow each other."""

from collections.abc import Callable, Sequence

import mlx.core as mx

type RowPositions = int | Sequence[int] | mx.array
"""Positions of n rows: one for all, or (n,) ascending ones, or (n,) any ones as an array."""


def rotated(rope: Callable[..., mx.array], rows: mx.array, positions: RowPositions) -> mx.array:
    """Return rows of queries or keys, (1, heads, n, width), turned by their positions."""
    if isinstance(positions, Sequence):
        if positions[-1] - positions[0] == len(positions) - 1:
            return rope(rows, offset=positions[0])
        positions = mx.array(list(positions), mx.int32)
    # a batch row each: the kernel counts positions up along the token axis
    return rope(rows.transpose(2, 1, 0, 3), offset=positions).transpose(2, 1, 0, 3)
