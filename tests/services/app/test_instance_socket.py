"""The socket of the open app: where no other user can come to it, and only for processes of this user."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from rdchat import host, paths
from rdchat.chat.transfer.reports import ImportReport
from rdchat.chat.transfer.restore import Restored
from rdchat.cli import main
from rdchat.commands.chats import ask_app
from rdchat.errors import StorageError, StorageLockedError
from rdchat.files.file_lock import FileLock
from rdchat.services.app import instance_channel
from rdchat.services.app.instance_channel import ask_open_app, connect, place_to_listen
from rdchat.services.app.single_instance import SingleInstance
from tests.commands.running import check_refused
from tests.users import BECOME_ANOTHER, OTHER_USER, folder_for_all, needs_root

CONNECT = f"""
import socket, sys
asking = socket.socket(socket.AF_UNIX)
{BECOME_ANOTHER}
try:
    asking.connect(sys.argv[1])
    asking.sendall(b'{{"do": "import", "paths": ["/x"]}}\\n')
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
        monkeypatch.setattr(instance_channel, "_folders", lambda: both)
        yield both


@pytest.fixture
def instance(qtbot: QtBot, tmp_path: Path) -> Iterator[SingleInstance]:
    instance = SingleInstance(tmp_path / "data")
    yield instance
    instance.release()


