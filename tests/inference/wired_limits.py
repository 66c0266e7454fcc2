"""A Mac with 32 GB that records how much memory is to be wired."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
from mlx.utils import tree_flatten

from rdchat import host, machine, paths
from rdchat.inference.loading import load_model
from rdchat.inference.wired_memory import unwire_weights

GIB = 2**30


class Limits(list[int]):
    """The limits that were set, each with a mark on the disk."""

    def set_limit(self, limit: int) -> int:
        assert marks()
        self.append(limit)
        return 0

    def check_wired(self, work: Callable[[], object], model: Path, times: int) -> None:
        """Check that work wires no memory unless a person asks for it, and then the weights alone, and unwires them.

        Args:
            work: The work.
            model: The model that it loads.
            times: How often it wires weights where a person asks for it.
        """
        work()
        assert self == []
        loaded = load_model(model)
        weights = loaded.info.weights_bytes
        rounding = mmap.PAGESIZE * len(tree_flatten(loaded.network.parameters()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(host.WIRED, "1")
            work()
            unwire_weights()
        wired, unwired = self[::2], self[1::2]
        assert (len(wired), unwired) == (times, [0] * times)
        assert all(weights <= limit < weights + rounding for limit in wired)
        assert marks() == []


def marks() -> list[str]:
    return [path.name for path in paths.data_dir().glob("wired*")]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Limits]:
    """Makes this machine a Mac with 32 GB, and records the limits that are set."""
    info = {**mx.device_info(), "max_recommended_working_set_size": 22 * GIB}
    limits = Limits()
    monkeypatch.delenv(host.WIRED, raising=False)
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(machine, "total_bytes", lambda: 32 * GIB)
    monkeypatch.setattr(mx, "device_info", lambda *_: info)
    monkeypatch.setattr(mx, "set_wired_limit", limits.set_limit)
    yield limits
    unwire_weights()
