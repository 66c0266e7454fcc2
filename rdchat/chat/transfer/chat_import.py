"""The app's half of an import: the reports for people, the frames between the processes, and the writer of the store.

The transfer process (`transfer_process.py`) reads a file and sends frames, which are JSON objects: `{"chat": ...}` for
each chat, `{"image": ...}` for each of its images, then `{"file": ...}`, the file's `FileReport`. In the app,
`ImportWriter` stores them. The process itself uses `TaskProgress`, which exports and backups have too, and
`KnownChats`, to leave out chats that the store already has.
"""

import hashlib
import sqlite3
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rdchat.chat.organiser import erasing_chat
from rdchat.chat.storage import NOT_DELETED, Database, FullChat, add_image, insert_in_steps, text_column
from rdchat.chat.titles import NEW_CHAT, tidy_title, title_from_prompt
from rdchat.chat.transfer import rdchat_json
from rdchat.chat.transfer.imported_folders import ImportedFolder, ImportedFolders
from rdchat.errors import RdchatError
from rdchat.files import from_plain
from rdchat.inference.api import Role
from rdchat.wording import counted
from rdchat.work import CancelledError, Job

_REPORT_INTERVAL_S = 0.05
type Frame = dict[str, Any]
"""A message from the process; see above."""
# The digests of a message's files. Those of images begin with `image `, which earlier versions lacked: only the hash
# counts, which is 64 characters long.
_DIGESTS = """coalesce((SELECT group_concat(substr(digest, -64), ' ') FROM
    (SELECT digest FROM message_files WHERE message_id = messages.id ORDER BY position)), '')"""

_IMAGES = "SELECT id, digest FROM message_files WHERE conversation_id = ? AND kind = 'image'"
# An image of a hidden chat that did not come gets a digest of its own: that which the file names may be of one's own.
_LOSE = (
    "INSERT INTO file_texts (digest, text) VALUES ('lost ' || ?2, '') ON CONFLICT DO NOTHING",
    "UPDATE message_files SET digest = 'lost ' || ?2 WHERE id = ?1",
    """DELETE FROM file_texts
        WHERE digest = ?2
            AND NOT EXISTS (SELECT 1 FROM message_files f WHERE f.digest = ?2)
            AND NOT EXISTS (SELECT 1 FROM folder_files f WHERE f.digest = ?2)""",
)


@dataclass(frozen=True, slots=True)
class SkippedChat:
    """A chat that was not imported.

    Attributes:
        title: Its title, or its number in the file.
        reason: A sentence.
    """

    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartialChat:
    """A chat, or an archive of chats, that was imported without some of its parts.

    Attributes:
        title: Its title; the name of an archive.
        parts: The parts that were left out: `2 images, 1 tool call`.
    """

    title: str
    parts: str


@dataclass(slots=True)
class FileReport:
    """The result of importing one file: all of its chats appear at once, or none.

    Attributes:
        file: Name of the file.
        source: The app whose format it has, such as `ChatGPT`; empty if unknown.
        chats: Ids of the imported chats.
        messages: Number of their messages.
        archived: Number of them that went to the archive.
        folders: The folders that were made.
        notes: Ids of the notes that were added.
        without: Imported chats that lack something; the archive itself if it has files that were not read.
        already_here: Titles of chats that were already in the store.
        not_taken: Chats and projects that could not be imported.
        problem: A sentence: why nothing was imported; empty if the file could be read.
    """

    file: str
    source: str = ""
    chats: list[int] = field(default_factory=list)
    messages: int = 0
    archived: int = 0
    folders: list[ImportedFolder] = field(default_factory=list)
    notes: list[int] = field(default_factory=list)
    without: list[PartialChat] = field(default_factory=list)
    already_here: list[str] = field(default_factory=list)
    not_taken: list[SkippedChat] = field(default_factory=list)
    problem: str = ""

    @property
    def skipped(self) -> list[SkippedChat]:
        """The chats that were not imported, or the file itself if it could not be read."""
        return [SkippedChat(self.file, self.problem)] if self.problem else self.not_taken


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        files: A report for each file, in the order of reading.
        cancelled: Whether the person stopped it; earlier files are kept.
    """

    files: tuple[FileReport, ...] = ()
    cancelled: bool = False

    @property
    def chats(self) -> tuple[int, ...]:
        """Ids of all imported chats."""
        return tuple(each for file in self.files for each in file.chats)

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    @property
    def archived_text(self) -> str:
        """How many chats went to the archive, in words, with a blank before them; empty for none."""
        archived = sum(file.archived for file in self.files)
        return f" {counted(archived, 'chat')} went to the archive." if archived else ""

    @property
    def folders(self) -> tuple[ImportedFolder, ...]:
        """The folders that were made."""
        return tuple(each for file in self.files for each in file.folders)

    @property
    def notes(self) -> tuple[int, ...]:
        """Ids of the notes that were added."""
        return tuple(each for file in self.files for each in file.notes)

    @property
    def already_here(self) -> int:
        return sum(len(file.already_here) for file in self.files)

    @property
    def not_taken(self) -> tuple[SkippedChat, ...]:
        """Chats and files that were not imported."""
        return tuple(each for file in self.files for each in file.skipped)

    @property
    def without(self) -> tuple[PartialChat, ...]:
        return tuple(each for file in self.files for each in file.without)

    @property
    def is_complete(self) -> bool:
        """Whether every chat of every file was imported, or was here already."""
        return not self.cancelled and not self.not_taken


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export: number of `chats` written to the file or folder `path`."""

    path: str = ""
    chats: int = 0


