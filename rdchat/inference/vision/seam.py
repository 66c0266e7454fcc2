"""What an unmodified network needs beside embeddings in a call with image rows: rope by axis, and DeepStack.

Qwen's models rotate some frequencies of a head by the time of a row, some by its row and some by its column in the
image. mlx-lm's rope modules rotate all by one number, so each axis gets a call of its own, and each feature is taken
from the call of its axis. Qwen3-VL also adds features of the tower's inner layers to the outputs of the network's first
layers. Calls without image rows are computed as if the seam were not there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.verification.state_layers import wrap_call


@dataclass(frozen=True, slots=True)
class CallRows:
    """What a call with image rows gets for all of its rows.

    Attributes:
        embeddings: (1, n, width): the argument `input_embeddings` of the network.
        positions: (3, n) int32 time, row and column of each; None where the caches' offsets are the positions.
        deep: For each of the first layers (n, width): what is added to its output, 0 for text.
        blocks: (n,) for `KVCache.seeing`; None where the rows of an image do not see each other.
    """

    embeddings: mx.array
    positions: mx.array | None = None
    deep: tuple[mx.array, ...] = ()
    blocks: mx.array | None = None


class Seam:
    """The hooks of one network for calls with image rows; it does not refer to the network.

    Args:
        network: An mlx-lm model that already has rdchat's other hooks: its rope modules and first layers get a subclass
            that knows this object.
        sections: For time, row and column, the number of frequencies that it turns; empty for plain positions.
        deep: Number of layers to which features are added.
    """

    def __init__(self, network: nn.Module, sections: Sequence[int] = (), deep: int = 0) -> None:
        self._rows: CallRows | None = None
        for name, module in network.named_modules() if sections else ():
            if "rope" in name.rsplit(".", 1)[-1] and callable(module):
                dims = 2 * module._freqs.size if hasattr(module, "_freqs") else module.dims
                wrap_call(module, partial(self._rotate, cache(partial(_axes, tuple(sections), dims))))
        for number, layer in enumerate(network.layers[:deep]):
            wrap_call(layer, partial(self._add, number))

    @contextmanager
    def call(self, rows: CallRows | None) -> Iterator[None]:
        """Within the block, calls of the network have these rows; None for text alone."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def _rotate(
        self, axes: Callable[[int], mx.array], plain: Callable[..., mx.array], x: mx.array, *rest: Any, **named: Any
    ) -> mx.array:
        if self._rows is None or self._rows.positions is None:
            return plain(x, *rest, **named)
        # Rows become a batch, so that each has a position of its own.
        rows = x.transpose(2, 1, 0, 3)
        axis = axes(x.shape[-1])
        time, row, column = (plain(rows, offset=each) for each in self._rows.positions)
        return mx.where(axis == 0, time, mx.where(axis == 1, row, column)).transpose(2, 1, 0, 3)

    def _add(self, number: int, plain: Callable[..., mx.array], *arguments: Any, **named: Any) -> mx.array:
        output = plain(*arguments, **named)
        deep = self._rows.deep if self._rows is not None else ()
        return output + deep[number].astype(output.dtype) if deep else output


def _axes(sections: Sequence[int], dims: int, width: int) -> mx.array:
    """Return (width,): the axis by which each feature of a head turns; those that do not turn have the first.

    Features i and i + dims / 2 turn together. Frequencies 1, 4, 7 and so on are the row's and 2, 5, 8 and so on the
    column's, as many as their sections have.
    """
    frequency = np.arange(width) % (dims // 2)
    axis = np.zeros(width, np.int32)
    for number in (1, 2):
        axis[(frequency % 3 == number) & (frequency < 3 * sections[number])] = number
    return mx.array(axis)
