"""The messages of rank 0 to the other ranks: each call of its network, and what happened to KV caches before it.

Each rank has a part of the model, so all must make the same calls: rank 0 (`Leader`) says what it does, and the others
(`Follower`) repeat it. The ring of ranks is MLX's own, over TCP. MLX has no messages, but sums over all ranks: a
message is a sum of int32 arrays to which the other ranks add zeros. Sums are lazy, so a message can carry tokens that
the device still computes.
"""

import itertools
import json
import logging
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import IntEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import finalize

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import RanksError, one_line
from rdchat.host import local_network_hint
from rdchat.inference.api import Dtype, OnProgress
from rdchat.inference.device import device_errors, fetch, free_memory
from rdchat.inference.loading import load_model, load_part
from rdchat.inference.models.model_files import resolve_model
from rdchat.inference.sharding.model_split import check_sum, part_of
from rdchat.inference.verification import (
    KVCache,
    LoadedModel,
    ModelHooks,
    Operation,
    PrefixTree,
    Tree,
    first_offset,
    wrap_call,
)
from rdchat.inference.wired_memory import unwire_weights, wire_weights

# Integers of the first sum; nearly every message fits into it.
_SIZE = 256
# The first integer of each message.
_MAGIC = 0x72646368
# A longer message is an error: a call has some thousand tokens.
_MAX_INTEGERS = 2**20
Kind = IntEnum("Kind", ["LOAD", "CALL", "UNLOAD", "REST", "END"])
"""What a message says. The words of `LOAD` are a precision and a check sum; for those of `CALL` see `Leader`."""
# A call of more tokens is one of a prompt.
_MAX_DRAFT = 64
_LOG = logging.getLogger(__name__)


def send(
    group: mx.distributed.Group, kind: Kind, numbers: Sequence[int] = (), *arrays: mx.array, waits: bool = False
) -> None:
    """Queue a message of rank 0.

    Args:
        group: The ranks.
        kind: What it says.
        numbers: Its first words; a word is an integer of the message.
        arrays: Int32 (n,), the other words, perhaps lazy.
        waits: Whether to wait until the other ranks have it, and so are done with the call before.
    """
    count = len(numbers) + sum(array.size for array in arrays)
    message = mx.concatenate([mx.array([_MAGIC, kind, count, *numbers], mx.int32), *arrays])
    if (missing := _SIZE - message.size) > 0:
        message = mx.pad(message, (0, missing))
    parts = [message[:_SIZE]]
    if message.size > _SIZE:
        parts.append(message[_SIZE:])
    sums = [mx.distributed.all_sum(part, group=group) for part in parts]
    (mx.eval if waits else mx.async_eval)(sums)


def meet(group: mx.distributed.Group, *, waits: bool = True) -> None:
    """Wait until all ranks are here. On the CPU: macOS ends work of a GPU that waits for about five seconds.

    Args:
        group: The ranks.
        waits: False takes part without waiting, so that the ranks' sums stay in the same order.
    """
    (mx.eval if waits else mx.async_eval)(mx.distributed.all_sum(mx.array(1), group=group, stream=mx.cpu))


def receive(group: mx.distributed.Group) -> tuple[Kind, list[int]]:
    """Wait for the next message of rank 0; return its kind and its words, those of arrays included.

    Raises:
        RanksError: If a rank was lost, or what came is no message: this rank then computes another sum than rank 0.
    """
    magic, kind, count, *numbers = _sum_of(group, _SIZE)
    if magic != _MAGIC or kind not in Kind or not 0 <= count <= _MAX_INTEGERS:
        raise RanksError(f"Rank {group.rank()} lost step with rank 0.", "Load the model again.")
    if (missing := count - len(numbers)) > 0:
        numbers += _sum_of(group, missing)
    return Kind(kind), numbers[:count]


