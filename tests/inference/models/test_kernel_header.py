"""The header of MLX's kernels is compiled once, while a model is loaded."""

from pathlib import Path

import pytest

from rdchat import host
from rdchat.inference import blas, loading
from rdchat.inference.loading import header_compiled
from tests.inference.stand_in_compiler import put_compiler

COMPILER = """#!/bin/sh
echo "$@" >> "$LOG"
for out; do :; done
[ "$STATUS" = 0 ] && echo whole > "$out"
exit $STATUS
"""

pytestmark = pytest.mark.skipif(host.MACOS, reason="kernels are files with MLX's CPU backend on Linux")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a stand-in for g++ was called with; kernels have an empty folder."""
    put_compiler(monkeypatch, tmp_path, COMPILER, STATUS="0")
    folder = tmp_path / "kernels" / "1.0" / "cpu"
    monkeypatch.setattr(loading, "kernel_header", lambda: folder / blas.HEADER)
    monkeypatch.setattr(loading, "on_gpu", lambda: False)
    return tmp_path / "log"


def headers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_it_is_compiled_once_beside_the_kernels(log: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with header_compiled():
            pass
    (header,) = headers(tmp_path / "kernels")
    assert header.name == "compiled_preamble.h.gch"
    assert header.relative_to(tmp_path / "kernels").parts[1:5] == ("cpu", "mlx", "backend", "cpu")
    (call,) = log.read_text().splitlines()
    source = Path(call.split(" -o ")[0].split()[-1])
    assert source.is_file(), "MLX has that header"


def test_the_header_for_this_processor_is_compiled_in_the_place_of_mlx_s_own(log: Path) -> None:
    header = loading.kernel_header()
    header.parent.mkdir(parents=True)
    header.touch()
    with header_compiled():
        pass
    (call,) = log.read_text().splitlines()
    assert Path(call.split(" -o ")[0].split()[-1]) == header


@pytest.mark.parametrize("why", ["an error", "no compiler"])
def test_without_a_whole_header_a_model_is_loaded_all_the_same(
    log: Path, tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "1")
    if why == "no compiler":
        (tmp_path / "bin" / "g++").unlink()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with header_compiled():
        pass
    assert log.exists() is (why == "an error")
    assert headers(tmp_path / "kernels") == []


@pytest.mark.parametrize("where", ["a GPU", "macOS"])
def test_other_devices_have_no_such_header(log: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "on_gpu", lambda: where == "a GPU")
    monkeypatch.setattr(host, "MACOS", where == "macOS")
    with header_compiled():
        pass
    assert not log.exists()


def test_kernels_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "kernel_folder", lambda: tmp_path)
    assert blas.compiled_kernels() == 0
    folder = tmp_path / "1.0" / "cpu"
    folder.mkdir(parents=True)
    for name in ("libA.so", "libB.so", "A.cpp"):
        (folder / name).touch()
    assert blas.compiled_kernels() == 2
