"""Connections to the store beside the one of the app: to read it at any time, to write where the app has asked."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rdchat.chat.storage.file_check import has_schema, is_special, refuse_surprises, trust
from rdchat.chat.storage.schema import APPLICATION_ID, MIGRATIONS, schema_version
from rdchat.errors import StorageError

_WAIT_S = 30.0  # the app commits for a moment twice a second
_OPEN_ONCE = "Open the app once, then try again."


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection that writes nothing, whether the app is open or not.

    Raises:
        StorageError: If there are no chats of this version, or they cannot be read.
    """
    if not path.exists():
        raise StorageError(f"There are no chats in {path.parent} yet.", "Open the app to begin one.")
    if is_special(path):
        raise _none(path)
    with _address_to_read(path) as address, _connection(address, path) as connection:
        yield connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection that writes beside the process that holds the store, on its behalf.

    Raises:
        StorageError: If the file is not of this version, or cannot be written.
    """
    with _connection(f"{path.absolute().as_uri()}?mode=rw", path) as connection:
        trust(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


@contextmanager
def _address_to_read(path: Path) -> Iterator[str]:
    """Give the address by which SQLite reads the store, also where it can make no file beside it for its log."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    log, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
    if os.access(path.parent, os.W_OK) or index.exists():
        yield address
    elif not log.exists() or not log.stat().st_size:
        yield f"{address}&immutable=1"
    else:  # the newest of it is in the log, which SQLite does not read without its index
        with tempfile.TemporaryDirectory(prefix="rdchat-") as folder:
            for each in (path, log):
                shutil.copyfile(each, Path(folder) / each.name)
            yield f"{(Path(folder) / path.name).as_uri()}?mode=ro"


@contextmanager
def _connection(address: str, path: Path) -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S, autocommit=True)
        try:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            refuse_surprises(connection)
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise _none(path)
            # tables of another version could run anything
            if schema_version(connection) != len(MIGRATIONS) or not has_schema(connection, MIGRATIONS):
                raise StorageError(f"The chats in {path} are damaged, or of another version.", _OPEN_ONCE)
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        what = f"The chats in {path} cannot be read or written: {error}."
        raise StorageError(what, "Check the disk, then try again.") from error


def _none(path: Path) -> StorageError:
    return StorageError(f"{path} holds no chats of rdchat.", _OPEN_ONCE)