class TaskProgress:
    """Reports the progress of a job as JSON (`LoadProgress`), and ends the work if the job is cancelled."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self._reported_at = 0.0

    def report(self, stage: str, fraction: float) -> None:
        """Report progress, at most 20 times a second; raise StopWork if the job was cancelled."""
        self.job.check_cancelled()
        if time.monotonic() - self._reported_at >= _REPORT_INTERVAL_S:
            self._reported_at = time.monotonic()
            self.job.report_progress({"stage": stage, "fraction": fraction})


def counted_parts(parts: Mapping[str, int]) -> str:
    """Return such as `2 images, 1 tool call`; parts with an empty name are left out.

    A name that ends with `s` is the same for several.
    """
    irregular = {name: name for name in parts if name.endswith("s")}
    named = (counted(number, name, irregular.get(name, "")) for name, number in parts.items() if name and number)
    return ", ".join(named)


def chat_frame(chat: FullChat, fallback_date: float) -> Frame:
    """Return a chat as the process sends it: our JSON, with the title and dates that the store needs.

    Args:
        chat: The chat.
        fallback_date: Its date, if it has none.
    """
    conversation = chat.conversation
    dates = [each.created_at for each in chat.messages if each.created_at]
    created = conversation.created_at or min(dates, default=fallback_date)
    updated = conversation.updated_at or max(dates, default=created)
    conversation = replace(conversation, title=title_of(chat), created_at=created, updated_at=updated)
    return {"chat": rdchat_json.plain_chat(replace(chat, conversation=conversation))}


class ImportWriter:
    """Stores the chats that the process sends. They stay hidden until the last chat of their file is stored.

    `store_frame` and `end_import` are called on the thread that reads from the process; `store_frame` returns when the
    frame is stored, so the process reads no faster than that.

    Args:
        database: The store's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # Ids of the stored and still hidden chats of the file that is being read.
        self._chats: list[int] = []
        # By the id of a chat, the names of its folders, the outer one first.
        self._folders: dict[int, Sequence[str]] = {}
        # A project is stored as a hidden chat with its files until its folder gets them; by the chat's id.
        self._projects: dict[int, FullChat] = {}
        # The folders of projects of this import, by the keys that their files have for them.
        self._keys: dict[str, int | None] = {}
        # Digests of the images that have come with this import.
        self._images: set[str] = set()
        # Reports of the files that were read before.
        self._reports: list[FileReport] = []
        # The error that ended the import.
        self._error: RdchatError | None = None

    def store_frame(self, frame: Frame) -> None:
        """Store a frame from the process.

        An error is kept for `end_import`. The ValueError then ends the process, as for a frame of the wrong form.
        """
        try:
            if "chat" in frame:
                self._database.run_bulk(self._adding(rdchat_json.read(frame["chat"]))).result()
            elif "image" in frame:
                file, text = rdchat_json.read_image(frame)
                self._images.add(file.digest)
                self._database.submit(lambda connection: add_image(connection, file, text)).result()
            else:
                self._end_file(from_plain(FileReport(""), frame["file"])[0])
        except RdchatError as error:
            self._error = error
            raise ValueError from error

    def end_import(self, outcome: Any, on_end: Callable[[ImportReport | RdchatError], object]) -> None:
        """Erase hidden chats, and call `on_end` with the report, or with the error that ended the import."""
        stopped = isinstance(outcome, CancelledError)
        error = self._error or (outcome if isinstance(outcome, RdchatError) and not stopped else None)
        report = ImportReport(tuple(self._reports), cancelled=stopped)

        def end(discarded: Any) -> None:
            on_end(error or (discarded if isinstance(discarded, RdchatError) else report))

        self._database.run_bulk(self._discarding(), end)

    def _end_file(self, report: FileReport) -> None:
        """Show the chats of the file, or erase them if it could not be read to its end; then forget it."""
        if report.problem:
            self._database.run_bulk(self._discarding()).result()
        else:
            self._database.run_bulk(self._losing()).result()
            self._database.submit(partial(self._reveal, report)).result()
            report.chats = [each for each in self._chats if each not in self._projects]
            # The hidden chats of projects are not needed now.
            self._chats = list(self._projects)
            self._database.run_bulk(self._discarding()).result()
        self._reports.append(report)
        self._chats = []
        self._folders = {}
        self._projects = {}

    # On the writer's thread

    def _adding(self, chat: FullChat) -> Generator[None]:
        """Insert a chat as bulk work, and note its folder, or that it is a project."""
        conversation = chat.conversation
        # Pinned chats are in the order in which they were changed last: a file has no dates of pinning.
        pinned_at = (
            conversation.updated_at if conversation.pinned_at is not None and not conversation.archived else None
        )
        chat = replace(chat, conversation=replace(conversation, pinned_at=pinned_at))
        first = len(self._chats)
        for chat_id in insert_in_steps(self._database.connection, chat):
            # From the first step on, `_discarding` knows of the chat.
            self._chats[first:] = [chat_id]
            yield
        if chat.is_project:
            self._projects[self._chats[-1]] = replace(chat, texts={})
        elif chat.folder:
            self._folders[self._chats[-1]] = chat.folder

    def _losing(self) -> Generator[None]:
        """Give the images that did not come digests of their own, as bulk work."""
        for chat in self._chats:
            images = self._database.connection.execute(_IMAGES, (chat,)).fetchall()
            lost = [each for each in images if each[1] not in self._images]
            for sql in _LOSE:
                self._database.connection.executemany(sql, lost)
            yield

    def _reveal(self, report: FileReport, connection: sqlite3.Connection) -> None:
        """Show all chats of the file at once, in folders with the names that the file has, and store its projects."""
        folders = ImportedFolders(connection, self._keys)
        # The folder around another one comes first, and notes alone last: they may be of any project.
        for hidden, project in sorted(self._projects.items(), key=lambda each: len(each[1].folder) or sys.maxsize):
            folders.add_project(hidden, project)
        for conversation, names in self._folders.items():
            folders.add_chat(conversation, names)
        report.folders = [*folders.made()]
        report.notes = folders.notes
        visible = [(each,) for each in self._chats if each not in self._projects]
        connection.executemany("UPDATE conversations SET unlisted = 0 WHERE id = ?", visible)

    def _discarding(self) -> Generator[None]:
        """Erase the chats that are still hidden, as bulk work."""
        while self._chats:
            yield from erasing_chat(self._database, self._chats[-1])
            self._database.connection.execute("DELETE FROM conversations WHERE id = ?", (self._chats.pop(),))
            yield