@contextmanager
def timed_exchanges(timed: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Compute each exchange of the network with other ranks by itself in the block, and time it with the wait for them.

    Args:
        timed: Times a block.
    """

    def alone(exchange: Callable[..., mx.array], data: mx.array, *arguments: Any, **options: Any) -> mx.array:
        mx.eval(data)
        with timed():
            received = exchange(data, *arguments, **options)
            mx.eval(received)
        return received

    exchanges = {name: getattr(mx.distributed, name) for name in ("all_sum", "all_gather", "send", "recv_like")}
    try:
        for name, exchange in exchanges.items():
            setattr(mx.distributed, name, partial(alone, exchange))
        yield
    finally:
        for name, exchange in exchanges.items():
            setattr(mx.distributed, name, exchange)


def _sum_of(group: mx.distributed.Group, size: int) -> list[int]:
    with device_errors("between two calls"):
        numbers: list[int] = fetch(mx.distributed.all_sum(mx.zeros((size,), mx.int32), group=group)).tolist()
    return numbers


def join(rank: int, addresses: Sequence[str], key: str) -> mx.distributed.Group:
    """Join the ring, and wait until the others have; a process can join once.

    MLX takes whoever connects first for the neighbour. So each rank adds numbers of its own that follow from a secret
    key. A stranger does not know its share, and the sum shows that.

    Args:
        rank: Index of this process among the addresses.
        addresses: `IPv4 address:port` of every rank, in order, as this process reaches it; at its own it listens.
        key: Only the ranks know it.

    Raises:
        RanksError: If the ring could not be made, or a stranger is in it.
    """
    # Eight numbers of each rank.
    shares = [struct.unpack("<8I", sha256(f"{key} {each}".encode()).digest()) for each in range(len(addresses))]
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[address] for address in addresses]), "utf-8")
        # MLX reads the file here and never again.
        os.environ |= {"MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank)}
        try:
            group = mx.distributed.init(strict=True, backend="ring")
            share = mx.array(shares[rank], mx.uint32)
            total = fetch(mx.distributed.all_sum(share, group=group, stream=mx.cpu))
        except (RuntimeError, ValueError) as error:
            raise RanksError(
                f"Rank {rank} could not join the others at {', '.join(addresses)} ({one_line(error)[:200]}).",
                f"Check that the Macs reach each other.{local_network_hint(error)}",
            ) from error
    if total.tolist() != [sum(each) % 2**32 for each in zip(*shares, strict=True)]:
        raise RanksError(
            f"Another program connected to rank {rank} in place of a Mac.",
            "Try again. If it happens again, connect the Macs by a cable.",
        )
    return group


def load(
    group: mx.distributed.Group,
    model: str | None,
    dtype: Dtype,
    on_progress: OnProgress,
    anyway: bool = False,
) -> LoadedModel:
    """Load this rank's part of a model, as `load_model` does, and have the other ranks load theirs."""
    folder = resolve_model(model, on_progress)
    part = part_of(folder, group)
    send(group, Kind.LOAD, [list(Dtype).index(dtype), check_sum(folder)])
    try:
        loaded = load_model(model, dtype, on_progress, anyway=anyway, part=part)
    except BaseException:
        # The others wait for this once they have loaded theirs.
        meet(group, waits=False)
        raise
    meet(group)
    # The network's class keeps it.
    Leader(loaded.network, loaded.hooks, group)
    return loaded


class Leader:
    """Sends each call of rank 0's network to the other ranks, which repeat it on caches of their own.

    The words of a call's message are:
    - the cache's number, its length before the call, and the number of tokens;
    - whether the tokens have positions of their own, whether they are a tree, and whether the state layers record;
    - the tree's depth and its number of leaves;
    - how many words follow for operations on caches since the last call, and these: for each operation its number, the
      cache's number, the number of its arguments, and the arguments;
    - the tokens, their positions, and their parents in the tree. These may be lazy, so rank 0 waits for nothing that it
      would not wait for alone.

    All ranks must evaluate the same sums in the same order. So each call's trunk (the network without its output layer;
    `ModelHooks` records its result) is evaluated at once, whether rank 0 uses the result or not, and the message before
    it. While a prompt is read, rank 0 first waits until the others have the message: else its GPU would wait for a rank
    that still reads the part before.

    Args:
        network: The model's part on this rank; it gets a subclass that knows this object.
        hooks: Its hooks.
        group: The ranks.
    """

    def __init__(self, network: nn.Module, hooks: ModelHooks, group: mx.distributed.Group) -> None:
        self._hooks = hooks
        hooks.gives_trunk = True
        self._group = group
        # Numbers of caches, by the `id` of their first layer.
        self._numbers: dict[int, int] = {}
        self._free_numbers = itertools.count(1)
        # Words of the operations since the last call.
        self._operations: list[int] = []
        # By a cache's number, the tree of a round that was opened: (nodes,) parents, depth, leaves.
        self._trees: dict[int, tuple[mx.array, int, int]] = {}
        wrap_call(network, self._call)
        # `KVCache` looks for it there.
        setattr(type(network), "mirror", self._report)  # noqa: B010  mypy knows no such attribute

    def _report(
        self, operation: Operation, layers: list[Any], arguments: Sequence[int] = (), tree: Tree | None = None
    ) -> None:
        """Queue an operation on a cache for the next call's message.

        A round's tree is kept for the next call of its cache, whose message describes it; a later operation drops it.
        """
        number = self._number(layers)
        self._trees.pop(number, None)
        if tree is not None:
            depths, ancestors, deepest, leaves = tree
            above = mx.argmax((ancestors & (depths == depths[:, None] - 1)).astype(mx.uint8), axis=1)
            # The root and nodes of padding have no parent: -1.
            self._trees[number] = mx.where(depths > 0, above.astype(mx.int32), -1), deepest, leaves
        self._operations.extend([operation, number, len(arguments), *arguments])

    def _number(self, layers: list[Any] | None) -> int:
        """Return the number of a cache with these layers; 0 for none. No two caches share their first layer."""
        if layers is None:
            return 0
        key = id(layers[0])
        if key not in self._numbers:
            self._numbers[key] = next(self._free_numbers)
            finalize(layers[0], self._drop, key).atexit = False
        return self._numbers[key]

    def _drop(self, key: int) -> None:
        """Have the others drop a cache that Python has freed here."""
        number = self._numbers.pop(key)
        self._trees.pop(number, None)
        # Perhaps on another thread, on which Python collects garbage.
        self._operations.extend([Operation.DROP, number, 0])

    def _call(self, plain: Callable[..., mx.array], tokens: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Send a call to the others, then make it; `plain` is the network's own call."""
        hooks = self._hooks
        number = self._number(cache)
        # The parents of a tree, its depth and its leaves; depth 0 and one leaf alone where there is no tree.
        *tree, deepest, leaves = self._trees.pop(number, (0, 1))
        arrays = [tokens.reshape(-1).astype(mx.int32)]
        if hooks.depths is not None:
            arrays.append(hooks.depths)
        arrays += tree
        flags = hooks.depths is not None, bool(tree), hooks.states.recorded
        # Only what was copied is removed: another thread may append at any moment, see `_drop`.
        operations = self._operations[:]
        del self._operations[: len(operations)]
        numbers = [
            number,
            first_offset(cache),
            tokens.size,
            *map(int, flags),
            deepest,
            leaves,
            len(operations),
            *operations,
        ]
        with timed_exchanges(hooks.timed) if hooks.timed else nullcontext():
            send(self._group, Kind.CALL, numbers, *arrays, waits=tokens.size > _MAX_DRAFT)
            output = plain(tokens, cache=cache)
        # Not kept beyond the call; it is None where the network has no trunk that can be hooked.
        trunk = hooks.trunk
        hooks.trunk = None
        mx.async_eval(output if trunk is None else trunk)
        return output


def run(group: mx.distributed.Group, model: str | None, rest: Callable[[], object]) -> None:
    """Load this rank's part of a model when rank 0 loads its own, in the same precision; repeat calls until the end.

    Args:
        group: The ranks.
        model: A model folder, a hub id in the hub's cache, or None for the default model.
        rest: Waits until rank 0 is about to send again. Waiting for a message instead would take a whole processor.

    Raises:
        RdchatError: If the model cannot be loaded, is another one than rank 0's, or this rank lost step with rank 0.
    """
    follower: Follower | None = None
    while True:
        kind, numbers = receive(group)
        if kind is Kind.CALL:
            assert follower is not None
            follower.repeat_call(numbers)
            continue
        if kind is Kind.REST:
            unwire_weights()
            rest()
            continue
        # `LOAD`, `UNLOAD` and `END` all free the model that was loaded before.
        follower = None
        free_memory()
        if kind is Kind.END:
            # Rank 0 waits for this before it ends.
            meet(group)
            return
        if kind is Kind.LOAD:
            folder = resolve_model(model, lambda _: None)
            if check_sum(folder) != numbers[1]:
                raise RanksError(
                    f"{folder.name} is not the same model on all Macs: their configurations differ.",
                    "Download it again on each of them.",
                )
            network = load_part(folder, [*Dtype][numbers[0]], part_of(folder, group))
            wire_weights(network)
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

    def repeat_call(self, numbers: list[int]) -> None:
        """Repeat one call; see `Leader` for the words of its message.

        Raises:
            RanksError: If the cache does not have the length that rank 0's has.
        """
        number, length, count, has_positions, is_tree, records, deepest, leaves, queued = numbers[:9]
        self._carry_out(numbers[9 : 9 + queued])
        words = numbers[9 + queued :]
        tokens = words[:count]
        positions = mx.array(words[count : 2 * count], mx.int32) if has_positions else None
        cache = self._cache(number) if number else None
        hooks = self._hooks
        layers = None if cache is None else cache.layers
        if (own := first_offset(layers)) != length:
            raise RanksError(
                f"Rank {self._group.rank()} lost step with rank 0: its cache has {own:,} tokens instead of {length:,}.",
                "Load the model again.",
            )
        if cache is not None and is_tree:
            # The message ends with the parents. Only they matter for the ancestors: tokens and depths may be anything.
            parents = np.array([*words[-count:]], np.int32)
            ancestors = PrefixTree(parents, parents, parents).ancestors()
            depths = ancestors.sum(axis=1, dtype=np.int32) - 1
            cache.open_round(mx.array(depths), mx.array(ancestors), deepest, leaves)
        hooks.states.recorded = bool(records)
        with hooks.packed(positions):
            try:
                output = self._network(mx.array([tokens], mx.int32), cache=layers)
            except Exception:
                # Rank 0 has the same error: while it loads, it tries what the model can verify.
                _LOG.warning("A call failed", exc_info=True)
                return
        trunk = hooks.trunk
        hooks.trunk = None
        mx.async_eval(output if trunk is None else trunk, [layer.state for layer in layers or ()])

    def _carry_out(self, words: list[int]) -> None:
        """Carry out operations on caches; see `Leader` for their words."""
        while words:
            operation, number, size, *words = words
            arguments = words[:size]
            words = words[size:]
            if operation == Operation.DROP:
                self._caches.pop(number, None)
            else:
                self._cache(number).repeat(Operation(operation), arguments)

    def _cache(self, number: int) -> KVCache:
        """Return the cache of a number; rank 0 announces no new ones, so an unknown number is a new cache."""
        if number not in self._caches:
            self._caches[number] = KVCache(self._network)
        return self._caches[number]
