"""Joins the ring of ranks: MLX's own, over TCP."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import json
import os
import struct
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import mlx.core as mx

from rdchat.errors import RanksError, one_line
from rdchat.host import local_network_hint
from rdchat.inference.verification.fetch import fetch


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
