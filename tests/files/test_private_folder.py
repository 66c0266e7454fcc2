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


KILLED = """
import os, signal, sys, tempfile
from itertools import count
from rdchat.files.atomic_file import remove_abandoned, temporary_folder

kinds = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "open", "fcntl.", "tempfile.", "shutil.")
tempfile.gettempdir()
for kill_at in count():
    process = os.fork()
    if not process:
        events = iter(range(kill_at))
        def step(name, _arguments):
            if name.startswith(kinds) and next(events, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(step)
        with temporary_folder() as folder:
            (folder / "image").write_bytes(b"x")
        events = iter(range(10**6))
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    left = os.listdir(tempfile.gettempdir())
    remove_abandoned()
    print(ended, bool(left), *os.listdir(tempfile.gettempdir()))
    if ended != -signal.SIGKILL:
        break
"""


def test_a_kill_at_any_step_leaves_nothing_after_the_next_start() -> None:
    """A folder without its lock, or not locked yet, once stayed for ever."""
    ran = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=True)
    *killed, ended = ran.stdout.splitlines()
    assert ended == "0 False"
    assert {*killed} == {"-9 False", "-9 True"}, "a third word is the name of what is left"


def test_a_folder_that_another_start_took_for_abandoned_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tempfile.mkdtemp
    first = list[str]()

    def make(prefix: str) -> str:
        folder = made(prefix=prefix)
        if not first:
            first.append(folder)
            remove_abandoned()
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with temporary_folder() as folder:
        assert folder.is_dir()
        assert str(folder) != first[0]
