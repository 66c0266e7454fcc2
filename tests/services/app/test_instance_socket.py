"""The socket of the open app: where no other user can come to it, and only for processes of this user."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from rdchat import host
from rdchat.errors import StorageError
from rdchat.services.app import single_instance
from rdchat.services.app.single_instance import SingleInstance, connect, listening_path
from rdchat.services.app.start_request import JUST_SHOW
from tests.users import BECOME_ANOTHER, OTHER_USER, folder_for_all, needs_root

CONNECT = f"""
import socket, sys
asking = socket.socket(socket.AF_UNIX)
{BECOME_ANOTHER}
try:
    asking.connect(sys.argv[1])
    asking.sendall({JUST_SHOW.line()!r})
    print("hung up on" if not asking.recv(1000) else "answered")
except PermissionError:
    print("closed")
except ConnectionError:
    print("hung up on")
"""
LISTEN = f"""
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
{BECOME_ANOTHER}
listening.listen()  # the system notes here whose it is
print("listening", flush=True)
connection, _ = listening.accept()
try:
    connection.sendall(b'{{"done": {{"database": "/x", "settings": ""}}}}\\n')
    heard = connection.recv(10000)
except ConnectionError:
    heard = b""
print("heard", len(heard), flush=True)
"""


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The system's folder for sockets and the one that is made where that is not to be had, neither of them there."""
    with folder_for_all(0o1777) as place:
        both = place / "runtime", place / "made"
        monkeypatch.setattr(single_instance, "_socket_folders", lambda: both)
        yield both


@pytest.fixture
def instance(qtbot: QtBot, folders: tuple[Path, Path], tmp_path: Path) -> Iterator[SingleInstance]:
    instance = SingleInstance(tmp_path / "data")
    yield instance
    instance.release_lock()


def test_socket_lies_in_a_private_runtime_folder_of_the_system(folders: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, _ = folders
    runtime.mkdir(mode=0o700)
    assert listening_path(tmp_path / "data").parent == runtime


def test_open_or_missing_runtime_folder_is_replaced_by_our_own(folders: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, made = folders
    assert listening_path(tmp_path / "data").parent == made
    assert f"{made.lstat().st_mode & 0o7777:o}" == "700"
    runtime.mkdir(mode=0o755)
    assert listening_path(tmp_path / "data").parent == made


def test_runtime_folder_with_too_long_a_path_is_not_used(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = folders[0].parent / ("r" * 80)
    runtime.mkdir(mode=0o700)
    monkeypatch.setattr(single_instance, "_socket_folders", lambda: (runtime, folders[1]))
    path = listening_path(tmp_path / "data")
    assert path.parent == folders[1]
    assert len(os.fsencode(path)) < 104  # what macOS takes, its closing zero included


def test_another_data_folder_has_another_socket_and_a_link_the_same(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    places = [listening_path(tmp_path / name) for name in ("data", "link", "other")]
    assert places[0] == places[1] != places[2]


def test_a_start_without_the_windows_environment_finds_it(
    qtbot: QtBot, folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    """As from cron, where XDG_RUNTIME_DIR is not set: the window may listen in either folder."""
    assert instance.claim()
    folders[0].mkdir(mode=0o700)  # which the window did not have
    asking = QLocalSocket()
    assert connect(asking, tmp_path / "data", 5000)
    with qtbot.waitSignal(instance.requested):
        asking.write(JUST_SHOW.line())


def test_the_systems_folder_follows_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "darwin":
        assert host.runtime_folder().is_dir()
        return
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/somewhere")
    assert host.runtime_folder() == Path("/somewhere")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert host.runtime_folder() == Path(f"/run/user/{os.getuid()}")


def test_the_user_at_the_other_end_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert host.peer_user(ours.fileno()) == os.geteuid()


@needs_root
def test_another_user_cannot_connect_to_the_socket(instance: SingleInstance, tmp_path: Path) -> None:
    assert instance.claim()
    assert run(CONNECT, listening_path(tmp_path / "data")) == "closed"


@needs_root
def test_connection_of_another_user_is_closed(qtbot: QtBot, instance: SingleInstance, tmp_path: Path) -> None:
    """The folder was opened by hand."""
    assert instance.claim()
    path = listening_path(tmp_path / "data")
    path.parent.chmod(0o755)
    path.chmod(0o777)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(run(CONNECT, path)))
    with qtbot.assertNotEmitted(instance.requested):
        thread.start()
        qtbot.waitUntil(lambda: bool(said))
    thread.join()
    assert said == ["hung up on"]


@needs_root
def test_a_folder_that_another_user_has_planted_is_not_used(
    folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    """The window opens all the same, and a second start does not connect there."""
    folders[1].mkdir(mode=0o700)
    os.chown(folders[1], OTHER_USER, OTHER_USER)
    with pytest.raises(StorageError, match="belongs to another user"):
        listening_path(tmp_path / "data")
    assert instance.claim()
    assert list(folders[1].iterdir()) == []
    assert not connect(QLocalSocket(), tmp_path / "data", 300)


@needs_root
def test_second_start_sends_no_request_to_a_process_of_another_user(
    qtbot: QtBot, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    path = listening_path(tmp_path / "data")
    command = [sys.executable, "-c", LISTEN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as planted:
        assert planted.stdout is not None
        assert planted.stdout.readline() == "listening\n"
        assert not connect(QLocalSocket(), tmp_path / "data", 3000)
        assert planted.stdout.readline() == "heard 0\n"


@pytest.mark.parametrize("line", [b"\xff\xfe garbage, and no request\n", b"9" * 70_000])
def test_invalid_request_disconnects_the_second_start(
    qtbot: QtBot, instance: SingleInstance, tmp_path: Path, line: bytes
) -> None:
    assert instance.claim()
    asking = QLocalSocket()
    assert connect(asking, tmp_path / "data", 5000)
    with qtbot.assertNotEmitted(instance.requested):
        asking.write(line)
        asking.flush()
        qtbot.waitUntil(lambda: asking.state() is QLocalSocket.LocalSocketState.UnconnectedState)


def run(code: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()
