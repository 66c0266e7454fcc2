"""Temporary folders: gone with their block, or with the next start after their process was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rdchat.files.atomic_file import remove_abandoned, temporary_folder

HOLD = """
import sys
from rdchat.files.atomic_file import temporary_folder
with temporary_folder() as folder:
    (folder / "image").write_bytes(b"x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_only_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with temporary_folder() as ours:
            (ours / "image").write_bytes(b"x")
            remove_abandoned()
            assert (ours / "image").exists()
            assert (theirs / "image").exists()
            other.kill()
            other.wait()
            assert (theirs / "image").exists()
            remove_abandoned()
            assert not theirs.exists()
            assert ours.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []


def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").touch()
    (tmp_path / "rdchat-private-x").symlink_to(victim)
    remove_abandoned()
    assert (victim / "lock").exists()
