"""The path of the running app's local socket, which only processes of the same user can use."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from PySide6.QtNetwork import QLocalSocket

from rdchat import host
from rdchat.errors import StorageError
from rdchat.files.privacy import is_private, private_folder

_MAX_PATH_BYTES = 103  # macOS; Linux allows a few more


def listening_path(folder: Path) -> Path:
    """Return the path of the socket for a data folder, in a folder that no other user can enter.

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
    """Yield the paths where the app of a data folder may listen; the environments of two starts may differ."""
    # a hash, since a data folder's path may be too long for a socket; links are resolved, as the lock does
    name = "rdchat-" + hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=12).hexdigest()
    for parent in _socket_folders():
        if is_private(parent) and len(os.fsencode(parent / name)) <= _MAX_PATH_BYTES:
            yield parent / name


def _socket_folders() -> tuple[Path, Path]:
    return host.runtime_folder(), Path(f"/tmp/rdchat-{os.getuid()}")  # noqa: S108  checked to be private
