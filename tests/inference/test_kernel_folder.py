"""MLX runs kernels that it finds in a folder: only this user can put any there."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import host
from rdchat.inference import blas, processor
from tests.users import OTHER_USER, folder_for_all, modes, needs_root

COMPUTE = """
import json, os, subprocess, sys, tempfile
import rdchat.inference.blas
import mlx.core as mx

mx.set_default_device(mx.cpu)
curve = mx.compile(lambda x: mx.sin(x) * x + 1.5)
child = [sys.executable, "-c", "import os; print(os.environ.get('TMPDIR'))"]
print(json.dumps({
    "values": curve(mx.array([0.0, 1.0])).tolist(),
    "temporary": tempfile.gettempdir(),
    "child": subprocess.run(child, capture_output=True, text=True, env=os.environ, check=True).stdout.strip(),
}))
"""
RIGHT = [1.5, pytest.approx(2.3414710)]
PLANTED = """
#include <cstdio>
__attribute__((constructor)) static void run() { if (FILE* mark = fopen(MARK, "w")) fclose(mark); }
"""

KEY = processor.kernel_key()

pytestmark = pytest.mark.slow  # each compiles kernels


def compute(temporary: Path | None, cache: Path) -> subprocess.CompletedProcess[str]:
    """Have MLX compute in a process whose folder for temporary files is this one; None where it is not named."""
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    environment |= {"RDCHAT_CACHE_DIR": str(cache)} | ({} if temporary is None else {"TMPDIR": str(temporary)})
    command = [sys.executable, "-c", COMPUTE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, umask=0o022, check=False)


def computed(temporary: Path | None, cache: Path) -> dict[str, object]:
    done = compute(temporary, cache)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    assert told["values"] == RIGHT
    return told


def kernels(folder: Path) -> list[Path]:
    return sorted((folder / KEY).glob("mlx/*/cpu/lib*.so"))


@needs_root
def test_a_kernel_that_another_user_has_planted_is_not_run(tmp_path: Path) -> None:
    """Its name is known to whoever has run the same version once."""
    with folder_for_all(0o1777) as shared:
        computed(shared, tmp_path / "cache")
        (own,) = kernels(tmp_path / "cache" / "kernels")
        planted = shared / own.relative_to(tmp_path / "cache" / "kernels")
        planted.parent.mkdir(parents=True)
        (tmp_path / "planted.cpp").write_text(PLANTED)
        mark = f'-DMARK="{tmp_path / "mark"}"'
        subprocess.run(["g++", "-shared", "-fPIC", mark, tmp_path / "planted.cpp", "-o", planted], check=True)
        top = planted.relative_to(shared).parts[0]
        for path in (shared / top, *(shared / top).rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)
        own.unlink()
        told = computed(shared, tmp_path / "cache")
        assert not (tmp_path / "mark").exists()
        assert (told["temporary"], told["child"]) == (str(shared), str(shared))  # only MLX's own place is another


def test_kernels_last_from_start_to_start_in_a_folder_of_our_own(tmp_path: Path) -> None:
    computed(None, tmp_path / "cache")
    folder = tmp_path / "cache" / "kernels"
    (first,) = kernels(folder)
    made = first.stat()
    assert (modes(tmp_path / "cache")["."], modes(folder)["."]) == ("700", "700")
    computed(None, tmp_path / "cache")
    again = first.stat()
    assert (again.st_ino, again.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


@pytest.mark.skipif(host.MACOS, reason="macOS keeps its one folder")
def test_kernels_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    """They were for any processor."""
    old = tmp_path / "cache" / "kernels" / "mlx" / "0.1" / "cpu" / "libA.so"
    old.parent.mkdir(parents=True)
    (tmp_path / "cache" / "kernels").chmod(0o700)
    old.touch()
    computed(None, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "kernels").iterdir()] == [KEY]


@pytest.mark.skipif(host.MACOS, reason="macOS keeps its one folder")
def test_a_kernel_for_another_processor_is_not_met(tmp_path: Path) -> None:
    """As where a home moves between machines: such a kernel would end the process."""
    computed(None, tmp_path / "cache")
    (kernel,) = kernels(tmp_path / "cache" / "kernels")
    (tmp_path / "cache" / "kernels" / KEY).rename(tmp_path / "cache" / "kernels" / "another-processor")
    computed(None, tmp_path / "cache")
    assert len(kernels(tmp_path / "cache" / "kernels")) == 1
    assert kernel.exists()


SPECIAL = """
import rdchat.inference.blas
import mlx.core as mx

