"""One process per data folder: a second start asks the first to show its window."""

import hashlib
import logging
from pathlib import Path

from PySide6.QtCore import QDeadlineTimer, QObject, QThread, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from rdchat.chat.file_lock import FileLock
from rdchat.errors import StorageError, StorageLockedError

_LOG = logging.getLogger(__name__)
_ANSWER_TIMEOUT_MS = 3000
_RETRY_MS = 50


class SingleInstance(QObject):
    """Settles who is first by a file lock, which the system takes from the dead; the socket only carries the request.

    Args:
        folder: The data folder.
        parent: The Qt parent.
    """

    activation_requested = Signal()

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        # socket paths hold about 100 characters and a data folder's may be longer, so its name is a hash
        self._socket_name = "rdchat-" + hashlib.blake2b(str(folder).encode(), digest_size=12).hexdigest()
        self._lock: FileLock | None = None
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def claim(self) -> bool:
        """Become the one process of the folder.

        Returns:
            False if another process is, which was asked to show itself.

        Raises:
            StorageError: If the folder cannot be made or written to.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self._folder / "instance.lock")
        except StorageLockedError:
            self._ask_first_process()
            return False
        except OSError as error:
            raise StorageError(
                f"The folder {self._folder} cannot be made: {error.strerror}.",
                "Check that its disk can be written to, or name another folder in RDCHAT_DATA_DIR.",
            ) from error
        QLocalServer.removeServer(
            self._socket_name
        )  # a killed process leaves its socket; we hold the lock, so it is one
        if not self._server.listen(self._socket_name):
            _LOG.warning("A second start cannot reach this window: %s", self._server.errorString())
        return True

    def release(self) -> None:
        """Let another process be the first. Idempotent."""
        self._server.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _ask_first_process(self) -> None:
        """Connect to the first process, which may have its lock but not yet its socket."""
        socket = QLocalSocket()
        deadline = QDeadlineTimer(_ANSWER_TIMEOUT_MS)
        while not deadline.hasExpired():
            socket.connectToServer(self._socket_name)
            if socket.waitForConnected(_RETRY_MS):
                socket.abort()
                return
            QThread.msleep(_RETRY_MS)
        _LOG.warning("The first process holds %s but does not answer: %s", self._folder, socket.errorString())

    @Slot()
    def _on_connection(self) -> None:
        """Take any connection for the request: there is nothing else to ask."""
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.deleteLater()
            self.activation_requested.emit()
