"""Writes and restores backups. A SIGKILL at any moment leaves either the complete old store or the complete new one.

`back_up` and `prepare` may take minutes; the app runs them in the transfer process. `decide`, `carry_out` and `finish`
run in the app or the command and take a moment.

A backup is a zip archive with the database, the settings, and a file about both:

    backup.json       {"format": "rdchat backup", "version": 1, "rdchat": "0.2.0", "made_at": ..., "chats": 12, ...}
    conversations.db  the database, copied while the app uses it
    settings.json     the settings, where there are any

Unpacked, a backup has the files as rdchat stores them.

A restore is prepared in the folder `part-restore`, where the backup is unpacked, checked and migrated. What starts,
opens, sends or allows something is switched off there, unless it is on here (`Consents`). Renaming this
folder to `restore` decides it: from then on, whoever opens the store first completes the restore from where it stopped.
The old store is kept as `conversations-before-restore-DATE.db`, and is never overwritten.
"""

import errno
import json
import os
import shutil
import sqlite3
import time
import zipfile
import zlib
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rdchat import __version__
from rdchat.chat.reply_tokens import ALL
from rdchat.chat.settings import SettingsStore, stored_settings
from rdchat.chat.storage import (
    COMPANIONS,
    address_to_read,
    copy_database,
    drop_consent,
    harden,
    is_special,
    reading,
    why_unusable,
)
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.chat_import import TaskProgress
from rdchat.chat.transfer.foreign_chats import date
from rdchat.errors import StorageError, StorageFullError, file_error, file_errors
from rdchat.files import FileLock, chosen_file, companion, flush_to_disk, from_plain, json_or_none, opened, set_aside
from rdchat.work import Job

FORMAT = "rdchat backup"
VERSION = 1
DETAILS = "backup.json"
DATABASE = "conversations.db"
SETTINGS = "settings.json"
MAX_SETTINGS_BYTES = 16 << 20
# Share of the progress for copying the database; the rest is packing.
_COPY_SHARE = 0.4
_CHUNK = 1 << 20
# Numbers of the chats that are shown, and of their messages.
COUNTS = (
    "SELECT (SELECT count(*) FROM conversations WHERE deleted_at IS NULL AND unlisted = 0), (SELECT count(*)"
    " FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.deleted_at IS NULL AND c.unlisted = 0"
    " AND m.id NOT IN (SELECT message_id FROM deleted_messages))"
)
# Folders of a restore before and after it is decided, in the data folder.
PREPARED = "part-restore"
_DECIDED = "restore"
# Part of the names of the former files; see `set_aside`.
_LABEL = "before-restore"
_OTHER_BACKUP = "Choose another backup. Your chats were not changed."
# Message and hint for each reason of `why_unusable`.
_REFUSALS = {
    "damaged": ("{name} is damaged.", _OTHER_BACKUP),
    "newer": ("{name} is from a newer version of rdchat.", "Install that version first."),
    "foreign": ("{name} is not a backup of rdchat.", "Choose a file made by “Back Up”. Your chats were not changed."),
}


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """Facts about a backup.

    Attributes:
        path: The file.
        chats: Number of its chats, without the Trash.
        messages: Number of their messages.
        made_at: Seconds since the epoch; None if unknown.
        settings: Whether it has settings too.
        bytes: Size of the file.
        unconfirmed: Number of things in its settings that come in off.
    """

    path: str = ""
    made_at: float | None = None
    chats: int = 0
    messages: int = 0
    settings: bool = False
    bytes: int = 0
    unconfirmed: int = 0


def back_up(job: Job[Any], database: str, settings: str, path: str) -> dict[str, Any]:
    """Write the whole store to one file, which replaces `path` when it is complete.

    Args:
        job: Receives the progress; if it is cancelled, nothing is left.
        database: The store's file, which the app may use meanwhile.
        settings: The settings' file; it may be missing.
        path: The backup.

    Returns:
        The `BackupFacts` as JSON.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If the database cannot be read, or the file not written.
    """
    target = Path(path)
    progress = TaskProgress(job)
    with reading(Path(database)) as connection, chosen_file(target) as temporary:
        copy = temporary.with_name(DATABASE)
        settings_data = Path(settings).read_bytes() if Path(settings).exists() else None
        try:
            copy_database(connection, copy, lambda share: progress.report("Copying the chats", share * _COPY_SHARE))
        except sqlite3.Error as error:
            raise StorageError(f"The chats cannot be copied: {error}.", "Check the disk, then try again.") from error
        with closing(sqlite3.connect(copy)) as counted:
            chats, messages = counted.execute(COUNTS).fetchone()
        facts = BackupFacts(path, time.time(), chats, messages, settings=settings_data is not None)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            details = {"format": FORMAT, "version": VERSION, "rdchat": __version__} | asdict(facts)
            del details["path"], details["bytes"]
            archive.writestr(DETAILS, json.dumps(details, indent=2) + "\n")
            if settings_data is not None:
                archive.writestr(SETTINGS, settings_data)
            with copy.open("rb") as source, archive.open(DATABASE, "w", force_zip64=True) as packed:
                size = copy.stat().st_size
                while chunk := source.read(_CHUNK):
                    packed.write(chunk)
                    progress.report("Writing the backup", _COPY_SHARE + (1 - _COPY_SHARE) * source.tell() / size)
    return asdict(replace(facts, bytes=target.stat().st_size))


