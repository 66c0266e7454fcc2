"""Exports chats into files that appear whole or not at all."""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat.chat.plain_data import from_plain
from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.rows import text_column
from rdchat.chat.transfer.formats.markdown import as_markdown
from rdchat.chat.transfer.formats.rdchat_json import ChatsFile
from rdchat.chat.transfer.reports import ExportReport, TaskProgress
from rdchat.chat.transfer.whole_chat import DamagedChatError, WholeChat, read_chat, visible_ids
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.file_errors import file_error
from rdchat.inference.api.requests import SamplingParams
from rdchat.work.job import Job

_LONGEST_NAME = 80  # characters of a file's name; with four bytes each it must stay below 255 with its ending
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


class Export:
    """Writes chats into files. All are as they were when it was made, though the app writes on.

    Args:
        connection: To the store, within a transaction; nothing is written to it.
        progress: Of the export.
        system_prompt, sampling: Of the preferences, which hold for chats that have none of their own.
    """

    def __init__(
        self, connection: sqlite3.Connection, progress: TaskProgress, system_prompt: str, sampling: SamplingParams
    ) -> None:
        self._connection, self._progress = connection, progress
        self._system_prompt, self._sampling = system_prompt, sampling

    def as_json(self, path: Path, chats: Sequence[int]) -> None:
        """Write chats into one file of JSON, complete.

        Raises:
            StorageError: If one of them is gone, or the file cannot be written.
        """
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            writer = ChatsFile(file, time.time(), self._system_prompt, self._sampling)
            for chat in self._read(chats):
                writer.add(chat)
            writer.end()

    def as_markdown(self, path: Path, chats: Sequence[int], *, details: bool) -> None:
        """Write the first of the chats into a file of Markdown; see `as_json`."""
        with atomic_file(path) as temporary:
            for chat in self._read(chats[:1]):
                temporary.write_text(self._markdown(chat, details=details), encoding="utf-8")

    def as_folder(self, folder: Path, chats: Sequence[int], *, details: bool) -> None:
        """Write chats into a new folder, a file of Markdown each.

        Raises:
            StorageError: If there is something at `folder` already, or see `as_json`.
        """
        if folder.exists() or folder.is_symlink():
            raise StorageError(f"There is something at {folder} already.", "Choose another name.")
        partial = folder.with_name(f"part-{folder.name}-{os.getpid()}")
        try:
            partial.mkdir()
            names: set[str] = set()
            for chat in self._read(chats):
                text = self._markdown(chat, details=details)
                (partial / _free_name(chat.about.title, names)).write_text(text, encoding="utf-8")
            partial.rename(folder)
        except OSError as error:
            raise file_error(error, f"{folder} cannot be written", "Choose another place.") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _read(self, chats: Sequence[int]) -> Iterator[WholeChat]:
        for place, conversation in enumerate(chats):
            self._progress.tell("Exporting", place / len(chats))
            try:
                yield read_chat(self._connection, conversation)
            except DamagedChatError as error:
                raise StorageError(
                    f"Chat {conversation} is damaged: {error}.", "Open the app once: it mends it."
                ) from error

    def _markdown(self, chat: WholeChat, *, details: bool) -> str:
        return text_column(as_markdown(chat, self._system_prompt, self._sampling, details=details))


def export_chats(
    job: Job[Any],
    database: str,
    path: str,
    *,
    kind: str,
    chats: list[int] | None,
    details: bool,
    system_prompt: str,
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """Export chats; return an `ExportReport` as JSON.

    Args:
        job: Takes the progress.
        database: The store's file.
        path: What is to be written.
        kind: `json`; `markdown` for a file of one chat; `folder` for a folder with a file of Markdown each.
        chats: Their ids; None for all.
        details: Whether Markdown has settings and statistics.
        system_prompt: Of the preferences.
        sampling: Of the preferences.
    """
    with reading(Path(database)) as connection:
        connection.execute("BEGIN")  # closing ends it
        ids = visible_ids(connection) if chats is None else chats
        export = Export(connection, TaskProgress(job), system_prompt, from_plain(SamplingParams(), sampling)[0])
        if kind == "json":
            export.as_json(Path(path), ids)
        elif kind == "markdown":
            export.as_markdown(Path(path), ids, details=details)
        else:
            export.as_folder(Path(path), ids, details=details)
    return asdict(ExportReport(path, len(ids)))


def file_name(title: str, ending: str) -> str:
    """Return a name for a file of a chat that every file system takes: `A title.md`."""
    name = " ".join(_NOT_IN_NAMES.sub(" ", text_column(title)).split()).strip(" .")
    while len(name.encode()) > _LONGEST_NAME * 2:
        name = name[:-1]
    return f"{name[:_LONGEST_NAME].rstrip(' .') or 'Chat'}{ending}"


def _free_name(title: str, taken: set[str]) -> str:
    """Return a name that no other has, also where upper and lower case are one."""
    name, number = file_name(title, ".md"), 1
    while name.casefold() in taken:
        number += 1
        name = file_name(title, f" {number}.md")
    taken.add(name.casefold())
    return name
