"""The SQLite file of the chats: one thread writes to it, the window's thread reads it through its own connection."""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.connections import (
    COMPANIONS,
    connect,
    errors_in_words,
    make_writable,
    open_reader,
    open_to_write,
)
from rdchat.chat.storage.schema import MIGRATIONS
from rdchat.chat.storage.set_aside import bring_back, file_id
from rdchat.errors import RdchatError, StorageError, StorageFullError, StorageLockedError
from rdchat.files.file_errors import file_error
from rdchat.files.file_lock import FileLock
from rdchat.work.job import Job
from rdchat.work.serial_thread import SerialThread, outcome_of

_LONGEST_TURN_S = 0.05  # of bulk work, between two looks at whether a command waits


class Database:
    """The file, its lock, the thread that writes, and the connection of the thread that opened it, which reads.

    Commands run on the writer's thread in the order in which they were given, each in a transaction of its own. Bulk
    work takes turns with them: a command waits for one step of bulk work and a commit.

    Args:
        path: Made if need be, and brought to the newest version. A file that is damaged, of a newer version, or another
            program's is moved aside with what belongs to it.
        migrations: Those that this version knows.
        tidy: Called with the writer's connection before anything is read; returns what to tell the person.
        mend: Called before `tidy` is tried again, where it fails for more than want of room.
        wait: Whether to wait until it is open; otherwise `wait` does, and so does what reads.

    Attributes:
        notice: What became of a file that could not be used, or None.
        on_notice: Called on the opening thread with what the person should know of the file while it is in use.
        connection: The writer's, for bulk work on its thread.

    Raises:
        StorageLockedError: If another process has it.
        StorageFullError: If the disk is full.
        StorageError: If it cannot be read or written, or a file that cannot be used cannot be moved.
    """

    connection: sqlite3.Connection

    def __init__(
        self,
        path: Path,
        migrations: Sequence[str] = MIGRATIONS,
        *,
        tidy: Callable[[sqlite3.Connection], Notice | None] = lambda _connection: None,
        mend: Callable[[sqlite3.Connection], object] = lambda _connection: None,
        wait: bool = True,
    ) -> None:
        self.path = path
        self.notice: Notice | None = None
        self.on_notice: Callable[[Notice], object] = lambda _notice: None
        self._reader: sqlite3.Connection | None = None
        self._notices: list[Notice] = []  # the writer has brought the file back, and the reader has the old one
        self._owner = threading.get_ident()
        self._closed = self._is_open = False
        self._bulk: set[Job[Any]] = set()
        self._make_folder()
        self._lock = FileLock(self._beside(".lock"))
        self._thread = SerialThread("store writer")
        self._opening = self._thread.do(lambda _job: self._open(migrations, tidy, mend))
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it is open; where it cannot be opened, close it and raise what `__init__` names."""
        try:
            self._opening.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Write everything into the one file and let other processes have it. Idempotent.

        Raises:
            StorageError: If the file was deleted and cannot be brought back.
        """
        if self._closed:
            return
        self._closed = True
        self.drop_bulk_work()
        self._close_reader()
        try:
            self._thread.do(lambda _job: self._end()).result()
        finally:
            self._thread.close()
            self._lock.release()
            self._tell_notices()

    # Reading

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement that reads, on the thread that opened the database, and return its rows."""
        if self._closed:  # what the window still draws while rdchat quits
            raise StorageError("The chats are closed.", "Start rdchat again.")
        self._opening.result()
        self._tell_notices()
        with errors_in_words(self.path):
            if self._reader is None:
                self._reader = open_reader(self.path)
            return self._reader.execute(sql, parameters).fetchall()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # Writing

    def write[T](self, command: Callable[[sqlite3.Connection], T]) -> T:
        """Run a command in a transaction of its own: all of it is on the disk when this returns, or nothing."""
        try:
            return self.submit(command).result()
        finally:
            self._tell_notices()

    def execute(self, sql: str, *parameters: object) -> int:
        """Run one statement that writes, as `write`; return how many rows it changed."""
        return self.write(lambda connection: connection.execute(sql, parameters).rowcount)

    def submit[T](
        self, command: Callable[[sqlite3.Connection], T], on_end: Callable[[T | RdchatError], object] | None = None
    ) -> Job[T]:
        """Run a command as `write`, without waiting for it.

        Args:
            command: Called on the writer's thread.
            on_end: Called there with its result, or with the StorageError.
        """
        return self._thread.do(lambda _job: self._transact(command), on_end)

    def work_off[T](
        self, steps: Generator[object, None, T], on_end: Callable[[T | RdchatError], object] | None = None
    ) -> Job[T]:
        """Run bulk work in many short transactions, each of which ends behind some step.

        Args:
            steps: Writes by `connection` between its steps, on the writer's thread; each takes a few milliseconds.
            on_end: Called there with what it returned, or with the error, which ends it.
        """
        job: Job[Any] = Job(on_end=on_end)
        self._bulk.add(job)

        def end(outcome: Any) -> None:
            self._bulk.discard(job)
            job.end(outcome)

        def turn(_turn: Job[Any]) -> None:
            outcome = outcome_of(
                job, lambda _job: self._transact(lambda _connection: self._advance(steps)), "Bulk work"
            )
            if isinstance(outcome, RdchatError):
                end(outcome)
            elif outcome[0]:
                end(outcome[1])
            else:
                self._thread.do(turn)

        self._thread.do(turn)
        return job

    def drop_bulk_work(self) -> None:
        """Cancel bulk work: what it leaves is shown nowhere, and erased after the next start."""
        for job in list(self._bulk):
            job.cancel()

    def replace(self, replace: Callable[[], None]) -> None:
        """Close the file, have `replace` put another one in its place, and go on with what is there then.

        What `replace` puts there was opened by this version before: it is not checked again. The lock is kept.
        """

        def act(_job: Job[None]) -> None:
            with errors_in_words(self.path):
                self._keep_file()
                self.connection.close()
                try:
                    replace()
                finally:
                    self._connect_anew()

        self.drop_bulk_work()
        self._close_reader()
        self._thread.do(act).result()

    # On the writer's thread

    def _transact[T](self, command: Callable[[sqlite3.Connection], T]) -> T:
        if not self._is_open:
            self._opening.result()  # raises the reason
        with errors_in_words(self.path):
            self._keep_file()
            connection = self.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = command(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            return result

    def _advance[T](self, steps: Generator[object, None, T]) -> tuple[bool, T | None]:
        """Take steps until a command waits or the turn is over; return whether all is done, and the result."""
        until = time.monotonic() + _LONGEST_TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return True, end.value
            if self._thread.has_more or time.monotonic() > until:
                return False, None

    def _open(
        self,
        migrations: Sequence[str],
        tidy: Callable[[sqlite3.Connection], Notice | None],
        mend: Callable[[sqlite3.Connection], object],
    ) -> None:
        with errors_in_words(self.path):
            connection, self.notice = open_to_write(self.path, migrations)
            self._use(connection)
        try:
            notice = self._transact(tidy)
        except (StorageFullError, StorageLockedError):
            raise
        except StorageError:
            self._transact(mend)
            notice = self._transact(tidy)
        self.notice = self.notice or notice

    def _connect_anew(self) -> None:
        connection = connect(self.path)
        make_writable(connection)
        self._use(connection)

    def _use(self, connection: sqlite3.Connection) -> None:
        self.connection, self._is_open = connection, True
        self._file, self._log = file_id(self.path), file_id(self._beside("-wal"))

    def _keep_file(self) -> None:
        """Bring the file back if it was deleted or replaced: SQLite would go on writing into what nobody can open."""
        if file_id(self.path) == self._file:
            self._log = file_id(self._beside("-wal"))
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.is_in_place():
            self._lock, lost = FileLock(self._beside(".lock")), self._lock
            lost.release()
        notice = bring_back(self.connection, self.path, COMPANIONS, self._log)
        self._connect_anew()
        self._notices.append(notice)

    def _end(self) -> None:
        if not self._is_open:
            return
        with errors_in_words(self.path):
            try:
                self._keep_file()
            finally:
                self.connection.close()

    # On the opening thread

    def _tell_notices(self) -> None:
        """Report what the writer found, and read from the file that it has brought back."""
        while self._notices and threading.get_ident() == self._owner:
            self._close_reader()
            self.on_notice(self._notices.pop(0))

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            what = f"rdchat cannot make its folder {self.path.parent}"
            raise file_error(
                error, what, "Check the folder above it, or name another one in RDCHAT_DATA_DIR."
            ) from error

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)
