"""The log on a full or read-only disk: nothing is ever printed instead."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import SmallDisk, small_disk

LOG = """
import logging, sys
from pathlib import Path
from rdchat import log, paths
log.set_up_logging()
logger = logging.getLogger("rdchat.test")
logger.info("before")
print("logged", flush=True)
sys.stdin.readline()
for number in range(50):
    logger.info("word " * 200)
    try:
        raise OSError("in the log only")
    except OSError:
        logger.exception("something failed")
print("full", flush=True)
sys.stdin.readline()
logger.info("after")
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(folder))
    with small_disk(folder) as mounted:
        yield mounted


def logging_process() -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", LOG], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("freed", [True, False])
def test_a_full_disk_shows_no_tracebacks_and_the_log_goes_on_when_there_is_room(disk: SmallDisk, freed: bool) -> None:
    with logging_process() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "logged\n"
        disk.fill()
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "full\n"
        if freed:
            disk.free()
        _, complaints = process.communicate("\n", timeout=120)
    assert (process.returncode, complaints) == (0, "")
    lines = (disk.folder / "logs" / "rdchat.log").read_text().splitlines()
    assert lines[0].endswith("rdchat.test: before")
    assert lines[-1].endswith("rdchat.test: after") == freed


def test_a_log_that_cannot_be_opened_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path))
    (tmp_path / "logs" / "rdchat.log").mkdir(parents=True)
    with logging_process() as process:
        _, complaints = process.communicate("\n\n", timeout=120)
    assert (process.returncode, complaints) == (0, "")
