"""One writer per repository: a lock of the system, with the process's id for file systems whose locks do nothing.

A process that died gives the system's lock back with its end; an id that it left is known for stale by the process's
start time, as ids are used again.
"""

import json
import os
from types import TracebackType
from typing import Self

import psutil

from rdchat.errors import RdchatError, StorageLockedError
from rdchat.files.atomic_file import make_folder
from rdchat.files.file_lock import FileLock
from rdchat.files.foreign_files import read_json
from rdchat.hub.cache_layout import CachedRepository

_HINT = "Wait for it, or pause it there."
_SAME_START_S = 1.0
_MOST_BYTES = 1_000  # of what stands in the lock's file


class RepositoryLock:
    """Held as a context manager, while a repository's folder in the hub's cache is written to.

    Raises:
        StorageLockedError: If another process writes to it.
        StorageError: If the folder cannot be written.
    """

    def __init__(self, repository: CachedRepository) -> None:
        self._repository = repository
        self._path = repository.work / "lock"

    def __enter__(self) -> Self:
        while True:
            make_folder(self._repository.work)
            try:
                self._lock = FileLock(self._path, f"the download of {self._repository.name}", _HINT)
            except StorageLockedError:
                self._refuse(self._holder())  # in words that say who
                raise
            if self._lock.is_in_place():
                break
            self._lock.release()  # its last holder removed the folder
        holder = self._holder()
        if holder is not None:
            self._lock.release()
            self._refuse(holder)
        own = psutil.Process()
        self._path.write_text(json.dumps({"pid": own.pid, "started": own.create_time()}), encoding="ascii")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.empty()  # wherever it is now: the trash gives it back with the folder
        self._lock.release()

    def _refuse(self, holder: int | None) -> None:
        if holder is not None:
            raise StorageLockedError(f"Process {holder} is downloading {self._repository.name}.", _HINT)

    def _holder(self) -> int | None:
        """Return the id of a living process that wrote itself down here; None where there is none."""
        try:
            noted = read_json(self._path, most=_MOST_BYTES)
            pid, started = int(noted["pid"]), float(noted["started"])
            lives = abs(psutil.Process(pid).create_time() - started) < _SAME_START_S
        except (RdchatError, OSError, ValueError, KeyError, TypeError, OverflowError, psutil.Error):
            return None
        return pid if lives and pid != os.getpid() else None
