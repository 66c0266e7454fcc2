"""Messages of rank 0 to the other ranks: sums of int32 arrays to which the others add zeros.

A sum is what every backend of MLX has, and it may be lazy: a message can carry tokens that the device still computes.

Joins the ring of ranks: MLX's own, over TCP.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import mlx.core as mx

from rdchat.errors import RanksError, one_line
from rdchat.host import local_network_hint
from rdchat.inference.verification.device import device_errors, fetch

# Integers of the first sum; nearly every message fits into it.
_SIZE = 256
# Marks the start of a message.
_MAGIC = 0x72646368
# No message is longer: a call has some thousand tokens.
_MAX_WORDS = 2**20
Kind = IntEnum("Kind", ["LOAD", "CALL", "UNLOAD", "REST", "END"])
"""What a message says. `LOAD` has a precision and a check sum; of `CALL` see `Leader`."""


def send(
    group: mx.distributed.Group, kind: Kind, words: Sequence[int] = (), *arrays: mx.array, waits: bool = False
) -> None:
    """Queue a message of rank 0.

    Args:
        group: The ranks.
        kind: What it says.
        words: Its first words.
        arrays: Int32 (n,), the other words, perhaps lazy.
        waits: Whether to wait until the other ranks have it, and so are done with the call before.
    """
    count = len(words) + sum(array.size for array in arrays)
    message = mx.concatenate([mx.array([_MAGIC, kind, count, *words], mx.int32), *arrays])
    if (missing := _SIZE - message.size) > 0:
        message = mx.pad(message, (0, missing))
    parts = [message[:_SIZE], *([message[_SIZE:]] if message.size > _SIZE else [])]
    sums = [mx.distributed.all_sum(part, group=group) for part in parts]
    (mx.eval if waits else mx.async_eval)(sums)


def meet(group: mx.distributed.Group, *, waits: bool = True) -> None:
    """Wait on the CPU until all ranks are here: macOS ends work of a GPU that waits for one for some five seconds.

    Args:
        group: The ranks.
        waits: False only takes part, at the same place among this rank's sums.
    """
    (mx.eval if waits else mx.async_eval)(mx.distributed.all_sum(mx.array(1), group=group, stream=mx.cpu))


def receive(group: mx.distributed.Group) -> tuple[Kind, list[int]]:
    """Wait for the next message of rank 0; return its kind and its words, those of arrays included.

    Raises:
        RanksError: If it is none, since this rank computed something else than rank 0, or a rank was lost.
    """
    magic, kind, count, *words = _sum_of(group, _SIZE)
    if magic != _MAGIC or kind not in Kind or not 0 <= count <= _MAX_WORDS:
        raise RanksError(f"Rank {group.rank()} lost step with rank 0.", "Load the model again.")
    if (missing := count - len(words)) > 0:
        words += _sum_of(group, missing)
    return Kind(kind), words[:count]


@contextmanager
def timed_exchanges(timed: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Compute each exchange of the network with other ranks by itself, and time it, with the wait for them.

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
        words: list[int] = fetch(mx.distributed.all_sum(mx.zeros((size,), mx.int32), group=group)).tolist()
    return words


def join(rank: int, addresses: Sequence[str], key: str) -> mx.distributed.Group:
    """Join the ring, and wait until the others have; a process can join once.

    MLX takes whoever connects first for the neighbour. So all ranks add numbers that follow from a key: a stranger
    cannot give their sum.

    Args:
        rank: Index of this process among the addresses.
        addresses: `IPv4 address:port` of every rank, in order, as this process reaches it; at its own it listens.
        key: Only the ranks know it.

    Raises:
        RanksError: If the ring could not be made, or a stranger is in it.
    """
    shares = [struct.unpack("<8I", sha256(f"{key} {each}".encode()).digest()) for each in range(len(addresses))]
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[address] for address in addresses]), "utf-8")
        # MLX reads them once.
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
