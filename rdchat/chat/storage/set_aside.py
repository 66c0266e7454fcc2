"""Moves unusable files aside, and restores a database that was lost. Nothing is ever overwritten."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from rdchat.chat.conversation import Notice
from rdchat.errors import file_error
from rdchat.host import flush_to_disk

COMPANIONS = ("-wal", "-shm", "-journal")
"""Endings of a database's companion files."""
_PAGES = 2000  # of a database, copied before the next check for cancelling


def set_aside(path: Path, label: str, companions: tuple[str, ...] = ()) -> Path:
    """Rename `path` to `STEM-LABEL-DATE-TIME.SUFFIX` in its folder.

    Args:
        path: The file.
        label: What is wrong with it, in one word, such as `damaged`.
        companions: Endings of its companion files, such as `-wal` for `chats.db-wal`; they are moved too.

    Returns:
        Its new path.

    Raises:
        StorageError: If it cannot be renamed; then nothing was moved.
    """
    target = _free_name(path, label, companions)
    # the file itself comes last: if the process dies in between, the next start moves the rest
    moves = [(_with_ending(path, ending), _with_ending(target, ending)) for ending in (*companions, "")]
    done: list[tuple[Path, Path]] = []
    try:
        for source, destination in moves:
            if source.exists():
                source.rename(destination)
                done.append((source, destination))
    except OSError as error:
        for source, destination in done:
            destination.rename(source)
        what = f"{path} is {label}, and rdchat cannot move it"
        raise file_error(error, what, "Move or rename the file yourself, then start again.") from error
    return target


def _free_name(path: Path, label: str, companions: tuple[str, ...]) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    number = 1
    while True:
        again = f"-{number}" if number > 1 else ""
        target = path.with_name(f"{path.stem}-{label}-{stamp}{again}{path.suffix}")
        if not any(_with_ending(target, ending).exists() for ending in (*companions, "")):
            return target
        number += 1


def _with_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def file_id(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at `path`, or None if there is none; takes 2 µs."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def restore_file(connection: sqlite3.Connection, path: Path, log: tuple[int, int] | None) -> Notice:
    """Write all data of `connection` to a new file at `path`, and close the connection.

    Args:
        connection: Connection to the file that was at `path`.
        path: Its folder exists.
        log: The `file_id` of the connection's own `-wal` file.

    Returns:
        A notice for the person.

    Raises:
        sqlite3.Error, OSError: If the new file cannot be written. Then the connection still works.
        StorageError: If the other file cannot be moved. Then the connection still works.
    """
    copy = path.with_name(f"{path.stem}-brought-back{path.suffix}")
    try:
        copy.unlink(missing_ok=True)
        copy_database(connection, copy)
        flush_to_disk(copy)
        # the copy contains our own log, and SQLite would replay it into any file at its path
        wal = path.with_name(path.name + "-wal")
        if file_id(wal) == log:
            wal.unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        replaced = path.exists()
        other = set_aside(path, "replaced", COMPANIONS)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    connection.close()  # SQLite sees that its file was moved, and leaves files at the old paths alone
    copy.replace(path)
    detail = f"{path} was deleted or moved while rdchat was open. rdchat wrote it again, and nothing is lost."
    if replaced:
        detail = (
            f"{path} was replaced while rdchat was open. Your chats were restored; the other file was kept as {other}."
        )
    return Notice("The file of your chats was restored", detail)


def copy_database(
    connection: sqlite3.Connection, path: Path, report: Callable[[float], object] = lambda _share: None
) -> None:
    """Copy a database as it is at one moment; `tell` gets the share copied, and an exception from it ends the copy."""

    def step(_status: int, remaining: int, total: int) -> None:
        report(1 - remaining / max(total, 1))

    with closing(sqlite3.connect(path, autocommit=True)) as target:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # later writes by others are not copied
        try:
            connection.backup(target, pages=_PAGES, progress=step, sleep=0)
        finally:
            connection.execute("ROLLBACK")
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
