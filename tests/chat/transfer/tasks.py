"""Imports, exports and backups as the app does them, in this process."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import backups
from rdchat.chat.transfer.backups import BackupFacts
from rdchat.chat.transfer.chat_import import ImportReport, ImportWriter, TaskProgress
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.transfer_process import read_files
from rdchat.files.foreign_files import from_plain
from rdchat.work.job import Job
from rdchat.work.served import packed


def import_into(store: ConversationStore, paths: Sequence[Path]) -> ImportReport:
    """Read files and store their chats; what crosses between the processes crosses as JSON here, too."""
    writer = ImportWriter(store)
    job = Job[ImportReport]()
    read_files(store.path, paths, lambda frame: writer.store_frame(json.loads(packed(frame)[4:])), TaskProgress(job))
    writer.end_import({"ended": True}, job.set_outcome)
    return job.result()


def export(
    database: Path,
    path: Path,
    kind: str = "json",
    chats: Sequence[int] | None = None,
    *,
    details: bool = True,
    shares: bool = True,
) -> dict[str, Any]:
    return export_chats(
        Job(), str(database), str(path), kind=kind, chats=None if chats is None else list(chats), details=details,
        shares=shares, settings={}, sampling={},
    )  # fmt: skip


def back_up(database: Path, settings: Path, path: Path) -> BackupFacts:
    return from_plain(BackupFacts(), backups.back_up(Job(), str(database), str(settings), str(path)))[0]


def prepare(source: Path, data: Path, settings: Path | None = None) -> BackupFacts:
    beside = None if settings is None else str(settings)
    return from_plain(BackupFacts(), backups.prepare(Job(), str(source), str(data), beside))[0]
