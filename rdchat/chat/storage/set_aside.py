"""Moves files aside that rdchat cannot use, and brings a database back that was lost. Nothing is ever overwritten."""

import os
import sqlite3
from datetime import datetime
from pathlib import Path

from rdchat.chat.conversation import Notice
from rdchat.files.file_errors import file_error


def set_aside(path: Path, label: str, companions: tuple[str, ...] = (), *, named_as: Path | None = None) -> Path:
    """Rename `path` to `STEM-LABEL-DATE-TIME.SUFFIX` in its folder.

    Args:
        path: The file.
        label: What is wrong with it, in one word, such as `damaged`.
        companions: Endings of files that belong to it, such as `-wal` for `chats.db-wal`; they move along.
        named_as: Whose stem it gets; None for its own.

    Returns:
        Where it is now.

    Raises:
        StorageError: If it cannot be renamed; everything is where it was, then.
    """
    target = _free_name(named_as or path, label, companions)
    # the file itself goes last: should the process die in between, the next start sets the rest aside too
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
        what = f"{path} is {label}, and rdchat cannot move it out of the way"
        raise file_error(error, what, "Move or rename the file yourself, then start again.") from error
    return target


def put_aside(path: Path, label: str) -> list[Path]:
    """Return the files that `set_aside` has renamed with this label, oldest first."""
    try:
        return sorted(each for each in path.parent.iterdir() if _is_named(each, path, label))
    except OSError:
        return []


def _is_named(found: Path, path: Path, label: str) -> bool:
    return found.name.startswith(f"{path.stem}-{label}-") and found.suffix == path.suffix


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
    """Return what tells the file at `path` from any other, or None where there is none: 2 µs."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def bring_back(
    connection: sqlite3.Connection, path: Path, companions: tuple[str, ...], log: tuple[int, int] | None
) -> Notice:
    """Write all that `connection` has into a new file at `path`, and close the connection.

    Args:
        connection: To the file that was at `path`.
        path: Its folder exists.
        companions: Endings of files that belong to a database, such as `-wal`.
        log: The `file_id` of the connection's own `-wal` file.

    Returns:
        What to tell the person.

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
    detail = f"{path} was deleted or moved while rdchat was open. It was written again, and nothing is lost."
    if replaced:
        detail = (
            f"{path} was replaced while rdchat was open. Your chats are there again; the other file is kept as {other}."
        )
    return Notice("The file of your chats was brought back", detail)


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
