"""A lock that one process holds on a file, given back by the system however the process ends."""

import fcntl
import os
from pathlib import Path

from rdchat.chat.file_errors import file_error
from rdchat.errors import StorageLockedError


class FileLock:
    """Holds `path`, made if need be, until `release`. The file stays: deleting it would race with the next holder.

    Raises:
        StorageLockedError: If another process holds it.
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be made or locked.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            what = f"rdchat cannot write to its folder {path.parent}"
            raise file_error(
                error, what, "Check that the folder belongs to you and that its disk can be written to."
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise StorageLockedError(
                f"Another rdchat is using the chats in {path.parent}.",
                "Use the window that is already open, or quit it and start again.",
            ) from error
        except OSError as error:
            self.release()
            what = f"The chats in {path.parent} cannot be locked"
            raise file_error(
                error, what, "Keep rdchat's data on a disk of this machine, not on a network share."
            ) from error

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
