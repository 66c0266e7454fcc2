"""One SQLite file that belongs to one process: opened, checked, migrated; its errors in words for people."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.file_check import (
    LONGEST_VALUE,
    is_special,
    primary_code,
    refuse_surprises,
    trust,
    why_unusable,
)
from rdchat.chat.storage.lost_file import bring_back, file_id
from rdchat.chat.storage.precedence import Precedence, precedence_path
from rdchat.chat.storage.schema import MIGRATIONS, migrate
from rdchat.chat.storage.set_aside import set_aside
from rdchat.errors import StorageError, StorageFullError, StorageLockedError
from rdchat.files.file_errors import file_error
from rdchat.files.file_lock import FileLock

COMPANIONS = ("-wal", "-shm", "-journal")
_CHECK_FOLDER = "Check the permissions of its folder."
_WAIT_FOR_OTHERS_MS = 250  # another program, such as a backup, may read or write for a moment
_SQLITES_OWN = 2**31 - 1  # SQLite takes less where it was built for that
_LOG_PAGES = 1000  # SQLite's own limit, at which a commit writes the log back
_WAIT_FOR_OURS_MS = 2000  # a process of ours writes for some 20 ms, but a busy machine may stop it in the midst
_ROOM_BYTES = 1 << 20  # a disk with less is full: an error of SQLite's own shared memory file does not say so


_DAMAGED = "{path} is damaged.", "Quit rdchat and start it again: it keeps the damaged file and begins a new one."
_CLOSED = "rdchat cannot open {path} for writing.", "Check the permissions of the file and of its folder."
_WORDS = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _CLOSED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
    # the only one that data can break: a message of a chat that is gone
    sqlite3.SQLITE_CONSTRAINT: ("This chat no longer exists.", "Choose another one, or start a new chat."),
    sqlite3.SQLITE_TOOBIG: (
        f"{{path}} has a text longer than the {LONGEST_VALUE >> 20} MB that rdchat reads.",
        "Open another chat.",
    ),
}  # message and hint for SQLite's codes


class Database:
    """A connection and the lock that goes with it. Used from the thread that opened it.

    Attributes:
        path: The file.
        notice: What became of a file that could not be used, or None.
        on_notice: Called with what the person should know of the file while it is in use.
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
        self.on_notice: Callable[[Notice], object] = lambda _notice: None
        self._precedence: Precedence | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            what = f"rdchat cannot make its folder {path.parent}"
            raise file_error(
                error, what, "Check the folder above it, or name another one in RDCHAT_DATA_DIR."
            ) from error
        self._closed = False
        self._lock = FileLock(self._lock_path)
        try:
            with self._in_words():
                self._connection = self._open(migrations)
            self._file, self._log = file_id(path), file_id(self._log_path)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Write everything into the one file and let other processes have it. Idempotent.

        Raises:
            StorageError: If the file was deleted and cannot be brought back.
        """
        if self._closed:
            return
        try:
            with self._in_words():
                self._keep_file()
        finally:
            self.unshare()
            self._closed = True
            self._connection.close()
            self._lock.release()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement outside any transaction of its own and return its rows."""
        with self._in_words():
            return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing: commits at the end of the block, undoes it where anything fails."""
        with self._in_words(), self._precedence.wanted() if self._precedence else nullcontext():
            self._keep_file()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def rebuild_search(self) -> None:
        """Make the search index anew from the chats: some seconds for 100,000 messages."""
        with self.writing() as connection:
            for index in ("titles_index", "messages_index", "files_index", "summaries_index"):
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")

    def share(self) -> None:
        """Go before a process that writes on this one's behalf, until `unshare`."""
        if self._precedence is None:
            self._precedence = Precedence(self.path)
            self._wait_for_others(_WAIT_FOR_OURS_MS)
            with self._in_words():  # the process does that: writing its log back took this one two seconds
                self._connection.execute("PRAGMA wal_autocheckpoint = 0")

    def unshare(self) -> None:
        """End `share`. Idempotent."""
        if self._precedence is not None:
            self._precedence.close()
            precedence_path(self.path).unlink(missing_ok=True)
            self._precedence = None
            self._wait_for_others(_WAIT_FOR_OTHERS_MS)
            with self._in_words():
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")

    def _wait_for_others(self, limit_ms: int) -> None:
        with self._in_words():
            self._connection.execute(f"PRAGMA busy_timeout = {limit_ms}")

    def replace(self, replace: Callable[[], None]) -> None:
        """Close the file, have `replace` put another one in its place, and go on with what is there then.

        What `replace` puts there was opened by this version before: it is not checked again. The lock is kept.
        """
        with self._in_words():
            self._keep_file()
            self._connection.close()
            try:
                replace()
            finally:
                self._connection = _connect(self.path)
                _prepare(self._connection)
                self._file, self._log = file_id(self.path), file_id(self._log_path)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    @property
    def _log_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _open(self, migrations: Sequence[str]) -> sqlite3.Connection:
        if is_special(self.path):
            self._set_aside("foreign")
        connection = _connect(self.path)
        try:
            reason = why_unusable(connection, self.path, migrations)
            if reason is not None:
                connection.close()
                self._set_aside(reason)
                connection = _connect(self.path)
            _prepare(connection)
            longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITES_OWN)
            migrate(connection, migrations)  # also where a text is too long for all that reads it
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, reason: str) -> None:
        self.notice = _notice(reason, set_aside(self.path, reason, COMPANIONS))

    def _keep_file(self) -> None:
        """Bring the file back if it was deleted or replaced: SQLite would go on writing into what nobody can open."""
        if self._closed:
            return  # SQLite says so itself
        if file_id(self.path) == self._file:
            self._log = file_id(self._log_path)
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.is_in_place():
            self._lock, lost = FileLock(self._lock_path), self._lock
            lost.release()
        other = bring_back(self._connection, self.path, COMPANIONS, self._log)
        self._connection = _connect(self.path)
        _prepare(self._connection)
        self._file, self._log = file_id(self.path), file_id(self._log_path)
        self.on_notice(_back_notice(self.path, other))

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # a mistake of ours, not a condition of the machine
            raise
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error
        except OSError as error:
            raise file_error(error, f"{self.path} is gone and cannot be written again", _CHECK_FOLDER) from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open without writing: until `_prepare`, closing leaves file and write-ahead log as they are."""
    connection = sqlite3.connect(path, timeout=_WAIT_FOR_OTHERS_MS / 1000, autocommit=True)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    # a flipped bit in a text must not make a whole chat unreadable
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    refuse_surprises(connection)
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    trust(connection)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, False)
    connection.execute("PRAGMA journal_mode = WAL")
    # A crash of the app loses nothing that was committed. A power loss may lose what was committed since the last
    # checkpoint (a few MB of writing), but never damages the file. Syncing at every commit would cost a disk flush
    # each half second while a reply is written.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")  # on macOS a plain fsync does not reach the disk
    connection.execute("PRAGMA foreign_keys = ON")


def _notice(reason: str, kept: Path) -> Notice:
    titles = {
        "damaged": "Your chats could not be read",
        "newer": "Your chats are from a newer version of rdchat",
        "foreign": "A file of another program was in the place of your chats",
    }
    causes = {
        "damaged": "The file they are stored in is damaged.",
        "newer": "This version cannot read them; the newer one offers to bring them back.",
        "foreign": "rdchat did not write it and does not change it.",
    }
    return Notice(titles[reason], f"{causes[reason]} It is kept as {kept}, and rdchat started with an empty list.")


def _back_notice(path: Path, other: Path | None) -> Notice:
    detail = f"{path} was deleted or moved while rdchat was open. It was written again, and nothing is lost."
    if other is not None:
        detail = (
            f"{path} was replaced while rdchat was open. Your chats are there again; the other file is kept as {other}."
        )
    return Notice("The file of your chats was brought back", detail)


def _storage_error(error: sqlite3.Error, path: Path) -> StorageError:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _has_no_room(path.parent)):
        return StorageFullError(
            f"{path} cannot grow: the disk is full.", "Free some space. What was saved before is safe."
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageLockedError(f"Another program is using {path}.", "Close that program, then try again.")
    other = "{path} could not be read or written: {error}.", "Check the disk, then try again."
    message, hint = _WORDS.get(code, other)
    return StorageError(message.format(path=path, error=error), hint)


def _has_no_room(folder: Path) -> bool:
    return folder.exists() and shutil.disk_usage(folder).free < _ROOM_BYTES