def unpack(path: Path, folder: Path, progress: TaskProgress) -> BackupFacts | None:
    """Unpack a backup into a folder with the archive's own checks; None if `path` is not an archive.

    Raises:
        StorageError: If it is damaged, not ours, of a newer version, or cannot be unpacked.
    """
    try:
        with opened(path) as file:
            if not zipfile.is_zipfile(file):
                return None
            with zipfile.ZipFile(file) as archive:
                details = _details(archive, path)
                _extract(archive, folder, progress)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _unusable("damaged", path) from error
    except OSError as error:
        # `zipfile` gets this error where the archive names an offset before the start of the file.
        if error.errno == errno.EINVAL:
            raise _unusable("damaged", path) from error
        raise file_error(error, f"{path} cannot be unpacked", "Check the disk, then try again.") from error
    facts = from_plain(BackupFacts(), details)[0]
    return replace(facts, path=str(path), made_at=date(facts.made_at), bytes=path.stat().st_size)


def _details(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    details: Any = None
    with suppress(KeyError), archive.open(DETAILS) as file:
        details = json_or_none(file.read(_CHUNK))
    if not isinstance(details, dict) or details.get("format") != FORMAT or DATABASE not in archive.namelist():
        raise _unusable("foreign", path)
    version = details.get("version")
    if type(version) is not int or version > VERSION:
        raise _unusable("newer", path)
    return details


def _extract(archive: zipfile.ZipFile, folder: Path, progress: TaskProgress) -> None:
    """Extract database and settings; reading to the end compares their checksums."""
    names = [name for name in (SETTINGS, DATABASE) if name in archive.namelist()]
    for name in names:
        member = archive.getinfo(name)
        if name == SETTINGS and member.file_size > MAX_SETTINGS_BYTES:
            raise zipfile.BadZipFile("too many settings")
        if member.file_size > shutil.disk_usage(folder).free:
            raise StorageFullError(f"The disk that holds {folder.parent} is full.", "Free some space, then try again.")
        with archive.open(member) as source, (folder / name).open("xb") as target:
            os.fchmod(target.fileno(), 0o600)
            # Reading a member gives no more bytes than the archive lists.
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                progress.report("Reading the backup", 0.5 * target.tell() / member.file_size)


@dataclass(frozen=True, slots=True)
class Restored:
    """The files that a restore moved aside.

    Attributes:
        database: The former database; empty if there was none.
        settings: The former settings' file; empty if it stayed, or there was none.
    """

    database: str = ""
    settings: str = ""


def prepare(job: Job[Any], source: str, data: str, settings: str | None = None) -> dict[str, Any]:
    """Unpack, check and migrate a backup beside the store, which is not changed.

    Args:
        job: Receives the progress; if it is cancelled, nothing is left.
        source: A backup, or a database of rdchat, such as one kept by a restore.
        data: The folder of the store.
        settings: Settings to restore with a database; a backup has its own.

    Returns:
        The `BackupFacts` as JSON.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it is damaged, not ours, or of a newer version.
    """
    path = Path(source)
    folder = Path(data) / PREPARED
    progress = TaskProgress(job)
    if is_special(path):
        raise _unusable("foreign", path)
    if not path.is_file():
        raise StorageError(f"{path} cannot be read.", "Check its path.")
    try:
        with file_errors(f"{path.name} cannot be unpacked into {data}", "Check the disk."):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            facts = unpack(path, folder, progress) or _from_database(path, folder, settings, progress)
            progress.report("Checking the backup", 0.6)
            facts = _checked(folder, path, facts)
            for each in (*folder.iterdir(), folder):
                flush_to_disk(each)
        job.check_cancelled()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return asdict(facts)


def _from_database(source: Path, folder: Path, settings: str | None, progress: TaskProgress) -> BackupFacts:
    """Copy a database, and settings to restore with it, into a folder in the form of an unpacked backup."""
    try:
        with closing(sqlite3.connect(address_to_read(source), uri=True, autocommit=True)) as connection:
            harden(connection)
            reason = why_unusable(connection, source)
            if reason is not None:
                raise _unusable(reason, source)
            copy_database(connection, folder / DATABASE, lambda _share: progress.job.check_cancelled())
    except sqlite3.Error as error:
        # The file has a log, and SQLite cannot make the log's index in a folder without write permission.
        if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
            raise StorageError(
                f"{source.name} cannot be opened.", "Copy it to another folder, then try again."
            ) from error
        raise _unusable("damaged", source) from error
    if settings is not None and Path(settings).is_file():
        shutil.copyfile(settings, folder / SETTINGS)
    status = source.stat()
    return BackupFacts(str(source), status.st_mtime, settings=(folder / SETTINGS).exists(), bytes=status.st_size)


def _checked(folder: Path, source: Path, facts: BackupFacts) -> BackupFacts:
    """Return the facts about the database after it was checked, migrated and opened.

    What starts, opens, sends or allows something is switched off, unless it was agreed to here: by the settings beside
    the folder, or in the store that a restore put aside there.
    """
    is_own = _LABEL in source.name and source.parent.samefile(folder.parent)
    path = folder / DATABASE
    with closing(sqlite3.connect(path, autocommit=True)) as connection:
        harden(connection)
        try:
            reason = why_unusable(connection, path)
        except sqlite3.Error as error:
            raise _unusable("damaged", source) from error
        empty = reason is None and not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if reason is not None or empty:
        raise _unusable(reason or "foreign", source)
    with closing(ConversationStore(path)) as store:
        store.conversations()
        store.indexing.result()
        # The tokens of a foreign file cannot be trusted; they are made again from the texts.
        store.reply_tokens.delete_tokens(ALL)
        if not is_own:
            store.write(drop_consent)
        ((chats, messages),) = store.rows(COUNTS)
    for ending in (".lock", *COMPANIONS):
        companion(path, ending).unlink(missing_ok=True)
    facts = replace(facts, chats=chats, messages=messages, settings=(folder / SETTINGS).exists())
    if facts.settings and not isinstance(json_or_none((folder / SETTINGS).read_bytes()), dict):
        raise _unusable("damaged", source)
    if facts.settings and not is_own:
        off = SettingsStore(folder / SETTINGS).drop_consent(stored_settings(folder.parent / SETTINGS))
        facts = replace(facts, unconfirmed=len(off.entries))
    return facts


def _unusable(reason: str, source: Path) -> StorageError:
    """Return the error for a file that cannot be restored, with a reason of `why_unusable`."""
    message, hint = _REFUSALS[reason]
    return StorageError(message.format(name=source.name), hint)


def discard(data: Path) -> None:
    """Remove a restore that was prepared but not decided."""
    shutil.rmtree(data / PREPARED, ignore_errors=True)


def decide(data: Path) -> None:
    """Decide a prepared restore: it will be carried out, even after a crash.

    Raises:
        StorageError: If it cannot be written.
    """
    with file_errors(f"{data} cannot be written", "Check the disk, then try again."):
        (data / PREPARED).rename(data / _DECIDED)


def carry_out(data: Path, database: Path, settings: Path) -> Restored | None:
    """Finish a restore that was decided, from the step where it stopped; return None without one.

    One that was prepared, but not decided, is removed. Nobody may have the database open. Each step is a rename, whose
    result shows whether it was done.

    Raises:
        StorageError: If a file cannot be moved; the next call continues.
    """
    folder = data / _DECIDED
    discard(data)
    if not folder.is_dir():
        return None
    old = ""
    old_settings = ""
    with file_errors(f"The backup cannot be put into {data}", "Check the disk, then start again."):
        if (folder / DATABASE).exists():
            _fold_log(database)
            old = _move_aside(database, COMPANIONS)
            try:
                (folder / DATABASE).rename(database)
            except OSError:
                if old:
                    Path(old).rename(database)
                raise
        if (folder / SETTINGS).exists():
            # If the path is a link, it stays one, and the file behind it is replaced.
            target = settings.resolve()
            old_settings = _move_aside(target, ())
            (folder / SETTINGS).rename(target)
        # Flushed once, not after each rename: the app waits for it.
        flush_to_disk(data)
        shutil.rmtree(folder)
    return Restored(old, old_settings)


def withdraw(data: Path, database: Path) -> None:
    """Give up a restore that could not be carried out, unless the database is moved aside or replaced already.

    Once it is moved aside there is no database, and only completing the restore gives one.
    """
    if database.exists() and (data / _DECIDED / DATABASE).exists():
        shutil.rmtree(data / _DECIDED, ignore_errors=True)


def finish(data: Path, database: Path, settings: Path) -> Restored | None:
    """Finish a restore that a killed process had decided, before the store is opened; return None without one.

    One that was prepared, but not decided, is removed.

    Raises:
        StorageLockedError: If another process has the store open.
        StorageError: See `carry_out`.
    """
    if not any((data / name).exists() for name in (PREPARED, _DECIDED)):
        return None
    with FileLock(database.with_name(database.name + ".lock")):
        return carry_out(data, database, settings)


def _move_aside(path: Path, companions: tuple[str, ...]) -> str:
    """Move a file aside and return its new path; empty if there is none."""
    if not path.exists(follow_symlinks=False):
        return ""
    return str(set_aside(path, _LABEL, companions))


def _fold_log(path: Path) -> None:
    """Merge a killed process's log into its database, so that one file has all data."""
    if not path.is_file() or not companion(path, "-wal").exists():
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, autocommit=True)) as connection:
        harden(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
