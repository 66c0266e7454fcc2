"""One SQLite file that belongs to one process: opened, checked, migrated; its errors in words for people."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.schema import APPLICATION_ID, MIGRATIONS, migrate, schema_version
from rdchat.chat.set_aside import set_aside
from rdchat.errors import StorageError, StorageFullError, StorageLockedError
from rdchat.file_errors import file_error
from rdchat.file_lock import FileLock

_COMPANIONS = ("-wal", "-shm", "-journal")
_WAIT_FOR_OTHERS_MS = 250  # another program, such as a backup, may read or write for a moment
_ROOM_BYTES = 1 << 20  # a disk with less is full: an error of SQLite's own shared memory file does not say so

# SQLITE_ERROR is here because the statements of `_why_unusable` are right: where one fails, the file is wrong
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}


class Database:
    """A connection and the lock that goes with it. Used from the thread that opened it.

    Attributes:
        path: The file.
        notice: What became of a file that could not be used, or None.
    """

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
        """Open `path`, made if need be, and bring it to the newest version.

        A file that is damaged, of a newer version, or another program's is moved aside with what belongs to it.

        Raises:
            StorageLockedError: If another process has it.
            StorageFullError: If the disk is full.
            StorageError: If it cannot be read or written, or a file that cannot be used cannot be moved.
        """
        self.path = path
        self.notice: Notice | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            what = f"rdchat cannot make its folder {path.parent}"
            raise file_error(
                error, what, "Check the folder above it, or name another one in RDCHAT_DATA_DIR."
            ) from error
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        try:
            with self._in_words():
                self._connection = self._open(migrations)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Write everything into the one file and let other processes have it. Idempotent."""
        try:
            self._connection.close()
        finally:
            self._lock.release()

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement outside any transaction of its own and return its rows."""
        with self._in_words():
            return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing: commits at the end of the block, undoes it where anything fails."""
        with self._in_words():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _open(self, migrations: Sequence[str]) -> sqlite3.Connection:
        connection = _connect(self.path)
        try:
            reason = _why_unusable(connection, self.path, newest=len(migrations))
            if reason is not None:
                connection.close()
                kept = set_aside(self.path, reason, _COMPANIONS)
                self.notice = _notice(reason, kept)
                connection = _connect(self.path)
            _prepare(connection)
            migrate(connection, migrations)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # a mistake of ours, not a condition of the machine
            raise
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open without writing: until `_prepare`, closing leaves file and write-ahead log as they are."""
    connection = sqlite3.connect(path, timeout=_WAIT_FOR_OTHERS_MS / 1000, autocommit=True)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    # a flipped bit in a text must not make a whole chat unreadable
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, False)
    connection.execute("PRAGMA journal_mode = WAL")
    # A crash of the app loses nothing that was committed. A power loss may lose what was committed since the last
    # checkpoint (a few MB of writing), but never damages the file. Syncing at every commit would cost a disk flush
    # each half second while a reply is written.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")  # on macOS a plain fsync does not reach the disk
    connection.execute("PRAGMA foreign_keys = ON")


def _why_unusable(connection: sqlite3.Connection, path: Path, newest: int) -> str | None:
    """Return a word for why the file cannot be used, or None. Writes nothing."""
    try:
        version = schema_version(connection)
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if not ours and not (empty and version == 0):
            return "foreign"
        if version > newest:
            return "newer"
        return None if _is_whole(connection, path) and _is_sound(connection) else "damaged"
    except sqlite3.DatabaseError as error:
        if _primary_code(error) in _DAMAGE:
            return "damaged"
        raise


def _is_whole(connection: sqlite3.Connection, path: Path) -> bool:
    """Tell whether the file ends with a page: SQLite takes what is missing of the last one for zeros.

    Half a page is right where the app died in the middle of a checkpoint; the log then still has all of it.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        return True
    return bool(path.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0] == 0)


def _is_sound(connection: sqlite3.Connection) -> bool:
    """Check the pages of every table: 0.1 s for 100,000 messages.

    Not of the whole file at once: newer SQLite then reads the search index too, word by word, which takes 0.8 s.
    """
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    return all(connection.execute(f"PRAGMA quick_check('{name}')").fetchone()[0] == "ok" for (name,) in tables)


def _notice(reason: str, kept: Path) -> Notice:
    titles = {
        "damaged": "Your chats could not be read",
        "newer": "Your chats are from a newer version of rdchat",
        "foreign": "A file of another program was in the place of your chats",
    }
    causes = {
        "damaged": "The file they are stored in is damaged.",
        "newer": "This version cannot read them; the newer one still can.",
        "foreign": "rdchat did not write it and does not change it.",
    }
    return Notice(titles[reason], f"{causes[reason]} It is kept as {kept}, and rdchat started with an empty list.")


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _storage_error(error: sqlite3.Error, path: Path) -> StorageError:
    code = _primary_code(error)
    no_room = code == sqlite3.SQLITE_IOERR and shutil.disk_usage(path.parent).free < _ROOM_BYTES
    if code == sqlite3.SQLITE_FULL or no_room:
        return StorageFullError(
            f"{path} cannot grow: the disk is full.", "Free some space. What was saved before is safe."
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageLockedError(f"Another program is using {path}.", "Close that program, then try again.")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StorageError(
            f"{path} is damaged.", "Quit rdchat and start it again: it keeps the damaged file and begins a new one."
        )
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StorageError(
            f"rdchat cannot open {path} for writing.", "Check the permissions of the file and of its folder."
        )
    if code == sqlite3.SQLITE_CONSTRAINT:  # the only one that data can break: a message of a chat that is gone
        return StorageError("This chat no longer exists.", "Choose another one, or start a new chat.")
    return StorageError(f"{path} could not be read or written: {error}.", "Check the disk, then try again.")
