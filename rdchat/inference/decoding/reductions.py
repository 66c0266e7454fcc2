"""Reductions over logits: the largest values, the softmax's denominator, and whether they are finite.

Rows are as long as a vocabulary, so each is computed in the way that suits the device.

On a GPU every primitive is a launch, and any partition is a full merge sort (MLX 0.32, Metal), so few primitives and
short sorts are best there. On a CPU a partition is cheaper than a sort, and MLX's exp is slow (`cpu_kernels`).
"""

from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.errors import ModelError
from rdchat.inference.cpu_kernels import exponentials
from rdchat.inference.device import on_gpu
from rdchat.inference.verification import LoadedModel

# Columns of a block where a row is added up.
_BLOCK = 32
# Columns of a block, for each time that `top_k` compares the maxima of blocks.
_BLOCKS_OF_CUTS = (32, 8, 2)
# Columns that Metal sorts in one launch.
_SORTED_AT_ONCE = 2048
# MLX's own is six launches; compiled it is one.
_is_finite = mx.compile(mx.isfinite)


def top_k(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Return the `count` largest logits of each row, in descending order, and their tokens.

    The largest `count` lie in the `count` blocks with the largest maxima, and maxima are cheaper than partitions. So
    the row is cut to these blocks, again with smaller blocks if it is still long, and then sorted. A cut is worth it
    where it leaves less than half of the row. `ids` are the tokens of the columns that are left; None as long as
    nothing was cut.

    Args:
        logits: (n, vocabulary) float32.
        count: At most vocabulary.

    Returns:
        (n, count) uint32 token ids and (n, count) float32 logits.
    """
    if count == 1:
        best = mx.argmax(logits, axis=-1, keepdims=True)
        return best, mx.take_along_axis(logits, best, axis=-1)
    ids = None
    for block in _BLOCKS_OF_CUTS:
        is_short = ids is not None and logits.shape[-1] <= _SORTED_AT_ONCE
        if is_short or 2 * count * block >= logits.shape[-1]:
            break
        blocks = in_blocks(logits, block)
        best = mx.argpartition(mx.max(blocks, axis=-1), -count, axis=-1)[:, -count:, None]
        within = mx.array(np.arange(block, dtype=np.uint32))
        last = mx.array(logits.shape[-1] - 1, mx.uint32)
        columns = _columns(best, within, last).reshape(logits.shape[0], -1)
        ids = columns if ids is None else mx.take_along_axis(ids, columns, axis=-1)
        logits = mx.take_along_axis(blocks, best, axis=1).reshape(logits.shape[0], -1)
    if on_gpu() or logits.shape[-1] == count:
        order = mx.argsort(logits, axis=-1)[:, : -count - 1 : -1]
    else:
        order = mx.argpartition(logits, -count, axis=-1)[:, -count:]
        descending = mx.argsort(mx.take_along_axis(logits, order, axis=-1), axis=-1)[:, ::-1]
        order = mx.take_along_axis(order, descending, axis=-1)
    return order if ids is None else mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(logits, order, axis=-1)


def log_denominator(logits: mx.array) -> mx.array:
    """Return (n, 1): the log of the sum of exp(logit) over each row, (n, vocabulary) float32; exact to 1e-6."""
    if on_gpu():
        return mx.logsumexp(logits, axis=-1, keepdims=True)
    largest = mx.max(logits, axis=-1, keepdims=True)
    powers = exponentials(in_blocks(logits, _BLOCK) - largest[..., None])
    # In a single sum small terms would be lost.
    total = mx.sum(mx.sum(powers, axis=-1), axis=-1, keepdims=True)
    return _log_of(total, largest)


def in_blocks(logits: mx.array, block: int) -> mx.array:
    """Split rows into blocks, (rows, blocks, block); the last one is padded with minus infinity."""
    missing = -logits.shape[-1] % block
    if missing:
        logits = mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
    return logits.reshape(logits.shape[0], -1, block)


@partial(mx.compile, shapeless=False)
def _columns(blocks: mx.array, within: mx.array, last: mx.array) -> mx.array:
    """Return the columns of blocks, such as 64 to 95 for block 2; padding behind the last column gets its number."""
    return mx.minimum(blocks * within.shape[0] + within, last)


@partial(mx.compile, shapeless=False)
def _log_of(total: mx.array, largest: mx.array) -> mx.array:
    return mx.log(total) + largest


def finite_rows(logits: mx.array) -> mx.array:
    """Return whether each row of logits, (n, vocabulary), has numbers to choose from: (n,) bool, lazy."""
    # One pass: the largest of numbers with a NaN among them is NaN.
    largest = mx.max(logits, axis=-1)
    # On a CPU a compiled function needs a compiler, and saves nothing.
    return _is_finite(largest) if on_gpu() else mx.abs(largest) < mx.inf


def check_finite(finite: object, model: LoadedModel) -> None:
    """Raise ModelError unless logits are finite.

    Args:
        finite: Whether they are; a lazy array is waited for.
        model: The model that computed them.
    """
    if not finite:
        raise ModelError(
            f"{model.info.name} computed numbers that are not finite.",
            "Choose float32. If that does not help, its weights are damaged: get the model again.",
        )
