"""Exports chats into files that appear whole or not at all."""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rdchat.chat.storage.rows import text_column
from rdchat.chat.transfer.chat_reader import read_chat
from rdchat.chat.transfer.formats.markdown import as_markdown
from rdchat.chat.transfer.formats.rdchat_json import ChatsFile
from rdchat.chat.transfer.portable import DamagedChatError, PortableChat
from rdchat.chat.transfer.reports import ExportReport, Progress
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.file_errors import file_error
from rdchat.inference.api.requests import SamplingParams

_LONGEST_NAME = 80  # characters of a file's name; with four bytes each it must stay below 255 with its ending
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


class Export:
    """Writes chats into files.

    Args:
        connection: To the store; nothing is written to it.
        tell: Called with where it stands.
        check: Called often; an exception of it stops the export and leaves nothing behind.
        system_prompt, sampling: Of the preferences, which hold for chats that have none of their own.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        tell: Callable[[Progress], object],
        check: Callable[[], object],
        *,
        system_prompt: str,
        sampling: SamplingParams,
    ) -> None:
        self._connection, self._tell, self._check = connection, tell, check
        self._system_prompt, self._sampling = system_prompt, sampling

    def as_json(self, path: Path, chats: Sequence[int]) -> ExportReport:
        """Write chats into one file of JSON, complete.

        Raises:
            StorageError: If one of them is gone, or the file cannot be written.
        """
        with self._one_state(), atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            writer = ChatsFile(file, time.time(), self._system_prompt, self._sampling)
            for place, conversation in enumerate(chats):
                writer.add(self._read(conversation, place, len(chats)))
            writer.end()
        return ExportReport(str(path), len(chats))

    def as_markdown(self, path: Path, conversation: int, *, details: bool) -> ExportReport:
        """Write a chat into a file of Markdown; see `as_json`."""
        with self._one_state(), atomic_file(path) as temporary:
            temporary.write_text(self._markdown(self._read(conversation, 0, 1), details=details), encoding="utf-8")
        return ExportReport(str(path), 1)

    def as_folder(self, folder: Path, chats: Sequence[int], *, details: bool) -> ExportReport:
        """Write chats into a new folder, a file of Markdown each.

        Raises:
            StorageError: If there is something at `folder` already, or see `as_json`.
        """
        if folder.exists() or folder.is_symlink():
            raise StorageError(f"There is something at {folder} already.", "Choose another name.")
        partial = folder.with_name(f"part-{folder.name}-{os.getpid()}")
        try:
            try:
                partial.mkdir()
                names: set[str] = set()
                with self._one_state():
                    for place, conversation in enumerate(chats):
                        chat = self._read(conversation, place, len(chats))
                        text = self._markdown(chat, details=details)
                        (partial / _free_name(chat.title, names)).write_text(text, encoding="utf-8")
                partial.rename(folder)
            except OSError as error:
                raise file_error(error, f"{folder} cannot be written", "Choose another place.") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return ExportReport(str(folder), len(chats))

    def _read(self, conversation: int, place: int, total: int) -> PortableChat:
        self._check()
        self._tell(Progress("Exporting", place / max(total, 1)))
        try:
            return read_chat(self._connection, conversation)
        except DamagedChatError as error:
            raise StorageError(
                f"Chat {conversation} is damaged: {error}.", "Open the app once: it mends it."
            ) from error

    def _markdown(self, chat: PortableChat, *, details: bool) -> str:
        return text_column(as_markdown(chat, self._system_prompt, self._sampling, details=details))

    def _one_state(self) -> "_Reading":
        return _Reading(self._connection)


class _Reading:
    """All chats as they are at one moment, while the app writes on."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, *_error: object) -> None:
        self._connection.execute("ROLLBACK")


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
