"""A rank that is not the first: repeats the calls that rank 0 sends, on its part of the model."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import logging
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import RanksError
from rdchat.inference.api.requests import Dtype
from rdchat.inference.loading import load_part
from rdchat.inference.models.model_files import resolve_model
from rdchat.inference.ranks.messages import Kind, meet, receive
from rdchat.inference.ranks.sharding import check_sum, part_of
from rdchat.inference.verification.device import free_memory, unwire_memory, wire_memory
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache, Operation, first_offset
from rdchat.inference.verification.prefix_tree import PrefixTree

_LOG = logging.getLogger(__name__)


def run(group: mx.distributed.Group, model: str | None, rest: Callable[[], object]) -> None:
    """Load this rank's part of a model when rank 0 loads its own, in the same precision; repeat calls until the end.

    Args:
        group: The ranks.
        model: A model folder, a hub id in the hub's cache, or None for the default model.
        rest: Returns when rank 0 is about to send again; waiting for its message takes a whole processor.

    Raises:
        RdchatError: If the model cannot be loaded, is another one than rank 0's, or this rank lost step with rank 0.
    """
    follower: Follower | None = None
    while True:
        kind, words = receive(group)
        if kind is Kind.CALL:
            assert follower is not None
            follower.call(words)
            continue
        if kind is Kind.REST:
            unwire_memory()
            rest()
            if follower is not None:
                wire_memory()
            continue
        follower = None
        free_memory()
        if kind is Kind.END:
            # Rank 0 waits for it before it ends this process.
            meet(group)
            return
        if kind is Kind.LOAD:
            folder = resolve_model(model, lambda _: None)
            if check_sum(folder) != words[1]:
                raise RanksError(
                    f"{folder.name} is not the same model on all Macs: their configurations differ.",
                    "Download it again on each of them.",
                )
            network = load_part(folder, [*Dtype][words[0]], part_of(folder, group))
            follower = Follower(network, ModelHooks(network), group)
            meet(group)


class Follower:
    """Repeats calls on the caches of this rank.

    Args:
        network: This rank's part of the model.
        hooks: Its hooks.
        group: The ranks.
    """

    def __init__(self, network: nn.Module, hooks: ModelHooks, group: mx.distributed.Group) -> None:
        self._network = network
        self._hooks = hooks
        self._group = group
        hooks.gives_trunk = True
        self._caches: dict[int, KVCache] = {}

    def call(self, words: list[int]) -> None:
        """Repeat one call; see `Leader` for the words of its message.

        Raises:
            RanksError: If the cache does not have the length that rank 0's has.
        """
        number, length, count, has_positions, is_tree, in_parts, records, deepest, leaves, queued = words[:10]
        rest = self._operate(words[10:], queued)
        tokens = rest[:count]
        positions = rest[count : count + count * has_positions]
        parents = rest[-count:]
        cache = self._cache(number) if number else None
        hooks = self._hooks
        layers = None if cache is None else cache.layers
        if (own := first_offset(layers)) != length:
            raise RanksError(
                f"Rank {self._group.rank()} lost step with rank 0: its cache has {own:,} tokens instead of {length:,}.",
                "Load the model again.",
            )
        if cache is not None and is_tree:
            ancestors = PrefixTree(*[np.array([*parents], np.int32)] * 3).ancestors()
            depths = ancestors.sum(axis=1, dtype=np.int32) - 1
            cache.begin(mx.array(depths), mx.array(ancestors), deepest, leaves)
        hooks.states.recorded = bool(records)
        packed = hooks.packed(mx.array(positions, mx.int32) if has_positions else None)
        with packed, hooks.attention.fixed(bool(in_parts)), hooks.attention.call(count, length):
            try:
                output = self._network(mx.array([tokens], mx.int32), cache=layers)
            except Exception:
                # Rank 0 has the same error: it tries what a model can verify.
                _LOG.warning("A call failed", exc_info=True)
                return
        trunk = hooks.trunk
        hooks.trunk = None
        mx.async_eval(output if trunk is None else trunk, [layer.state for layer in layers or ()])

    def _operate(self, words: list[int], count: int) -> list[int]:
        """Carry out operations, `count` words; return the other words."""
        operations = words[:count]
        rest = words[count:]
        while operations:
            operation, number, size, *operations = operations
            arguments = operations[:size]
            operations = operations[size:]
            if operation == Operation.DROP:
                self._caches.pop(number, None)
            else:
                self._cache(number).repeat(Operation(operation), arguments)
        return rest

    def _cache(self, number: int) -> KVCache:
        if number not in self._caches:
            self._caches[number] = KVCache(self._network)
        return self._caches[number]
