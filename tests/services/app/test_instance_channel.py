"""What other processes of the person can say to the open app."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from rdchat.errors import StorageLockedError
from rdchat.services.app.instance_channel import InstanceRequest, ask_open_app, connect
from rdchat.services.app.single_instance import SingleInstance


@pytest.fixture
def instance(qtbot: QtBot, tmp_path: Path) -> Iterator[SingleInstance]:
    instance = SingleInstance(tmp_path / "data")
    assert instance.claim()
    yield instance
    instance.release()


@pytest.fixture
def socket(instance: SingleInstance, tmp_path: Path) -> Iterator[QLocalSocket]:
    socket = QLocalSocket()
    assert connect(socket, tmp_path / "data", 5000)
    yield socket
    socket.abort()


def ask(qtbot: QtBot, folder: Path, request: dict[str, Any]) -> list[Any]:
    """Ask from another thread, as another process would; return what was said, the outcome last."""
    said: list[Any] = []
    over = threading.Event()

    def run() -> None:
        try:
            outcome: Any = ask_open_app(folder, request, said.append, answer_ms=3000)
        except StorageLockedError as error:
            outcome = error
        said.append(outcome)
        over.set()

    thread = threading.Thread(target=run)
    thread.start()
    qtbot.waitUntil(over.is_set)
    thread.join()
    return said


def test_a_request_is_answered_line_by_line(qtbot: QtBot, instance: SingleInstance, tmp_path: Path):
    def answer(request: InstanceRequest) -> None:
        request.tell({"taken": request.asked["paths"]})
        request.end({"done": {"chats": 2}})

    instance.request_received.connect(answer)
    said = ask(qtbot, tmp_path / "data", {"do": "import", "paths": ["ü"]})
    assert said == [{"taken": ["ü"]}, {"done": {"chats": 2}}]


def test_an_app_of_before_hangs_up_and_that_is_told(qtbot: QtBot, instance: SingleInstance, tmp_path: Path):
    instance.request_received.connect(lambda request: request.hang_up())
    (outcome,) = ask(qtbot, tmp_path / "data", {"do": "import", "paths": []})
    assert "did not do this" in str(outcome)


def test_where_nobody_listens_that_is_told(qtbot: QtBot, tmp_path: Path):
    (outcome,) = ask(qtbot, tmp_path / "nowhere", {"do": "import"})
    assert "does not answer" in str(outcome)


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"[1]\n", b"[" * 5000 + b"\n", b"9" * 5000 + b"\n"])
def test_what_is_no_request_is_hung_up_on(qtbot: QtBot, instance: SingleInstance, socket: QLocalSocket, line: bytes):
    with qtbot.assertNotEmitted(instance.request_received), qtbot.assertNotEmitted(instance.activation_requested):
        socket.write(line)
        socket.flush()
        qtbot.waitUntil(lambda: socket.state() is QLocalSocket.LocalSocketState.UnconnectedState)


def test_who_leaves_before_the_end_is_noticed(qtbot: QtBot, instance: SingleInstance, socket: QLocalSocket):
    with qtbot.waitSignal(instance.request_received) as received:
        socket.write(b'{"do": "import"}\n')
        socket.flush()
    with qtbot.waitSignal(received.args[0].left):
        socket.abort()
