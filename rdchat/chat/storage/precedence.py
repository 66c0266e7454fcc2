"""Who writes to the store first: the window, before a process that writes much on its behalf.

SQLite has who waits look again every 50 ms, and a busy process has its next transaction by then. So the window locks a
file while it wants to write, and the process waits for that file before each transaction.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def precedence_path(database: Path) -> Path:
    """Return the file that goes with a database."""
    return database.with_name(database.name + ".turn")


class Precedence:
    """One side of it; nobody is held up where the file cannot be locked.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Path) -> None:
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open(precedence_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Have the other side begin no transaction inside: 5 µs."""
        locked = self._lock(fcntl.LOCK_EX)  # the other side never holds it for longer than `wait` takes
        try:
            yield
        finally:
            if locked:
                self._lock(fcntl.LOCK_UN)

    def wait(self) -> None:
        """Wait until nobody is inside `wanted`."""
        if self._lock(fcntl.LOCK_SH):
            self._lock(fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, kind: int) -> bool:
        if self._descriptor is not None:
            with suppress(OSError):
                fcntl.flock(self._descriptor, kind)
                return True
        return False
