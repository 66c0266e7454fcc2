"""Temporary folders: gone with their block, or with the next start after their process was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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


def test_the_lock_is_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the next start would not find what a kill leaves in the midst of the removal."""
    removed = list[str]()
    unlink = os.unlink

    def note(path: str | Path, **options: Any) -> None:
        removed.append(Path(path).name)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", note)
    with temporary_folder() as folder:
        (folder / "a").write_bytes(b"x")
        (folder / "z").write_bytes(b"x")
    assert sorted(removed[:-1]) == ["a", "z"]
    assert removed[-1] == "lock"
