"""Allows one app per data folder; a second start sends its request to the first one, over a local socket."""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from PySide6.QtCore import QDeadlineTimer, QObject, QThread, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from rdchat import host
from rdchat.errors import StorageError, StorageLockedError, file_errors
from rdchat.files import FileLock, is_private, private_folder
from rdchat.services.app.start_request import JUST_SHOW, MAX_LINE_BYTES, StartRequest, request_of_line

_LOG = logging.getLogger(__name__)
# The first process has this time to answer: its start on a slow machine takes seconds, and so does closing its window.
_ANSWER_TIMEOUT_MS = 10_000
_RETRY_MS = 50

# The limit of a socket's path on macOS; Linux allows a few more.
_MAX_PATH_BYTES = 103


class SingleInstance(QObject):
    """Holds the file lock of a data folder, which the system releases if the process dies, and listens on the socket.

    Args:
        folder: The data folder.

    Attributes:
        requested: Emitted with the `StartRequest` of a second start.
    """

    requested = Signal(StartRequest)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._lock: FileLock | None = None
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def claim(self, request: StartRequest = JUST_SHOW) -> bool:
        """Take the lock of the folder, or send a request to the process that has it.

        Returns:
            False if another process has it; that process has taken the request.

        Raises:
            StorageError: If the folder cannot be created or written, or the first process does not answer.
            InvalidSettingError: If the request is too long to be sent.
        """
        try:
            with file_errors(
                f"The folder {self._folder} cannot be created",
                "Check that its disk is writable, or set RDCHAT_DATA_DIR to another folder.",
            ):
                self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self._folder / "instance.lock")
        except StorageLockedError as error:
            if self._ask_first_process(request.line()):
                return False
            _LOG.warning("The first process holds %s but does not answer", self._folder)
            raise StorageLockedError(
                f"rdchat is open already for {self._folder}, but does not answer.",
                "Wait until it has quit, or quit it, then start again.",
            ) from error
        try:
            self._listen()
        except StorageError as error:
            _LOG.warning("A second start cannot reach this window: %s", error)
        return True

    def release_lock(self) -> None:
        """Release the lock. Idempotent."""
        self._server.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _listen(self) -> None:
        """Listen for second starts; raises StorageError if that is impossible."""
        name = str(listening_path(self._folder))
        # A socket that is there was left by a killed process, since this one holds the lock.
        QLocalServer.removeServer(name)
        if not self._server.listen(name):
            raise StorageError(self._server.errorString())

    def _ask_first_process(self, line: bytes) -> bool:
        """Send a line to the first process; return whether it took it. It may not listen yet."""
        socket = QLocalSocket()
        deadline = QDeadlineTimer(_ANSWER_TIMEOUT_MS)
        while not deadline.hasExpired():
            if connect(socket, self._folder, _RETRY_MS):
                socket.write(line)
                socket.flush()
                # The system accepts connections for a process that hangs; only a live one closes them.
                closed = socket.state() is QLocalSocket.LocalSocketState.UnconnectedState
                return closed or socket.waitForDisconnected(max(deadline.remainingTime(), 1))
            QThread.msleep(_RETRY_MS)
        return False

    @Slot()
    def _on_connection(self) -> None:
        """Wait for the line of each second start that has connected; drop connections of other users."""
        while (socket := self._server.nextPendingConnection()) is not None:
            if not is_own(socket):
                _LOG.warning("A process of another user connected to this window, and was disconnected")
                socket.abort()
                socket.deleteLater()
                continue
            socket.setReadBufferSize(MAX_LINE_BYTES)
            socket.readyRead.connect(partial(self._read, socket))
            socket.disconnected.connect(socket.deleteLater)
            # The line may have come with the connection.
            self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        """Take the request of a second start, and hang up: that is the answer.

        Until its line is complete, this waits for more, unless the line is too long; then it only hangs up.
        """
        if not socket.canReadLine() and socket.bytesAvailable() < MAX_LINE_BYTES:
            return
        request = request_of_line(bytes(socket.readLine(MAX_LINE_BYTES + 1).data()))
        socket.abort()
        socket.deleteLater()
        if request is not None:
            self.requested.emit(request)


def listening_path(folder: Path) -> Path:
    """Return the path of the socket for a data folder, in a folder that no other user can enter.

    This is the system's runtime folder, or else the one in /tmp, which is made first.

    Raises:
        StorageError: If there is no such folder.
    """
    shared = _socket_folders()[-1]
    with suppress(OSError, StorageError):
        private_folder(shared)
    for path in _private_paths(folder):
        return path
    raise StorageError(f"{shared} belongs to another user or cannot be created.", "Delete it, or set XDG_RUNTIME_DIR.")


def connect(socket: QLocalSocket, folder: Path, timeout_ms: int) -> bool:
    """Connect to the app of a data folder; return False if none of this user runs."""
    for path in _private_paths(folder):
        socket.connectToServer(str(path))
        if socket.waitForConnected(timeout_ms):
            if is_own(socket):
                return True
            socket.abort()
    return False


def is_own(socket: QLocalSocket) -> bool:
    """Return whether the process at the other end of a connection belongs to this user."""
    return host.peer_user(socket.socketDescriptor()) == os.geteuid()


def _private_paths(folder: Path) -> Iterator[Path]:
    """Yield the paths where the app of a data folder may listen, the one to listen on first.

    A second start tries all: its environment may name another runtime folder than that of the first one.
    """
    # A hash is used, since the path may be too long for a socket; links are resolved, as for the lock.
    name = "rdchat-" + hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=12).hexdigest()
    for parent in _socket_folders():
        if is_private(parent) and len(os.fsencode(parent / name)) <= _MAX_PATH_BYTES:
            yield parent / name


def _socket_folders() -> tuple[Path, Path]:
    return host.runtime_folder(), Path(f"/tmp/rdchat-{os.getuid()}")  # noqa: S108  checked to be private
