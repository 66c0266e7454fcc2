"""A database file that was deleted or replaced while it is open: what the connection still has goes back to its place.

SQLite goes on reading and writing such a file by its descriptor. At exit the system would free it with all of it.
"""

import os
import sqlite3
from pathlib import Path

from rdchat.chat.storage.set_aside import set_aside


def file_id(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at `path` from any other, or None where there is none: 2 µs."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def bring_back(
    connection: sqlite3.Connection, path: Path, companions: tuple[str, ...], log: tuple[int, int] | None
) -> Path | None:
    """Write all that `connection` has into a new file at `path`, and close the connection.

    Args:
        connection: To the file that was at `path`.
        path: Its folder exists.
        companions: Endings of files that belong to a database, such as `-wal`.
        log: The `file_id` of the connection's own `-wal` file.

    Returns:
        Where a file is kept now that had taken the place of ours; None where there was none.

    Raises:
        sqlite3.Error, OSError: If the new file cannot be written. The connection goes on working, then.
        StorageError: If the other file cannot be moved; likewise.
    """
    copy = path.with_name(f"{path.stem}-brought-back{path.suffix}")
    try:
        copy.unlink(missing_ok=True)
        _copy(connection, copy)
        # our own log is in the copy, and SQLite would replay it into any file that stands at its name
        wal = path.with_name(path.name + "-wal")
        if file_id(wal) == log:
            wal.unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        replaced = path.exists()
        other = set_aside(path, "replaced", companions)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    connection.close()  # SQLite sees that its file has moved, and touches nothing at the old names
    copy.replace(path)
    return other if replaced else None


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    new = sqlite3.connect(target, autocommit=True)
    try:
        connection.backup(new)
    finally:
        new.close()
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
