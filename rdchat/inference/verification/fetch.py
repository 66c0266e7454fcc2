"""The one way from MLX to NumPy.

If `np.array` is the first wait on a lazy MLX array, a device error is lost: NumPy drops the exception of the buffer
protocol and reads the elements one by one from memory that was never written. So arrays are evaluated first.
"""

from collections.abc import Sequence
from typing import Any, overload

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Host = npt.NDArray[Any]
Besides = Sequence[mx.array | None]


@overload
def fetch(array: mx.array, /, *, besides: Besides = ()) -> Host: ...
@overload
def fetch(first: mx.array, second: mx.array, /, *more: mx.array, besides: Besides = ()) -> tuple[Host, ...]: ...
def fetch(*arrays: mx.array, besides: Besides = ()) -> Host | tuple[Host, ...]:
    """Wait for arrays together and return copies on the host: a single array, or a tuple.

    Args:
        arrays: Of any dtype but bfloat16, which NumPy does not have.
        besides: Arrays to wait for as well; they are not copied.

    Raises:
        RuntimeError: If the device could not compute one of them.
    """
    mx.eval(*arrays, *besides)
    fetched = tuple(np.array(array) for array in arrays)
    return fetched[0] if len(fetched) == 1 else fetched


def array_of(data: bytes) -> mx.array:
    """Return bytes as an array: (n,) uint8."""
    return mx.array(np.frombuffer(data, np.uint8))
