"""The local socket of the running app, which only processes of the same user can use, and its messages.

A message is a line of JSON: first a request, then its progress and its result.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from PySide6.QtCore import QDeadlineTimer, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalSocket

from rdchat import host
from rdchat.errors import StorageError, StorageLockedError
from rdchat.files.privacy import is_private, private_folder

SHOW: dict[str, Any] = {"do": "show"}
_LONGEST_PATH = 103  # bytes of a socket's path on macOS; Linux has a few more
_MOST_BYTES = 4 << 20  # of a request: names of files
_ANSWER_MS = 10_000
_POLL_MS = 20  # Ctrl-C is handled between two reads


def place_to_listen(folder: Path) -> Path:
    """Return the path of the socket for a data folder, in a folder that no other user can enter.

    Raises:
        StorageError: If there is no such folder.
    """
    shared = _folders()[-1]
    with suppress(OSError, StorageError):
        private_folder(shared)
    for path in _private_paths(folder):
        return path
    raise StorageError(f"{shared} belongs to another user or cannot be created.", "Delete it, or set XDG_RUNTIME_DIR.")


def connect(socket: QLocalSocket, folder: Path, wait_ms: int) -> bool:
    """Connect to the app of a data folder; return False if none of this user runs."""
    for path in _private_paths(folder):
        socket.connectToServer(str(path))
        if socket.waitForConnected(wait_ms):
            if is_own(socket):
                return True
            socket.abort()
    return False


def is_own(socket: QLocalSocket) -> bool:
    """Tell whether the process at the other end of a connection belongs to this user."""
    return host.peer_user(socket.socketDescriptor()) == os.geteuid()


def _private_paths(folder: Path) -> Iterator[Path]:
    """Yield the paths where the app of a data folder may listen; the environments of starts and commands differ."""
    # a hash, since a data folder's path may be too long for a socket; links are resolved, as the lock does
    name = "rdchat-" + hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=12).hexdigest()
    for place in _folders():
        if is_private(place) and len(os.fsencode(place / name)) <= _LONGEST_PATH:
            yield place / name


def _folders() -> tuple[Path, Path]:
    return host.runtime_folder(), Path(f"/tmp/rdchat-{os.getuid()}")  # noqa: S108  checked to be private


class InstanceRequest(QObject):
    """A request of another process of this user, as the running app sees it; it deletes itself when it ends.

    Args:
        socket: The connection.
        parent: The Qt parent.

    Attributes:
        asked: The request; empty until `read`.
    """

    read = Signal(object)  # itself
    left = Signal()  # the other process has disconnected

    def __init__(self, socket: QLocalSocket, parent: QObject | None) -> None:
        super().__init__(parent)
        socket.setParent(self)
        self._socket = socket
        self.asked: dict[str, Any] = {}
        self._over = False
        socket.readyRead.connect(self._take)
        socket.disconnected.connect(self._on_left)
        if socket.canReadLine():
            self._take()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a line, unless the other process has disconnected."""
        if not self._over:
            self._socket.write(line_of(message))
            self._socket.flush()

    def end(self, message: dict[str, Any]) -> None:
        """Send the last line, and close the connection when it has arrived."""
        self.tell(message)
        if not self._over:
            self._over = True
            self._socket.disconnectFromServer()
            self.deleteLater()

    def hang_up(self) -> None:
        """Close the connection without an answer."""
        self._over = True
        self._socket.abort()
        self.deleteLater()

    @Slot()
    def _take(self) -> None:
        if self.asked or self._over:
            return
        if self._socket.canReadLine():
            try:
                self.asked = _message(self._socket)
            except StorageError:
                self.hang_up()
            else:
                self.read.emit(self)
        elif self._socket.bytesAvailable() > _MOST_BYTES:
            self.hang_up()

    @Slot()
    def _on_left(self) -> None:
        if not self._over:
            self._over = True
            self.left.emit()
            self.deleteLater()


def ask_open_app(
    folder: Path, request: dict[str, Any], on_message: Callable[[dict[str, Any]], object], answer_ms: int = _ANSWER_MS
) -> dict[str, Any]:
    """Send a request to the app that has a data folder open, and return the last line of its answer.

    Args:
        folder: The data folder.
        request: The request.
        on_message: Called with every line before the last one.
        answer_ms: How long the app may take to accept the connection and to send its first line.

    Raises:
        StorageLockedError: If no app of this user answers, or it does not know the request.
        StorageError: If the answer cannot be read.
    """
    socket = QLocalSocket()
    deadline = QDeadlineTimer(answer_ms)
    if not connect(socket, folder, answer_ms):
        raise _no_answer(folder)
    socket.write(line_of(request))
    socket.flush()
    last: dict[str, Any] | None = None
    while True:
        while socket.canReadLine():
            if last is not None:
                on_message(last)
            last = _message(socket)
        if socket.bytesAvailable() >= _MOST_BYTES:
            raise bad_answer()
        if socket.state() is not QLocalSocket.LocalSocketState.ConnectedState:
            break
        socket.waitForReadyRead(_POLL_MS)
        if last is None and deadline.hasExpired():
            raise _no_answer(folder)
    if last is None or not last.keys() & {"done", "failed", "cancelled"}:
        raise StorageLockedError(f"The rdchat that is open for {folder} did not do this.", "Quit it, then try again.")
    return last


def bad_answer() -> StorageError:
    """Return the error for an answer that cannot be read."""
    return StorageError(
        "The open rdchat sent an answer that cannot be read. It may have done this or not.",
        "Check the chats in its window, quit it, then try again.",
    )


def line_of(message: dict[str, Any]) -> bytes:
    """Return the line of a message."""
    return json.dumps(message).encode() + b"\n"


def _message(socket: QLocalSocket) -> dict[str, Any]:
    try:
        message = json.loads(bytes(socket.readLine(_MOST_BYTES).data()))
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise bad_answer()
    return message


def _no_answer(folder: Path) -> StorageLockedError:
    return StorageLockedError(
        f"Another rdchat uses the chats in {folder}, but does not answer.", "Wait until it has ended, or quit it."
    )
