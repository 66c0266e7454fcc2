"""Attention of one token per sequence of a batch, with the query heads of a group in one matrix product.

Several query heads share a pair of keys and values. MLX's attention on a CPU multiplies each of them by itself, so most
of its time goes into starting products of a single row; as the rows of one product they take two thirds of the time.
Sequences of similar length are neighbours in the batch, and each few of them read only the columns that their longest
one holds: where one question of 96 is an article, a step takes half the time. On a GPU MLX has a kernel for it all.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.target.device import on_gpu
from rdchat.inference.training.data.batched_decoding import BatchCache

_ATTENTION = "scaled_dot_product_attention"  # what the model families of mlx-lm call


def batch_attention(network: nn.Module) -> AbstractContextManager[None]:
    """Use `grouped_attention` within the context where it is faster: on a CPU."""
    return nullcontext() if on_gpu() else grouped_attention(network)


@contextmanager
def grouped_attention(network: nn.Module) -> Iterator[None]:
    """Within the context, calls through a `BatchCache` multiply all query heads of a group at once."""
    plain = {module: getattr(module, _ATTENTION) for module in _attending_modules(network)}
    for module, function in plain.items():
        setattr(module, _ATTENTION, _grouping(function))
    try:
        yield
    finally:
        for module, function in plain.items():
            setattr(module, _ATTENTION, function)


def _attending_modules(network: nn.Module) -> set[ModuleType]:
    """Return the Python modules that define the network's layers and call mlx-lm's attention."""
    kinds = {kind for layer in network.modules() for kind in type(layer).__mro__}
    modules = (sys.modules[kind.__module__] for kind in kinds if kind.__module__.startswith("mlx_lm.models."))
    return {module for module in modules if hasattr(module, _ATTENTION)}


def _grouping(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(  # noqa: PLR0917  mlx-lm's own signature
        queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any, sinks: Any = None
    ) -> mx.array:
        # a mask of numbers is added to the scores, and made for these heads: DeepSeek's, for one
        is_ours = isinstance(cache, BatchCache) and isinstance(mask, mx.array) and mask.dtype == mx.bool_
        if not is_ours or sinks is not None:
            options = {} if sinks is None else {"sinks": sinks}
            return plain(queries, keys, values, cache=cache, scale=scale, mask=mask, **options)
        batch, heads, _, width = queries.shape
        grouped = (queries * scale).reshape(batch, keys.shape[1], -1, width)
        parts = []
        for first, end, span in cache.groups:
            rows, columns = slice(first, end), slice(0, span)
            scores = grouped[rows] @ keys[rows, :, columns].swapaxes(-1, -2)
            weights = mx.softmax(mx.where(mask[rows, ..., columns], scores, -mx.inf), axis=-1, precise=True)
            parts.append(weights @ values[rows, :, columns])
        return mx.concatenate(parts).reshape(batch, heads, 1, values.shape[-1])

    return attention
