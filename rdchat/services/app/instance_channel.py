"""Messages over the socket of the open app: lines of JSON, first a request, then its progress and its outcome.

Versions before this one sent nothing and waited until the app hung up; a request that does not come is taken as theirs.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QDeadlineTimer, QObject, QTimer, Signal, Slot
from PySide6.QtNetwork import QLocalSocket

from rdchat.errors import StorageError, StorageLockedError
from rdchat.services.app.instance_socket import connect

SHOW: dict[str, Any] = {"do": "show"}
_SILENT_MS = 400  # a request is sent as soon as the connection stands
_MOST_BYTES = 4 << 20  # of a request: names of files
_ANSWER_MS = 10_000
_LOOK_MS = 20  # Ctrl-C is noticed between two looks


def request_line(message: dict[str, Any]) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message).encode() + b"\n"


class InstanceRequest(QObject):
    """The open app's side of one request by another process of this person; it deletes itself at its end.

    Args:
        socket: Its connection.
        parent: The Qt parent.

    Attributes:
        asked: What it asks for; once `read` was told.
    """

    read = Signal(object)  # itself
    left = Signal()  # who asked has gone

    def __init__(self, socket: QLocalSocket, parent: QObject | None = None) -> None:
        super().__init__(parent)
        socket.setParent(self)
        self._socket = socket
        self.asked: dict[str, Any] = {}
        self._known = self._over = False
        self._silent = QTimer(self, singleShot=True, interval=_SILENT_MS)
        self._silent.timeout.connect(self._take_silence)
        self._silent.start()
        socket.readyRead.connect(self._take)
        socket.disconnected.connect(self._on_left)
        if socket.canReadLine():
            self._take()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a line to who asked; where that has gone, nothing happens."""
        if not self._over:
            self._socket.write(request_line(message))
            self._socket.flush()

    def end(self, message: dict[str, Any]) -> None:
        """Send the last line, and hang up when it has arrived."""
        self.tell(message)
        self._over = True
        self._socket.disconnectFromServer()
        self.deleteLater()

    def hang_up(self) -> None:
        """End the connection without a word."""
        self._over = True
        self._socket.abort()
        self.deleteLater()

    @Slot()
    def _take(self) -> None:
        if self._known:
            return
        if not self._socket.canReadLine():
            if self._socket.bytesAvailable() > _MOST_BYTES:
                self.hang_up()
            return
        try:
            asked = json.loads(bytes(self._socket.readLine(_MOST_BYTES).data()))
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            self.hang_up()
            return
        self._know(asked)

    @Slot()
    def _take_silence(self) -> None:
        if not self._known and not self._over:
            self._know(SHOW)

    def _know(self, asked: dict[str, Any]) -> None:
        self._known, self.asked = True, asked
        self._silent.stop()
        self.read.emit(self)

    @Slot()
    def _on_left(self) -> None:
        if self._over:
            return
        if not self._known:
            self._take_silence()  # an earlier version that did not wait for the answer
            return
        self._over = True
        self.left.emit()
        self.deleteLater()


def ask_open_app(
    folder: Path, request: dict[str, Any], on_message: Callable[[dict[str, Any]], object], answer_ms: int = _ANSWER_MS
) -> dict[str, Any]:
    """Ask the app that has a data folder open, and return the last line of its answer.

    Args:
        folder: The data folder.
        request: What to ask for.
        on_message: Called with every line before the last one.
        answer_ms: How long the app may take to connect and to say its first word.

    Raises:
        StorageLockedError: If no app of this user answers, or one that does not know the request.
        StorageError: If the answer is none.
    """
    socket = QLocalSocket()
    deadline = QDeadlineTimer(answer_ms)
    if not connect(socket, folder, answer_ms):
        raise _no_answer(folder)
    socket.write(request_line(request))
    socket.flush()
    last: dict[str, Any] | None = None
    while True:
        while socket.canReadLine():
            if last is not None:
                on_message(last)
            last = _message(bytes(socket.readLine(_MOST_BYTES).data()))
        if socket.bytesAvailable() >= _MOST_BYTES:
            raise bad_answer()
        if socket.state() is not QLocalSocket.LocalSocketState.ConnectedState:
            break
        socket.waitForReadyRead(_LOOK_MS)
        if last is None and deadline.hasExpired():
            raise _no_answer(folder)
    if last is None or not last.keys() & {"done", "failed", "cancelled"}:
        raise StorageLockedError(
            f"The rdchat that is open for {folder} did not carry it out.", "Quit it, then try again."
        )
    return last


def bad_answer() -> StorageError:
    """Return the error for an answer that lacks what it must hold."""
    return StorageError(
        "The open rdchat gave an answer that cannot be read, so it is not known what it did.",
        "Look at the chats in its window, quit it, then try again.",
    )


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise bad_answer()
    return message


def _no_answer(folder: Path) -> StorageLockedError:
    return StorageLockedError(
        f"Another rdchat uses the chats in {folder}, but does not answer.", "Wait until it has ended, or quit it."
    )
