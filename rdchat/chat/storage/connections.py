"""Opens SQLite connections to the store, and turns SQLite's errors into messages for the person.

`open_to_write` is for the writer's thread, `open_reader` for the other threads of the process that has the store open,
and `reading` for commands in the terminal, while the app is open or not.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.file_check import (
    APPLICATION_ID,
    COMPANIONS,
    LONGEST_VALUE,
    MIGRATIONS,
    harden,
    has_schema,
    is_special,
    migrate,
    primary_code,
    schema_version,
    trust,
    why_unusable,
)
from rdchat.chat.storage.search_text import index_text
from rdchat.errors import StorageError, StorageFullError, StorageLockedError, file_error
from rdchat.files import companion, set_aside

type Rows = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with its parameters and returns all rows."""

# SQLite takes its own limit of lengths where that is lower.
_ANY_LENGTH = 2**31 - 1
# Another program, such as a backup, may lock the file briefly.
_BUSY_S = 0.25
# A command in the terminal may lock the file for longer.
_APP_BUSY_S = 5.0
# A disk with less than this is full; SQLite's error about its shared memory file does not say so.
_ROOM_BYTES = 1 << 20
_CHECK_FOLDER = "Check the permissions of its folder."
_OPEN_ONCE = "Open the app once, then try again."
_DAMAGED = "{path} is damaged.", "Quit rdchat and start it again: it keeps the damaged file and starts a new one."
_UNWRITABLE = "rdchat cannot open {path} for writing.", "Check the permissions of the file and its folder."
# A message and a hint for each of SQLite's error codes.
_MESSAGES = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
    # Data can violate only one constraint: a message needs its chat.
    sqlite3.SQLITE_CONSTRAINT: ("This chat no longer exists.", "Choose another one, or start a new chat."),
    sqlite3.SQLITE_TOOBIG: (
        f"{{path}} has a text that is too long: rdchat reads up to {LONGEST_VALUE >> 20} MB.",
        "Open another chat.",
    ),
}


def open_to_write(path: Path, *, in_memory: bool) -> tuple[sqlite3.Connection, Notice | None]:
    """Open a store for the writer's thread, and migrate it to the newest version.

    A damaged file is moved aside with its companions; then a new one is started, and the notice says so. A store in
    memory has no file: `path` is its name, which all connections of this process share.

    Raises:
        StorageError: If the file is of another program or of a later version, which is left as it is.
    """
    notice = None
    if is_special(path):
        raise _not_ours(path, "foreign")
    connection = connect(path, in_memory=in_memory)
    try:
        if not in_memory and (reason := why_unusable(connection, path)) is not None:
            connection.close()
            if reason != "damaged":
                raise _not_ours(path, reason)
            notice = Notice(
                "Your chats could not be read",
                f"Their file is damaged. It was kept as {set_aside(path, 'damaged', COMPANIONS)}, and rdchat started"
                " with an empty list.",
            )
            connection = connect(path)
        make_writable(connection)
        with any_length(connection):
            migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection, notice


@contextmanager
def any_length(connection: sqlite3.Connection) -> Iterator[None]:
    """Let migrations and the making of the index work with a text that is too long to be read elsewhere."""
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _ANY_LENGTH)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)


def _not_ours(path: Path, reason: str) -> StorageError:
    """Return the error about a file that `why_unusable` calls foreign or newer."""
    if reason == "newer":
        return StorageError(f"The chats in {path} are from a later version of rdchat.", "Install that version again.")
    return StorageError(f"{path} was not written by this rdchat.", "Move it to another folder, then start again.")


def connect(path: Path, *, in_memory: bool = False) -> sqlite3.Connection:
    """Open a file without writing: until `make_writable`, closing leaves the file and its log unchanged."""
    if in_memory:
        connection = _connect_in_memory(f"{path.absolute().as_uri()}?vfs=memdb")
    else:
        connection = sqlite3.connect(path, timeout=_BUSY_S, autocommit=True)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    _make_safe(connection)
    return connection


def make_writable(connection: sqlite3.Connection) -> None:
    """Prepare the connection to a checked file for the writer's thread."""
    trust(connection)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, False)
    # A store in memory keeps its journal there.
    connection.execute("PRAGMA journal_mode = WAL")
    # A crash of the app loses nothing that was committed. A power loss may lose commits since the last checkpoint (a
    # few MB of writing), but never damages the file. Syncing at every commit would cost a disk flush each half second
    # while a reply is written.
    connection.execute("PRAGMA synchronous = NORMAL")
    # On macOS a plain fsync does not reach the disk.
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    # Some systems' SQLite leaves deleted texts in free pages.
    connection.execute("PRAGMA secure_delete = ON")


