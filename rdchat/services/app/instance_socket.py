"""The socket of the open app, which only this user's processes can use."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from PySide6.QtNetwork import QLocalSocket

from rdchat import host
from rdchat.errors import StorageError
from rdchat.files.privacy import is_private, private_folder

_MOST_BYTES = 103  # of a socket's path on macOS; Linux has a few more


def place_to_listen(folder: Path) -> Path:
    """Return the path of the socket of a data folder's app, in a folder that no other user can enter.

    Raises:
        StorageError: If there is no such folder.
    """
    shared = _folders()[-1]
    with suppress(OSError, StorageError):
        private_folder(shared)
    for path in _private_paths(folder):
        return path
    raise StorageError(f"{shared} belongs to another user, or cannot be made.", "Delete it, or set XDG_RUNTIME_DIR.")


def connect(socket: QLocalSocket, folder: Path, wait_ms: int) -> bool:
    """Connect to the app of a data folder; False if there is none, or another user's process is in its place."""
    for path in _private_paths(folder):
        socket.connectToServer(str(path))
        if socket.waitForConnected(wait_ms):
            if is_own(socket):
                return True
            socket.abort()
    return False


def is_own(socket: QLocalSocket) -> bool:
    """Tell whether the process at the other end of a connection is this user's."""
    return host.peer_user(socket.socketDescriptor()) == os.geteuid()


def _private_paths(folder: Path) -> Iterator[Path]:
    """Yield where the app of a data folder may listen: not all its starts and commands have the same environment."""
    # a data folder's path may be too long for a socket, so its name is a hash; links are followed, as by the lock
    name = "rdchat-" + hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=12).hexdigest()
    for place in _folders():
        if is_private(place) and len(os.fsencode(place / name)) <= _MOST_BYTES:
            yield place / name


def _folders() -> tuple[Path, Path]:
    return host.runtime_folder(), Path(f"/tmp/rdchat-{os.getuid()}")  # noqa: S108  checked to be private
