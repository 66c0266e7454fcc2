"""A kill at any moment leaves a whole file of a cache or none."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_whole_files(kills: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.inference.caches_on_disk.killed_writer", str(tmp_path), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