def take_back(report: ImportReport, connection: sqlite3.Connection) -> None:
    """Delete for good what an import has added; the chats disappear, and are erased later."""
    hide = "UPDATE conversations SET deleted_at = ?, unlisted = 1 WHERE id = ?"
    connection.executemany(hide, [(time.time(), each) for each in report.chats])
    connection.executemany("DELETE FROM notes WHERE id = ? AND NOT kept", [(each,) for each in report.notes])
    connection.executemany("DELETE FROM folders WHERE id = ?", [(each.id,) for each in report.folders])


class KnownChats:
    """Finds out whether the store already has a chat: the same title, and the same messages and files.

    Args:
        connection: Reads the store.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, list[int]] = {}
        self._imported: set[tuple[str, bytes]] = set()
        sql = "SELECT id, title FROM conversations WHERE deleted_at IS NULL AND unlisted = 0"
        for conversation, title in connection.execute(sql):
            self._ids.setdefault(title, []).append(conversation)

    def have(self, key: tuple[str, bytes]) -> bool:
        """Return whether the store has a chat with this key."""
        title, contents = key
        return key in self._imported or any(self._contents(each) == contents for each in self._ids.get(title, []))

    def add_chats(self, keys: Iterable[tuple[str, bytes]]) -> None:
        """Add the chats of a file that was imported meanwhile."""
        self._imported.update(keys)

    def _contents(self, conversation: int) -> bytes:
        sql = f"SELECT role, text, {_DIGESTS} FROM messages WHERE conversation_id = ? AND {NOT_DELETED}"
        return _hash_of(self._connection.execute(sql, (conversation,)).fetchall())


def key_of(chat: FullChat) -> tuple[str, bytes]:
    """Return the key of a chat in `KnownChats`: its title, and a hash of its messages."""
    contents = [(each.role.value, text_column(each.text), " ".join(file.digest[-64:] for file in each.files))
                for each in chat.messages]  # fmt: skip
    return title_of(chat), _hash_of(contents)


def _hash_of(contents: list[tuple[str, str, str]]) -> bytes:
    return hashlib.sha256(repr(sorted(contents)).encode()).digest()


def title_of(chat: FullChat) -> str:
    """Return a chat's title in the store: its own, or one made from its first prompt."""
    if title := text_column(tidy_title(chat.conversation.title)):
        return title
    first = next((message.text for message in chat.messages if message.role is Role.USER), "")
    return text_column(title_from_prompt(first)) if first else NEW_CHAT
