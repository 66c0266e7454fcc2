import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication

from rdchat.cli import main
from rdchat.inference.benchmark.result import BenchResult
from tests.inference.benchmark.results import stored
from tests.services.bench_runs import PLAN, bench_run


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A benchmark's stored runs: prompt lookup at twice the speed of plain decoding."""
    return stored(tmp_path / "bench.jsonl", BenchResult(PLAN, (bench_run(0, 20), bench_run(1, 10)), {}))


def test_a_file_is_drawn_several_times(qapp: QCoreApplication, measured: Path) -> None:
    pictures = [measured.with_suffix(kind) for kind in (".png", ".pdf")]
    options = [option for picture in pictures for option in ("--picture", str(picture))]
    assert main(["bench", "--from", str(measured), *options]) == 0
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert pictures[1].read_bytes().startswith(b"%PDF-")


@pytest.mark.slow
def test_pictures_need_no_display(measured: Path) -> None:
    unset = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    picture = measured.with_suffix(".pdf")
    command = [sys.executable, "-m", "rdchat", "bench", "--from", str(measured), "--picture", str(picture)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(("name", "status", "words"), [("bench.gif", 2, ".png or .pdf"), ("no/b.png", 1, "written")])
def test_a_picture_that_cannot_be_is_refused_first(
    measured: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, words: str
) -> None:
    assert main(["bench", "--from", str(measured), "--picture", str(measured.parent / name)]) == status
    told = capsys.readouterr()
    assert words in told.err
    assert told.out == ""
