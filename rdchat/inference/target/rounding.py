"""Tells rounding from a mistake, where the same numbers were computed in two ways.

Kernels add up in an order of their own, and a device has several, chosen by the number of rows: so a row's logits are
not quite the same alone and beside others. How far they may be apart depends on device, precision and model (where a
router picks other experts, they are far apart), so it is measured: nothing here is a limit for all of them.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

_FACTOR = 4  # how many times the usual error still counts as rounding
_LEAST_STEPS = 4  # of the precision: as far as that every kernel may be off
_LEAST = 1e-4  # float32's steps would be too small for the reordered sums of a deep model


def row_errors(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> list[float]:
    """Return how far each row is off.

    Args:
        found: (n, width).
        expected: (n, width).

    Returns:
        The root mean squares of the rows' differences, in standard deviations of all that was expected.
    """
    errors = np.sqrt(np.square(found - expected).mean(axis=-1)) / (expected.std() or 1.0)
    return [float(error) for error in errors]


def typical(errors: Sequence[float]) -> float:
    """Return the median: a row for which a router picked other experts says nothing of the others."""
    return float(np.median(errors))


def most(noise: Sequence[float], dtype: mx.Dtype) -> float:
    """Return the largest typical error that rounding explains.

    Args:
        noise: Errors of rows that rounding alone separates.
        dtype: What was computed in.
    """
    steps = float(mx.finfo(dtype).eps) if mx.issubdtype(dtype, mx.floating) else 0.0
    return _FACTOR * typical(noise) + max(_LEAST_STEPS * steps, _LEAST)
