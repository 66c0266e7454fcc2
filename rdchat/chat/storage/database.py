"""The chats' SQLite file: one thread writes to it, and the window's thread reads through its own connection.

`ImageFolder` has copies of stored images, for the engine, which reads files. They are as private as the store.
"""

import hashlib
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.connections import (
    connect,
    make_writable,
    open_reader,
    open_to_write,
    storage_errors,
)
from rdchat.chat.storage.file_check import file_id, restore_file
from rdchat.errors import RdchatError, StorageError, StorageFullError, StorageLockedError, file_errors
from rdchat.files import FileLock, companion, private_folder
from rdchat.work import Job, SerialThread, outcome_of

# Bulk work (`Database.run_bulk`) commits after this time, even if no command waits.
_LONGEST_TURN_S = 0.05


class ImageFolder:
    """Copies of stored images in a folder beside the store's file, for as long as the store is open; from any thread.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-images")
        # Else what deletes files would delete one that is being written.
        self._lock = threading.Lock()

    def path_of(self, digest: str, read: Callable[[], bytes]) -> Path:
        """Return the file of an image; `read` returns its data, if it is not there yet. Raises StorageError."""
        path = self._folder / _name_of(digest)
        if not path.exists():
            # Before the lock: it may wait for the writer's thread, which deletes.
            data = read()
            with self._lock, file_errors(f"{self._folder} cannot be written", "Check its disk and permissions."):
                temporary = private_folder(self._folder) / secrets.token_hex(8)
                temporary.touch(0o600)
                temporary.write_bytes(data)
                temporary.replace(path)
        return path

    def keep_only(self, digests: Iterable[str]) -> None:
        """Delete the files of all other images."""
        names = set(map(_name_of, digests))
        with self._lock, suppress(OSError):
            for path in self._folder.iterdir():
                if path.name not in names:
                    path.unlink()

    def delete_files(self) -> None:
        """Delete all files."""
        with self._lock:
            shutil.rmtree(self._folder, ignore_errors=True)


def _name_of(digest: str) -> str:
    # A digest from a file that was made by hand may be any text.
    return hashlib.sha256(digest.encode("utf-8", "replace")).hexdigest()


class Database:
    """The file, its lock, the writer's thread, and the read connection of the thread that opened it.

    Commands run on the writer's thread in order, each in its own transaction. Bulk work takes turns with them: a
    command waits for at most one step of bulk work and a commit.

    Args:
        path: Created if missing, and migrated to the newest version. A damaged file is moved aside with its
            companions; one of a later version or of another program stays as it is, and opening it fails.
        wait: Whether to wait until the file is open. Otherwise call `wait_until_open`, or read, which waits too.
        in_memory: Whether the tables are in memory only; `path` is then for their lock and images.

    Attributes:
        notice: A notice about a file that could not be used, or None.
        on_notice: Called on the opening thread with news about the file while it is in use.
        connection: The writer's connection, for bulk work on its thread.
        images: Copies of stored images as files.

    Raises:
        StorageLockedError: If another process has the file open.
        StorageFullError: If the disk is full.
        StorageError: If it cannot be read or written, or a file that cannot be used cannot be moved.
    """

    connection: sqlite3.Connection

    def __init__(self, path: Path, *, wait: bool = True, in_memory: bool = False) -> None:
        self.path = path
        self.in_memory = in_memory
        self.notice: Notice | None = None
        self.on_notice: Callable[[Notice], object] = lambda _notice: None
        self.images = ImageFolder(path)
        self._reader: sqlite3.Connection | None = None
        # The writer adds one when it has brought the file back: the opening thread must then open its reader again.
        self._notices: list[Notice] = []
        self._owner = threading.get_ident()
        self._closed = False
        # Whether the writer has a connection; False while it opens the file, and for ever if that fails.
        self._is_open = False
        self._bulk: set[Job[Any]] = set()
        hint = "Check the folder above it, or set RDCHAT_DATA_DIR to another folder."
        with file_errors(f"rdchat cannot make its folder {path.parent}", hint):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = FileLock(companion(path, ".lock"))
        self._thread = SerialThread("store writer")
        self._opening = self._thread.do(lambda _job: self._open())
        if wait:
            self.wait_until_open()

    def wait_until_open(self) -> None:
        """Wait until the file is open; if it cannot be opened, close, and raise the errors of `__init__`."""
        try:
            self._opening.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Write everything to the file and release it for other processes. Idempotent.

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
            self._thread.wait_for_jobs()
            self.images.delete_files()
            self._lock.release()
            self._report_notices()

    # Reading

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement that reads and return its rows; other threads than the opening one use a new connection."""
        # The window may still draw while rdchat quits.
        if self._closed:
            raise StorageError("The chats are closed.", "Start rdchat again.")
        self._opening.result()
        self._report_notices()
        with storage_errors(self.path):
            if threading.get_ident() != self._owner:
                with closing(open_reader(self.path, in_memory=self.in_memory)) as reader:
                    return reader.execute(sql, parameters).fetchall()
            if self._reader is None:
                self._reader = open_reader(self.path, in_memory=self.in_memory)
            return self._reader.execute(sql, parameters).fetchall()

    def _close_reader(self) -> None:
        """Close the read connection; the next read opens another one."""
        reader = self._reader
        self._reader = None
        if reader is not None:
            reader.close()

    # Writing

    def write[T](self, command: Callable[[sqlite3.Connection], T]) -> T:
        """Run a command in its own transaction: when this returns, all of it is on disk; after an error, nothing."""
        try:
            return self.submit(command).result()
        finally:
            self._report_notices()

    def execute(self, sql: str, *parameters: object) -> int:
        """Run a statement that writes, as `write` does; return the number of changed rows."""
        return self.write(lambda connection: connection.execute(sql, parameters).rowcount)

    def submit[T](
        self, command: Callable[[sqlite3.Connection], T], on_end: Callable[[T | RdchatError], object] | None = None
    ) -> Job[T]:
        """Run a command as `write` does, without waiting for it.

        Args:
            command: Called on the writer's thread.
            on_end: Called there with its result, or with the StorageError.
        """
        return self._thread.do(lambda _job: self._transact(command), on_end)

    def run_after_commands(
        self, work: Callable[[], object], on_end: Callable[[object], object] | None = None
    ) -> Job[object]:
        """Run work of others on the writer's thread, after the commands so far; not once the store is closed."""
        return self._thread.do(lambda _job: work(), on_end)

    def run_bulk[T](
        self, steps: Generator[object, None, T], on_end: Callable[[T | RdchatError], object] | None = None
    ) -> Job[T]:
        """Run bulk work in many short transactions, each of which ends after one of its steps.

        Args:
            steps: Writes through `connection` on the writer's thread; each step takes a few milliseconds.
            on_end: Called there with its result, or with the error that ended it.
        """
        job: Job[Any] = Job(on_end=on_end)
        self._bulk.add(job)

        def end(outcome: Any) -> None:
            self._bulk.discard(job)
            job.set_outcome(outcome)

        # One transaction; the next turn waits behind the commands that came meanwhile. Once the job is cancelled, the
        # outcome is a CancelledError, and no further step is done.
        def turn(_turn: Job[Any]) -> None:
            outcome = outcome_of(
                job, lambda _job: self._transact(lambda _connection: self._advance(steps)), "Bulk work"
            )
            if isinstance(outcome, RdchatError):
                end(outcome)
                return
            is_done, result = outcome
            if is_done:
                end(result)
            else:
                self._thread.do(turn)

        self._thread.do(turn)
        return job

    def drop_bulk_work(self) -> None:
        """Cancel bulk work. What it leaves is not shown, and is erased after the next start."""
        for job in list(self._bulk):
            job.cancel()

    def replace(self, replace: Callable[[], None]) -> None:
        """Close the file, call `replace` to replace it by another one, and continue with that.

        This version has opened the new file before, so it is not checked again. The lock is kept.
        """

        def act(_job: Job[None]) -> None:
            with storage_errors(self.path):
                self._keep_file()
                self.connection.close()
                try:
                    replace()
                finally:
                    self._reconnect()

        self.drop_bulk_work()
        self._close_reader()
        self._thread.do(act).result()

    # On the writer's thread

    def _transact[T](self, command: Callable[[sqlite3.Connection], T]) -> T:
        """Run a command in a transaction; what it has done is undone if it raises."""
        if not self._is_open:
            # Opening has failed: this raises its error.
            self._opening.result()
        with storage_errors(self.path):
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
        """Run steps until a command waits or the turn is over; return whether all are done, and the result."""
        until = time.monotonic() + _LONGEST_TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return True, end.value
            if self._thread.has_more or time.monotonic() > until:
                return False, None

    def _open(self) -> None:
        """Open the file and repair what an earlier process left."""
        with storage_errors(self.path):
            connection, self.notice = open_to_write(self.path, in_memory=self.in_memory)
            self._use(connection)
        try:
            notice = self._transact(self._tidy_up)
        except (StorageFullError, StorageLockedError):
            raise
        except StorageError:
            self._transact(self._mend)
            notice = self._transact(self._tidy_up)
        self.notice = self.notice or notice

    def _tidy_up(self, connection: sqlite3.Connection) -> Notice | None:
        """Repair what an earlier process left, before anything is read; return a notice for the person."""

    def _mend(self, connection: sqlite3.Connection) -> None:
        """Repair more if `_tidy_up` failed, but for a full disk or a locked file; then `_tidy_up` is tried again."""

    def _reconnect(self) -> None:
        connection = connect(self.path)
        make_writable(connection)
        self._use(connection)

    def _use(self, connection: sqlite3.Connection) -> None:
        """Write through a connection from now on, and remember which files are its own, for `_keep_file`."""
        self.connection = connection
        self._is_open = True
        self._file = file_id(self.path)
        self._log = file_id(companion(self.path, "-wal"))

    def _keep_file(self) -> None:
        """Bring the file back if it was deleted or replaced: SQLite would go on writing to a file without a name.

        A store in memory has no file at any time, so nothing is done.
        """
        if file_id(self.path) == self._file:
            # While the file is ours, so is the log beside it, which SQLite may have made after `_use`.
            self._log = file_id(companion(self.path, "-wal"))
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The lock's file may be gone with the folder; another process could then lock a new one.
        if not self._lock.is_current():
            lost = self._lock
            self._lock = FileLock(companion(self.path, ".lock"))
            lost.release()
        notice = restore_file(self.connection, self.path, self._log)
        self._reconnect()
        self._notices.append(notice)

    def _end(self) -> None:
        """Write everything to the file, which is brought back first if it is gone, and close it."""
        if not self._is_open:
            return
        with storage_errors(self.path):
            try:
                self._keep_file()
            finally:
                self.connection.close()

    # On the opening thread

    def _report_notices(self) -> None:
        """Report the writer's notice, and read from the file that it restored."""
        while self._notices and threading.get_ident() == self._owner:
            self._close_reader()
            self.on_notice(self._notices.pop(0))
