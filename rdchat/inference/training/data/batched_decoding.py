"""Batched decoding of many conversations: one target call a step for all sequences, each at its own position.

Plain mlx-lm models take it as they are: positions come from a cache's `offset`, which may be an array with one entry
for each batch row, and masks from its `make_mask`.

Several query heads share a pair of keys and values. MLX's attention on a CPU multiplies each of them by itself, so most
of its time goes into starting products of a single row; as the rows of one product they take two thirds of the time.
Sequences of similar length are neighbours in the batch, and each few of them read only the columns that their longest
one holds: where one question of 96 is an article, a step takes half the time. On a GPU MLX has a kernel for it all.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from rdchat.inference.target.device import on_gpu
from rdchat.inference.target.target import LoadedModel

_ATTENTION = "scaled_dot_product_attention"  # called by the model families of mlx-lm
_GROWTH = 128  # columns by which the buffers grow
_SPAN_STEP = 16  # columns by which the part that attention reads grows
_PREFILL_TOKENS = 2048  # prompt tokens, padding included, in one call
_GROUP_ROWS = 8  # sequences of similar length whose attention reads equally many columns
_PADDED, _PADDED_TOKENS = 1.2, 4  # longest prompt of a call: this factor times its shortest, plus these tokens


class BatchCache:
    """One layer's keys and values for a batch of sequences, each stored from column 0 on.

    Args:
        keys: (batch, heads, columns, head_dim), in the model's dtype: those of the prompts.
        values: The same of values; its head_dim may differ.

    Attributes:
        offset: (batch,) int32: number of tokens that each sequence holds; mlx-lm hands it to the rope module.
        span: Columns that attention reads: more than the longest sequence holds.
        groups: (first row, end row, span) of neighbouring sequences: the part that attention reads of each. Where the
            sequences are sorted by length, the short ones do not pay for the longest.
    """

    def __init__(self, keys: mx.array, values: mx.array) -> None:
        self._keys = keys
        self._values = values
        self.offset = mx.zeros((keys.shape[0],), dtype=mx.int32)
        self.span = keys.shape[2]
        self.groups = [(0, keys.shape[0], self.span)]

    def make_mask(self, _count: int, window_size: int | None = None, **_options: bool) -> mx.array:
        """Return (batch, 1, 1, span) bool: the columns that each sequence's next token may attend to."""
        columns = mx.arange(self.span)
        last = self.offset[:, None]
        mask = columns <= last
        if window_size is not None:
            mask = mask & (columns > last - window_size)
        return mask[:, None, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write one token of every sequence, (batch, heads, 1, head_dim); return (batch, heads, span, head_dim)."""
        columns = _rounded(self.span, _GROWTH)
        self._keys, self._values = _with_columns(self._keys, columns), _with_columns(self._values, columns)
        rows = mx.arange(keys.shape[0])
        self._keys[rows, :, self.offset] = keys[:, :, 0]
        self._values[rows, :, self.offset] = values[:, :, 0]
        return self._keys[:, :, : self.span], self._values[:, :, : self.span]

    def keep(self, sequences: mx.array) -> None:
        """Drop all sequences but these, (kept,) integer indices."""
        self._keys, self._values = self._keys[sequences], self._values[sequences]

    @property
    def state(self) -> list[mx.array]:
        """The buffers, to be evaluated."""
        return [self._keys, self._values]


def _with_columns(buffer: mx.array, columns: int) -> mx.array:
    batch, heads, held, width = buffer.shape
    if held >= columns:
        return buffer
    return mx.concatenate([buffer, mx.zeros((batch, heads, columns - held, width), buffer.dtype)], axis=2)


class BatchedDecoder:
    """Feeds every sequence of a batch one token a call.

    Args:
        model: The target.
        held: For each sequence, the number of tokens in the caches; fastest where they are sorted.
        layers: One cache for each layer of the model.
    """

    def __init__(self, model: LoadedModel, held: Sequence[int], layers: list[BatchCache]) -> None:
        self._network = model.network
        self._hooks = model.hooks
        self._held = list(held)
        self._layers = layers

    @classmethod
    def read(cls, model: LoadedModel, prefix: Sequence[int], prompts: Sequence[Sequence[int]]) -> "BatchedDecoder":
        """Prefill a batch.

        Args:
            model: The target.
            prefix: Token ids that all sequences begin with; computed once.
            prompts: Token ids that follow in each sequence; a prompt may be empty.
        """
        held = [len(prefix) + len(prompt) for prompt in prompts]
        return cls(model, held, _Reader(model.network).read(prefix, prompts))

    def step(self, tokens: Sequence[int]) -> tuple[mx.array, mx.array]:
        """Feed one token of each sequence; return (batch, vocabulary) logits and (batch, width) hidden states, lazy."""
        offset = mx.array(self._held, dtype=mx.int32)
        groups = _column_groups(self._held)
        span = max(span for _, _, span in groups)
        for layer in self._layers:
            layer.offset, layer.span, layer.groups = offset, span, groups
        self._held = [held + 1 for held in self._held]
        logits: mx.array = self._network(mx.array(list(tokens))[:, None], cache=self._layers)
        assert self._hooks.hidden is not None
        return logits[:, -1], self._hooks.hidden[:, -1]

    def keep(self, sequences: Sequence[int]) -> None:
        """Drop all sequences but these indices."""
        chosen = mx.array(list(sequences))
        for layer in self._layers:
            layer.keep(chosen)
            mx.eval(layer.state)
        self._held = [self._held[sequence] for sequence in sequences]
        mx.clear_cache()

    def state(self) -> tuple[list[int], list[list[mx.array]]]:
        """Return the sequences' lengths in tokens, and each layer's keys and values; see `BatchCache`."""
        return self._held, [layer.state for layer in self._layers]


class _Reader:
    """Reads prompts into new caches."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def read(self, prefix: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[BatchCache]:
        """Prefill prompts of similar length in one call each; return the caches in the order of `prompts`."""
        order = sorted(range(len(prompts)), key=lambda sequence: len(prompts[sequence]))
        columns = _rounded(len(prefix) + max(len(prompt) for prompt in prompts) + 1, _GROWTH)
        shared = self._feed([prefix], self._empty())
        parts: list[list[list[mx.array]]] = []  # group, layer, keys or values
        for group in _groups(order, prompts):
            filled = self._feed([prompts[sequence] for sequence in group], _broadcast(shared, len(group), len(prefix)))
            parts.append(
                [[_with_columns(array[:, :, : c.offset], columns) for array in (c.keys, c.values)] for c in filled]
            )
            mx.eval(parts[-1])
        back = mx.array(sorted(range(len(order)), key=lambda place: order[place]))
        layers = []
        for number in range(len(shared)):
            keys, values = (mx.concatenate([part[number][i] for part in parts])[back] for i in range(2))
            layers.append(BatchCache(keys, values))
            mx.eval(layers[-1].state)
            for part in parts:
                part[number] = []
        return layers

    def _empty(self) -> list[Any]:
        return [KVCache() for _ in make_prompt_cache(self._network)]

    def _feed(self, prompts: Sequence[Sequence[int]], caches: list[Any]) -> list[Any]:
        """Pads on the right: what follows a token cannot change its keys and values, and is overwritten later."""
        width = max(1, *(len(prompt) for prompt in prompts))
        padded = mx.array([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts])
        trunk: nn.Module = self._network.get("model", self._network)
        trunk(padded, cache=caches)
        return caches


def _groups(order: list[int], prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Split sequences, shortest prompt first, into groups that are read in one call each, with little padding."""
    groups: list[list[int]] = [[]]
    longest = 0.0  # of the prompts that the last group may take
    for sequence in order:
        length = len(prompts[sequence])
        if groups[-1] and (length > longest or (len(groups[-1]) + 1) * length > _PREFILL_TOKENS):
            groups.append([])
        if not groups[-1]:
            longest = _PADDED * length + _PADDED_TOKENS
        groups[-1].append(sequence)
    return groups


def _broadcast(shared: list[Any], sequences: int, length: int) -> list[Any]:
    """Return caches of several sequences that all hold the prefix."""
    caches = []
    for layer in shared:
        cache: Any = KVCache()
        keys, values = (mx.repeat(array[:, :, :length], sequences, axis=0) for array in (layer.keys, layer.values))
        cache.keys, cache.values, cache.offset = keys, values, length
        caches.append(cache)
    return caches


def _column_groups(held: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (first row, end row, columns that attention reads) of neighbouring sequences."""
    rows = range(0, len(held), _GROUP_ROWS)
    parts = [(first, min(first + _GROUP_ROWS, len(held))) for first in rows]
    return [(first, end, _rounded(max(held[first:end]) + 1, _SPAN_STEP)) for first, end in parts]


def _rounded(columns: int, step: int) -> int:
    return -(-columns // step) * step


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
