"""Real disks in real trouble, for tests: full ones, and ones that cannot be written to. They need root and Linux.

A machine that does not let root mount skips those tests; in CI they must run, so there it fails them.
"""

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, kibibytes: int = 512, files: int = 100) -> Iterator["SmallDisk"]:
    """Mount a file system on `folder` that has room for this much and this many files, itself included."""
    _mount("-t", "tmpfs", "-o", f"size={kibibytes}k,nr_inodes={files}", "tmpfs", folder)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def pinned(file: Path) -> Iterator[None]:
    """Mount a file onto itself: it can be read and written, but neither renamed nor deleted."""
    _mount("--bind", file, file)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(file)], check=True)


class SmallDisk:
    """A mounted file system that can be filled up, emptied and made read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take the last byte."""
        room = b"\0" * 512
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(room):
                pass
        assert shutil.disk_usage(self.folder).free == 0

    def free(self) -> None:
        self._filler.unlink()

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)


def _mount(*arguments: str | Path) -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        pytest.skip("mounting a file system needs root on Linux")
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up(f"this machine does not let root mount: {done.stderr.strip()}")
