"""The window after long use: it keeps no more than before. `tests/soak.py` does the same for hours."""

import subprocess
import sys

import pytest

from tests.project.scripts import ROOT

ACTIONS = 30
PATIENCE_S = 900


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("engine", ["scripted", "tiny"])
def test_after_long_use_no_thread_file_or_object_is_left(engine: str) -> None:
    """Another process, so that a crash is its own; its objects are counted after the same rest each time."""
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--actions",
        str(ACTIONS),
        *["--scripted"] * (engine == "scripted"),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S - 60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert ran.stdout.count(" actions: ") == 4
