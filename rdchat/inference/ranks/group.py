"""Joins the ring of ranks: MLX's own, over TCP."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from rdchat.errors import RanksError, one_line


def join(rank: int, addresses: Sequence[str]) -> mx.distributed.Group:
    """Join the ring, and wait until the others have; a process can join once.

    Args:
        rank: Index of this process among the addresses.
        addresses: `IPv4 address:port` of every rank, in order, as this process reaches it; at its own it listens.

    Raises:
        RanksError: If the ring could not be made.
    """
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[address] for address in addresses]), "utf-8")
        # MLX reads them once.
        os.environ |= {"MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank)}
        try:
            return mx.distributed.init(strict=True, backend="ring")
        except (RuntimeError, ValueError) as error:
            raise RanksError(
                f"Rank {rank} could not join the others at {', '.join(addresses)} ({one_line(error)[:200]}).",
                "Check that the Macs reach each other.",
            ) from error
