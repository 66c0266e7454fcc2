"""A file lock held by one process; the system releases it however the process ends."""

import fcntl
import os
from contextlib import AbstractContextManager
from pathlib import Path

from rdchat.errors import StorageLockedError, file_error, file_errors


class FileLock(AbstractContextManager["FileLock"]):
    """Holds `path`, created if necessary, until `release` or the end of a `with` block.

    The file stays: deleting it would race with the next holder.

    Args:
        path: Its folder exists.
        what: Name of the protected thing, for people.
        hint: What to do if another process holds it.

    Raises:
        StorageLockedError: If another process holds it.
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be created or locked.
    """

    def __init__(
        self, path: Path, what: str = "the chats", hint: str = "Quit rdchat first, or use its open window."
    ) -> None:
        self._path = path
        problem = f"rdchat cannot write to its folder {path.parent}"
        with file_errors(problem, "Check that the folder belongs to you and its disk is not read-only."):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise StorageLockedError(f"Another rdchat is using {what} in {path.parent}.", hint) from error
        except OSError as error:
            self.release()
            problem = f"{what.capitalize()} in {path.parent} cannot be locked"
            raise file_error(
                error, problem, "Keep rdchat's data on a disk of this machine, not on a network share."
            ) from error

    def is_current(self) -> bool:
        """Return whether `path` is still the locked file: if it was deleted, others can lock a new one."""
        try:
            return self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_error: object) -> None:
        self.release()