def test_the_systems_own_folder_is_taken_if_it_is_private(folders: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, _ = folders
    runtime.mkdir(mode=0o700)
    assert place_to_listen(tmp_path / "data").parent == runtime


def test_an_open_or_missing_one_gives_way_to_one_of_our_own(folders: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, made = folders
    assert place_to_listen(tmp_path / "data").parent == made
    assert f"{made.lstat().st_mode & 0o7777:o}" == "700"
    runtime.mkdir(mode=0o755)
    assert place_to_listen(tmp_path / "data").parent == made


def test_a_path_that_is_too_long_for_a_socket_is_not_taken(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = folders[0].parent / ("r" * 80)
    runtime.mkdir(mode=0o700)
    monkeypatch.setattr(instance_channel, "_folders", lambda: (runtime, folders[1]))
    path = place_to_listen(tmp_path / "data")
    assert path.parent == folders[1]
    assert len(os.fsencode(path)) < 104  # what macOS takes, its closing zero included


def test_another_data_folder_has_another_socket_and_a_link_the_same(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    places = [place_to_listen(tmp_path / name) for name in ("data", "link", "other")]
    assert places[0] == places[1] != places[2]


def test_commands_without_the_windows_environment_find_it(
    qtbot: QtBot, folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    """As from cron, where XDG_RUNTIME_DIR is not set: the window may listen in either folder."""
    assert instance.claim()
    folders[0].mkdir(mode=0o700)  # which the window did not have
    asking = QLocalSocket()
    assert connect(asking, tmp_path / "data", 5000)
    with qtbot.waitSignal(instance.activation_requested):
        asking.write(b'{"do": "show"}\n')


def test_the_systems_folder_follows_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    if host.MACOS:
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
def test_another_user_cannot_come_to_the_socket(
    folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    assert instance.claim()
    assert run(CONNECT, place_to_listen(tmp_path / "data")) == "closed"


@needs_root
def test_another_user_who_comes_to_it_is_hung_up_on(
    qtbot: QtBot, folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    """The folder was opened by hand."""
    assert instance.claim()
    path = place_to_listen(tmp_path / "data")
    path.parent.chmod(0o755)
    path.chmod(0o777)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(run(CONNECT, path)))
    with qtbot.assertNotEmitted(instance.request_received), qtbot.assertNotEmitted(instance.activation_requested):
        thread.start()
        qtbot.waitUntil(lambda: bool(said))
    thread.join()
    assert said == ["hung up on"]


@needs_root
def test_a_folder_that_another_user_has_planted_is_not_used(
    qtbot: QtBot, folders: tuple[Path, Path], instance: SingleInstance, tmp_path: Path
) -> None:
    """The window opens all the same, and commands find no answer there."""
    folders[1].mkdir(mode=0o700)
    os.chown(folders[1], OTHER_USER, OTHER_USER)
    with pytest.raises(StorageError, match="belongs to another user"):
        place_to_listen(tmp_path / "data")
    assert instance.claim()
    assert list(folders[1].iterdir()) == []
    with pytest.raises(StorageLockedError, match="does not answer"):
        ask_open_app(tmp_path / "data", {"do": "restore"}, lambda _message: None, answer_ms=300)


@needs_root
def test_a_process_of_another_user_is_not_told_what_to_do(
    qtbot: QtBot, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    path = place_to_listen(tmp_path / "data")
    command = [sys.executable, "-c", LISTEN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as planted:
        assert planted.stdout is not None
        assert planted.stdout.readline() == "listening\n"
        with pytest.raises(StorageLockedError, match="does not answer"):
            ask_open_app(tmp_path / "data", {"do": "restore"}, lambda _message: None, answer_ms=3000)
        assert planted.stdout.readline() == "heard 0\n"


# Answers


@pytest.fixture
def answers(folders: tuple[Path, Path], qtbot: QtBot) -> Iterator[Callable[[bytes], None]]:
    """Have a process of ours hold the chats and give an answer, whatever it is asked."""
    paths.data_dir().mkdir()
    lock = FileLock(paths.database_path().with_name(paths.database_path().name + ".lock"))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place_to_listen(paths.data_dir())))
    listening.listen()
    threads: list[threading.Thread] = []

    def answer(words: bytes) -> None:
        def run() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100_000)
                try:
                    connection.sendall(words)
                except ConnectionError:  # it has heard enough
                    return

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield answer
    for thread in threads:
        thread.join(20)
    listening.close()
    lock.release()


UNREADABLE = (
    b"\xff\xfe garbage\n",
    b"[1]\n",
    b"null\n",
    b"[" * 100_000 + b"\n",
    b'{"done": {}}\n',
    b'{"done": true}\n',
    b'{"done": {"database": 7, "settings": ""}}\n',
    b'{"done": {"database": ""}}\n',
    b'{"failed": "no"}\n',
    b'{"failed": {"message": 1, "hint": 2}}\n',
    b'{"progress": 1}\n{"done": {"database": "", "settings": ""}}\n',
    b'{"progress": {"words": [], "fraction": "x"}}\n{"done": {"database": "", "settings": ""}}\n',
    b"x" * (5 << 20),
)


@pytest.mark.parametrize("words", UNREADABLE, ids=lambda words: words[:40].decode("ascii", "replace"))
def test_an_answer_that_lacks_what_it_must_hold_is_no_success(
    answers: Callable[[bytes], None], capsys: pytest.CaptureFixture[str], tmp_path: Path, words: bytes
) -> None:
    (tmp_path / "b.zip").write_text("")
    answers(words)
    check_refused(capsys, ["chats", "restore", str(tmp_path / "b.zip")], "an answer that cannot be read", 1)


@pytest.mark.parametrize("words", [b"", b"\n", b'{"taken": true}\n', b"{}\n"])
def test_an_app_that_hangs_up_has_not_done_it(
    answers: Callable[[bytes], None], capsys: pytest.CaptureFixture[str], tmp_path: Path, words: bytes
) -> None:
    (tmp_path / "b.zip").write_text("")
    answers(words)
    expected = "cannot be read" if words == b"\n" else "did not do this"
    check_refused(capsys, ["chats", "restore", str(tmp_path / "b.zip")], expected, 1)


def test_what_a_report_must_hold_is_looked_at(answers: Callable[[bytes], None]) -> None:
    for words in (b'{"done": {"files": [], "cancelled": "no"}}\n', b'{"done": {"files": [1], "cancelled": false}}\n'):
        answers(words)
        with pytest.raises(StorageError, match="cannot be read"):
            ask_app({"do": "import"}, lambda _progress: None, ImportReport())


def test_a_right_answer_is_taken(
    answers: Callable[[bytes], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "b.zip").write_text("")
    told: list[Any] = []
    right = b'{"progress": {"words": "Reading", "fraction": 0.5}}\n{"done": {"database": "/x", "settings": ""}}\n'
    answers(right)
    assert ask_app({"do": "restore"}, told.append, Restored()) == {"database": "/x", "settings": ""}
    assert [(each.words, each.fraction) for each in told] == [("Reading", 0.5)]
    answers(right)
    assert main(["chats", "restore", str(tmp_path / "b.zip")]) == 0
    assert "The former file is kept as /x" in capsys.readouterr().out


def run(code: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()
