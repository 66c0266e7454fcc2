"""Writes and reads backups: zip archives with the database, the settings, and a file about both.

    backup.json       {"format": "rdchat backup", "version": 1, "rdchat": "0.2.0", "made_at": ..., "chats": 12, ...}
    conversations.db  the database, copied while the app uses it
    settings.json     the settings, where there are any

Unpacked, a backup has the files as rdchat stores them.
"""

import errno
import json
import os
import shutil
import sqlite3
import tempfile
import time
import zipfile
import zlib
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rdchat import __version__
from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.set_aside import copy_database
from rdchat.chat.transfer.foreign_chats import date
from rdchat.chat.transfer.reports import TaskProgress
from rdchat.errors import StorageError, StorageFullError, file_error
from rdchat.files.atomic_file import atomic_file
from rdchat.files.plain_data import from_plain
from rdchat.work.job import Job

FORMAT, VERSION = "rdchat backup", 1
DETAILS, DATABASE, SETTINGS = "backup.json", "conversations.db", "settings.json"
MAX_SETTINGS_BYTES = 16 << 20
# The rest of the time is packing.
_COPY_SHARE = 0.4
_CHUNK = 1 << 20
COUNTS = (
    "SELECT (SELECT count(*) FROM conversations WHERE deleted_at IS NULL AND unlisted = 0), (SELECT count(*)"
    " FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.deleted_at IS NULL AND c.unlisted = 0"
    " AND m.id NOT IN (SELECT message_id FROM deleted_messages))"
)


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """Facts about a backup.

    Attributes:
        made_at: Seconds since the epoch; None if unknown.
        settings: Whether it has settings too.
        bytes: Size of the file.
    """

    path: str = ""
    made_at: float | None = None
    chats: int = 0
    messages: int = 0
    settings: bool = False
    bytes: int = 0


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
    target, progress = Path(path), TaskProgress(job)
    with (
        reading(Path(database)) as connection,
        atomic_file(target) as temporary,
        tempfile.TemporaryDirectory(prefix="part-", dir=target.parent) as folder,
    ):
        copy = Path(folder) / DATABASE
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
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            details = _details(archive, path)
            _extract(archive, folder, progress)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise damaged(path) from error
    except OSError as error:
        # An offset lies before the start of the file.
        if error.errno == errno.EINVAL:
            raise damaged(path) from error
        raise file_error(error, f"{path} cannot be unpacked", "Check the disk, then try again.") from error
    facts = from_plain(BackupFacts(), details)[0]
    return replace(facts, path=str(path), made_at=date(facts.made_at), bytes=path.stat().st_size)


def damaged(path: Path) -> StorageError:
    """Return the error for a backup that is incomplete or changed."""
    return StorageError(f"{path.name} is damaged.", "Choose another backup. Your chats were not changed.")


def _details(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    details: Any = None
    with suppress(KeyError, ValueError, RecursionError), archive.open(DETAILS) as file:
        details = json.loads(file.read(_CHUNK))
    if not isinstance(details, dict) or details.get("format") != FORMAT or DATABASE not in archive.namelist():
        raise StorageError(f"{path.name} is not a backup of rdchat.", "Choose a file made by “Back Up”.")
    version = details.get("version")
    if type(version) is not int or version > VERSION:
        raise StorageError(f"{path.name} is from a newer version of rdchat.", "Install that version first.")
    return details


def _extract(archive: zipfile.ZipFile, folder: Path, progress: TaskProgress) -> None:
    """Extract database and settings; reading to the end compares their checksums."""
    names = [name for name in (SETTINGS, DATABASE) if name in archive.namelist()]
    for name in names:
        member = archive.getinfo(name)
        limit = MAX_SETTINGS_BYTES if name == SETTINGS else member.file_size
        written = 0
        if member.file_size > shutil.disk_usage(folder).free:
            raise StorageFullError(f"The disk that holds {folder.parent} is full.", "Free some space, then try again.")
        with archive.open(member) as source, (folder / name).open("xb") as target:
            os.fchmod(target.fileno(), 0o600)
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > limit:
                    raise zipfile.BadZipFile("more than it says")
                target.write(chunk)
                progress.report("Reading the backup", 0.5 * written / max(member.file_size, 1))
