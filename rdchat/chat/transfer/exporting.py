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
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat, read_chat, visible_ids
from rdchat.chat.transfer.formats.markdown import as_markdown
from rdchat.chat.transfer.formats.rdchat_json import ChatsFile
from rdchat.chat.transfer.reports import ExportReport, TaskProgress
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.file_errors import file_error
from rdchat.inference.api.requests import SamplingParams
from rdchat.work.job import Job

_LONGEST_NAME = 80  # characters of a file's name; with four bytes each it must stay below 255 with its ending
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


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
    """Export chats, as they all were at one moment; return an `ExportReport` as JSON.

    Args:
        job: Takes the progress.
        database: The store's file.
        path: What is to be written.
        kind: `json`; `markdown` for a file of one chat; `folder` for a folder with a file of Markdown each.
        chats: Their ids; None for all.
        details: Whether Markdown has settings and statistics.
        system_prompt: Of the preferences, which hold for chats that have none of their own.
        sampling: Of the preferences.

    Raises:
        StorageError: If a chat is gone, the file cannot be written, or there is something at the folder already.
    """
    params = from_plain(SamplingParams(), sampling)[0]
    with reading(Path(database)) as connection:
        connection.execute("BEGIN")  # closing ends it
        ids = visible_ids(connection) if chats is None else chats
        whole = _read(connection, ids, TaskProgress(job))
        if kind == "json":
            _write_json(Path(path), whole, system_prompt, params)
        else:
            texts = (
                (chat.about.title, text_column(as_markdown(chat, system_prompt, params, details=details)))
                for chat in whole
            )
            _write_file(Path(path), texts) if kind == "markdown" else _write_folder(Path(path), texts)
    return asdict(ExportReport(path, len(ids)))


def _read(connection: sqlite3.Connection, chats: Sequence[int], progress: TaskProgress) -> Iterator[WholeChat]:
    for place, conversation in enumerate(chats):
        progress.tell("Exporting", place / len(chats))
        try:
            yield read_chat(connection, conversation)
        except DamagedChatError as error:
            raise StorageError(
                f"Chat {conversation} is damaged: {error}.", "Open the app once: it mends it."
            ) from error


def _write_json(path: Path, chats: Iterator[WholeChat], system_prompt: str, sampling: SamplingParams) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        writer = ChatsFile(file, time.time(), system_prompt, sampling)
        for chat in chats:
            writer.add(chat)
        writer.end()


def _write_file(path: Path, texts: Iterator[tuple[str, str]]) -> None:
    with atomic_file(path) as temporary:
        _, text = next(texts)
        temporary.write_text(text, encoding="utf-8")


def _write_folder(folder: Path, texts: Iterator[tuple[str, str]]) -> None:
    """Write texts, each with its title, into files of a new folder, which appears whole or not at all."""
    if folder.exists() or folder.is_symlink():
        raise StorageError(f"There is something at {folder} already.", "Choose another name.")
    partial = folder.with_name(f"part-{folder.name}-{os.getpid()}")
    try:
        partial.mkdir()
        names: set[str] = set()
        for title, text in texts:
            (partial / _free_name(title, names)).write_text(text, encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        raise file_error(error, f"{folder} cannot be written", "Choose another place.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