mx.set_default_device(mx.cpu)
grow = mx.compile(lambda x: mx.exp(x) * 1.0)
values = [float("-inf"), -200.0, 0.0, 1.0, 88.0, 200.0, float("inf"), float("nan")]
print(*grow(mx.array(values * 5)).tolist()[:8])
"""


def test_compiled_exponentials_are_right_at_the_ends(tmp_path: Path) -> None:
    environment = os.environ | {"RDCHAT_CACHE_DIR": str(tmp_path), "TMPDIR": ""}
    done = subprocess.run([sys.executable, "-c", SPECIAL], env=environment, capture_output=True, text=True, check=True)
    *numbers, last = map(float, done.stdout.split())
    assert numbers == [0, 0, 1, pytest.approx(math.e), pytest.approx(math.exp(88), rel=1e-5), math.inf, math.inf]
    assert math.isnan(last)


def test_a_kernel_that_a_crash_cut_short_is_compiled_again(tmp_path: Path) -> None:
    computed(None, tmp_path / "cache")
    (kernel,) = kernels(tmp_path / "cache" / "kernels")
    whole = kernel.read_bytes()
    # a cut Mach-O file counts as whole
    cut = () if host.MACOS else (whole[:100], whole[: len(whole) // 2])
    for damaged in (b"", b"\0" * len(whole), *cut):
        kernel.write_bytes(damaged)
        os.utime(kernel, (0, 0))
        computed(None, tmp_path / "cache")
        assert kernel.stat().st_size == len(whole)


def test_a_temporary_folder_that_is_private_stays(tmp_path: Path) -> None:
    """As the one that macOS gives each user."""
    (tmp_path / "own").mkdir(mode=0o700)
    told = computed(tmp_path / "own", tmp_path / "cache")
    assert len(kernels(tmp_path / "own")) == 1
    assert told["temporary"] == str(tmp_path / "own")
    assert not (tmp_path / "cache").exists()


def test_the_kernel_folder_is_the_one_that_mlx_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was that in TMPDIR also where MLX was kept from it, because another user may have planted kernels there."""
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    (tmp_path / "own").mkdir(mode=0o700)
    assert blas.kernel_folder() == tmp_path / "own" / KEY / "mlx"
    (tmp_path / "own" / KEY / "mlx").mkdir(parents=True)
    (tmp_path / "own" / KEY / "mlx").chmod(0o777)
    assert blas.kernel_folder() == tmp_path / "cache" / "kernels" / KEY / "mlx"
    monkeypatch.setattr(blas, "_made", [])
    temporary = blas._temporary_folder()
    assert blas.kernel_folder() == temporary / KEY / "mlx"
    blas._made[0].cleanup()


def test_a_cache_folder_that_cannot_be_written_does_without_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with folder_for_all(0o1777) as shared:
        computed(shared, tmp_path / "file" / "cache")
        assert list(shared.iterdir()) == []  # nor is anything left


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o770])
def test_a_folder_that_others_could_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    check_refused(tmp_path / "cache")


@needs_root
@pytest.mark.parametrize("name", ["kernels", f"kernels/{KEY or 'mlx'}"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "cache" / name
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    (tmp_path / "cache" / "kernels").chmod(0o700)
    folder.mkdir(exist_ok=True)
    os.chown(folder, OTHER_USER, OTHER_USER)
    check_refused(tmp_path / "cache")


def check_refused(cache: Path) -> None:
    """Check that a folder is left as it is, that this is said, and that all goes on without it."""
    before = modes(cache)
    # nor does a command close it, and take it for private from then on
    command = [sys.executable, "-m", "rdchat", "chats", "list"]
    environment = os.environ | {"RDCHAT_CACHE_DIR": str(cache), "TMPDIR": ""}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    done = compute(None, cache)
    assert (done.returncode, json.loads(done.stdout)["values"]) == (0, RIGHT)
    assert "MLX compiles its kernels at each start." in done.stderr
    assert "nother user of this machine may have put" in done.stderr
    assert str(cache / "kernels") in done.stderr
    assert modes(cache) == before | {".": "700"}