def open_reader(path: Path, *, in_memory: bool) -> sqlite3.Connection:
    """Open a read-only connection to a store that this process has open and checked; takes under a millisecond."""
    address = _read_only(path)
    if in_memory:
        connection = _connect_in_memory(f"{address}&vfs=memdb")
    else:
        connection = sqlite3.connect(address, uri=True, timeout=_BUSY_S, autocommit=True, check_same_thread=False)
    _make_safe(connection)
    trust(connection)
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a read-only connection to a store, whether the app is open or not; the schema is checked first.

    Raises:
        StorageError: If there are no chats, or they are of another version or cannot be read.
    """
    if not path.exists():
        raise StorageError(f"There are no chats in {path.parent} yet.", "Open the app to start one.")
    if is_special(path):
        raise _no_chats(path)
    try:
        with (
            _readable_address(path) as address,
            closing(sqlite3.connect(address, uri=True, timeout=_APP_BUSY_S, autocommit=True)) as connection,
        ):
            _make_safe(connection)
            _check_schema(connection, path)
            trust(connection)
            yield connection
    except sqlite3.Error as error:
        raise StorageError(f"The chats in {path} cannot be read: {error}.", "Close the app and try again.") from error


def rows_of(connection: sqlite3.Connection) -> Rows:
    """Return the function that runs statements on a connection."""
    return lambda sql, *parameters: connection.execute(sql, parameters).fetchall()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system about a store's file into StorageErrors."""
    try:
        yield
    except sqlite3.ProgrammingError:
        # This is a bug of rdchat, not a problem of the machine.
        raise
    except sqlite3.Error as error:
        raise _storage_error(error, path) from error
    except OSError as error:
        raise file_error(error, f"{path} is gone and cannot be written again", _CHECK_FOLDER) from error


def _storage_error(error: sqlite3.Error, path: Path) -> StorageError:
    """Return the error for people about one of SQLite."""
    code = primary_code(error)
    folder = path.parent
    if code == sqlite3.SQLITE_FULL or (
        code == sqlite3.SQLITE_IOERR and folder.exists() and shutil.disk_usage(folder).free < _ROOM_BYTES
    ):
        return StorageFullError(
            f"{path} cannot grow: the disk is full.", "Free some space. What was saved before is safe."
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageLockedError(f"Another program is using {path}.", "Close that program, then try again.")
    other = "{path} could not be read or written: {error}.", "Check the disk, then try again."
    message, hint = _MESSAGES.get(code, other)
    return StorageError(message.format(path=path, error=error), hint)


def _make_safe(connection: sqlite3.Connection) -> None:
    """Prepare any connection for a file that may be damaged or made by hand; writes nothing.

    The triggers of its schema may not run until the schema is checked and `trust` is called.
    """
    # A flipped bit in a text must not make a whole chat unreadable.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    add_functions(connection)
    harden(connection)


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the function that the schema's triggers and views call; it gets the bytes of a text, or None."""
    connection.create_function(
        "search_text", 1, lambda data: index_text((data or b"").decode("utf-8", "replace")), deterministic=True
    )


def _connect_in_memory(address: str) -> sqlite3.Connection:
    """Open a database that all connections of this process to this address share, and that is on no disk."""
    # Readers wait for the writer, since a database in memory has no log.
    connection = sqlite3.connect(address, uri=True, timeout=_APP_BUSY_S, autocommit=True, check_same_thread=False)
    # A large sort would write to a temporary file.
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _read_only(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro"


@contextmanager
def _readable_address(path: Path) -> Iterator[str]:
    """Yield the address by which SQLite can read a store, also in a folder without write permission.

    SQLite needs an index (`-shm`) beside the file, and makes it where it may write, or where it is there already. Else
    the file alone is read if its log (`-wal`) is empty. Else both are copied to a folder where SQLite may write.
    """
    log, index = (companion(path, ending) for ending in ("-wal", "-shm"))
    if os.access(path.parent, os.W_OK) or index.exists():
        yield _read_only(path)
    elif not log.exists() or not log.stat().st_size:
        yield f"{_read_only(path)}&immutable=1"
    else:
        # The newest chats are in the log.
        with tempfile.TemporaryDirectory(prefix="rdchat-") as folder:
            for each in (path, log):
                shutil.copyfile(each, Path(folder) / each.name)
            yield _read_only(Path(folder) / path.name)


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse tables that rdchat did not make: reading them could run code."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise _no_chats(path)
    if schema_version(connection) != len(MIGRATIONS) or not has_schema(connection, MIGRATIONS):
        raise StorageError(f"The stored chats in {path} are damaged, or of another version.", _OPEN_ONCE)


def _no_chats(path: Path) -> StorageError:
    return StorageError(f"{path} has no chats of rdchat.", _OPEN_ONCE)
