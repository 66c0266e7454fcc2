"""Attention of verify calls in parts of a few rows of queries, each of which MLX's vector kernel takes on Metal.

The kernel takes up to 8 rows, and up to 32 of all heads that share a KV head. A call with more is computed unfused or,
above 8 rows, by a kernel that is slow deep in a text; see docs/metal-attention.md. The rows of a call do not depend on
each other, so its parts give the same, up to rounding. mlx-dspark 0.17.2 splits such calls too.

A layer calls `scaled_dot_product_attention`, a name among the globals of its file. It gets a subclass whose methods are
copies with other globals; see `state_layers`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base

from rdchat.inference.verification.device import on_gpu
from rdchat.inference.verification.state_layers import methods_that_call, with_globals

_NAME = "scaled_dot_product_attention"
_attention: Any = base.scaled_dot_product_attention
# Of queries and values, for which MLX 0.32.2 takes a vector kernel; 0.32.4 has some more, and its rules are not known.
_HEAD_SIZES = {(64, 64), (96, 96), (128, 128), (256, 256), (192, 128)}
_MAX_ROWS = 8
# Rows of all heads that share a KV head: a threadgroup of the kernel has 32 SIMD groups.
_MAX_SHARING = 32


class AttentionParts:
    """The attention layers of one network.

    Args:
        network: An mlx-lm model; its attention layers get subclasses that know this object.

    Attributes:
        chosen: Returns whether a verify call is computed in parts, by its rows and the tokens before it. At first it
            never is.
        in_parts: Whether the verify call that is running is.
    """

    def __init__(self, network: nn.Module) -> None:
        self.chosen: Callable[[int, int], bool] = lambda *_: False
        self.in_parts = False
        # Rows of a part in each layer that was called; 0 for one without a vector kernel.
        self._part_rows: set[int] = set()
        classes: dict[type, type] = {}
        for _, module in network.named_modules():
            plain: Any = type(module)
            if plain not in classes:
                methods = methods_that_call(plain, {_NAME}).items()
                known = {name: m for name, m in methods if m.__globals__.get(_NAME) is _attention}
                copies = {name: with_globals(method, {_NAME: self._attend}) for name, method in known.items()}
                classes[plain] = type(plain.__name__, (plain,), copies) if copies else plain
            if classes[plain] is not plain:
                module.__class__ = classes[plain]

    @contextmanager
    def call(self, rows: int, depth: int) -> Iterator[None]:
        """Within the block, a verify call of so many rows is computed in parts where that is chosen.

        Args:
            rows: Rows of the call.
            depth: Tokens before them.
        """
        self.in_parts = self.chosen(rows, depth)
        try:
            yield
        finally:
            self.in_parts = False

    @contextmanager
    def fixed(self, in_parts: bool) -> Iterator[None]:
        """Within the block, all verify calls are computed in parts, or none."""
        before = self.chosen
        self.chosen = lambda *_: in_parts
        try:
            yield
        finally:
            self.chosen = before

    def may_pay(self, rows: int) -> bool:
        """Return whether parts are worth a measurement: on Metal, where some layer's kernel takes fewer rows.

        The layers must have been called before.
        """
        metal = on_gpu() and mx.metal.is_available()
        return metal and any(0 < limit < rows for limit in self._part_rows)

    def _attend(  # noqa: PLR0917  as mlx-lm's
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: mx.array | str | None,
        sinks: mx.array | None = None,
    ) -> Any:
        """Compute attention as mlx-lm's function does; the parameters are its own.

        Args:
            queries: (batch, heads, n, head_dim).
            keys: (batch, KV heads, visible rows, head_dim), or three arrays where the cache is quantised.
            values: (batch, KV heads, visible rows, value_dim), or three arrays.
            cache: Of the layer.
            scale: Of the scores.
            mask: "causal", or (..., n, visible rows) bool or added to the scores.
            sinks: (heads,) logits of a key without a value.

        Returns:
            (batch, heads, n, value_dim).
        """
        rows = queries.shape[2]
        limit = 0
        # A quantised cache has no fused kernel.
        if rows > 1 and not hasattr(cache, "bits"):
            limit = _rows_of_part(queries, keys, values)
            self._part_rows.add(limit)
        if not self.in_parts or not 0 < limit < rows:
            return _attention(queries, keys, values, cache, scale, mask, sinks)
        count = -(-rows // limit)
        parts = []
        for start, end in pairwise(rows * number // count for number in range(count + 1)):
            seen = keys.shape[2]
            part_mask = mask
            if isinstance(mask, str):
                # The part's last row sees no key behind its own.
                seen += end - rows
            elif mask is not None and mask.shape[-2] == rows:
                part_mask = mask[..., start:end, :]
            own = queries[..., start:end, :], keys[..., :seen, :], values[..., :seen, :]
            parts.append(_attention(*own, cache, scale, part_mask, sinks))
        return mx.concatenate(parts, axis=2)


def _rows_of_part(queries: mx.array, keys: mx.array, values: mx.array) -> int:
    """Return how many rows of queries the vector kernel takes at once; 0 where it takes none."""
    if (queries.shape[-1], values.shape[-1]) not in _HEAD_SIZES:
        return 0
    return min(_MAX_ROWS, _MAX_SHARING // (queries.shape[1] // keys.shape[1]))
