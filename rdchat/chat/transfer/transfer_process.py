"""Imports, exports and backups in a child process, `rdchat --child transfer`: both sides of its pipe.

Parsing a hundred megabytes would block the window's interpreter, and a hostile file could fill its memory. The process
only reads the store; the app stores the chats of an import (`ImportWriter`).

First comes what the process does to import: `read_files` reads files, and `recognised` finds out which app wrote one.
Then the app's side, `TransferProcess`, which the window and the commands use, and at the end the process's `main`.
"""

import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.chat.attachments.attached_file import printable_name
from rdchat.chat.storage import (
    DamagedChatError,
    Database,
    FullChat,
    folders_listed,
    read_chat,
    read_project,
    reading,
    rows_of,
    visible_ids,
)
from rdchat.chat.transfer import chatgpt, rdchat_json
from rdchat.chat.transfer.backups import DATABASE, PREPARED, back_up, prepare
from rdchat.chat.transfer.chat_apps import JAN, LIBRECHAT, LM_STUDIO, MESSAGES, THREAD, is_jan, jan_chat, jan_lines
from rdchat.chat.transfer.chat_import import (
    FileReport,
    Frame,
    ImportReport,
    ImportWriter,
    KnownChats,
    PartialChat,
    SkippedChat,
    TaskProgress,
    chat_frame,
    counted_parts,
    key_of,
    title_of,
)
from rdchat.chat.transfer.claude_projects import MEMORIES, PROJECTS, is_memories_name, is_projects_name
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.foreign_chats import ChatFormat, name
from rdchat.chat.transfer.message_trees import CLAUDE, DEEPSEEK, OPEN_WEBUI
from rdchat.chat.transfer.source_files import SourceFile, UnreadableFileError, files_in, open_source, parsed
from rdchat.errors import StorageError, StorageFullError
from rdchat.files import from_plain, opened
from rdchat.inference.api import LoadProgress
from rdchat.wording import counted
from rdchat.work import ChildError, ChildLimitError, ChildProcess, FrameError, Job, Limits, serve

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# With more chats that cannot be imported, a file is refused.
_MAX_NOT_TAKEN = 10_000
# The most projects and notes of a file: they are stored at once.
_MAX_SHARED = 3000
_MAGIC = b"SQLite format 3\0"
_TITLE = "SELECT substr(title, 1, 200) FROM conversations WHERE id = ?"

type Entry = FullChat | rdchat_json.Image
type Chats = Iterable[tuple[float, str, Callable[[], Entry]]]
"""For each chat: the share of the file before it, its title, and a function that reads it or raises DamagedChatError.

In rdchat's own files, an image of a chat may follow it as an entry of its own.
"""

_KINDS = (
    "rdchat's own JSON and database, conversations.json of ChatGPT, Claude and DeepSeek, and chats of Open WebUI, "
    "LibreChat, LM Studio and Jan"
)
# DeepSeek comes before ChatGPT: chats of both have a `mapping`.
FORMATS = (PROJECTS, MEMORIES, CLAUDE, DEEPSEEK, OPEN_WEBUI, LIBRECHAT, chatgpt.FORMAT, LM_STUDIO)
# A list is refused if its format is in none of so many entries: the first ones may be damaged.
_LOOKED_AT = 100


def read_files(database: Path, paths: Sequence[Path], send: Callable[[Frame], object], progress: TaskProgress) -> None:
    """Read files and folders of chats, one file after another; each ends with a report.

    A file that cannot be read does not affect the others.

    Args:
        database: The store's file; its chats are not imported again.
        paths: The files and folders.
        send: Receives the chats (`chat_frame`) and reports.
        progress: Progress of the whole import.
    """
    files: list[Path] = []
    for path in paths:
        unread: list[str] = []
        try:
            files += files_in(path, unread)
            if without := _unread_files(path, unread):
                send({"file": asdict(FileReport(path.name, without=without))})
        except UnreadableFileError as error:
            send({"file": asdict(FileReport(path.name or str(path), problem=str(error)))})
    # Memories are read behind the projects that they are about.
    files.sort(key=is_memories_name)
    with reading(database) as connection:
        known = KnownChats(connection)
        for index, path in enumerate(files):
            progress.report(f"Reading {path.name}", index / len(files))
            reader = _FileReader(path, known, send)
            try:
                for before in reader.send_chats(progress):
                    progress.report(f"Importing from {path.name}", (index + before) / len(files))
            except UnreadableFileError as error:
                reader.report = FileReport(path.name, problem=str(error))
            else:
                known.add_chats(reader.taken)
            send({"file": asdict(reader.report)})


class _FileReader:
    """Reads one file.

    Attributes:
        report: The report so far.
        taken: Keys of the chats that were sent; they are known (`KnownChats`) once the whole file was read.
    """

    def __init__(self, path: Path, known: KnownChats, send: Callable[[Frame], object]) -> None:
        self._path = path
        self._known = known
        self._send = send
        self.report = FileReport(path.name)
        self.taken: list[tuple[str, bytes]] = []
        # The images that should follow as entries: by digest, the title of their chat.
        self._awaited: dict[str, str] = {}
        # Number of projects and their notes.
        self._shared = 0

    def send_chats(self, progress: TaskProgress) -> Iterator[float]:
        """Send the chats; yield the share of the file before each."""
        sources: dict[str, None] = {}
        unread: list[str] = []
        if _is_database(self._path):
            found: Iterable[tuple[str, Chats]] = [(rdchat_json.NAME, _stored_chats(self._path, progress))]
        else:
            found = self._recognised(unread)
        for kind, chats in found:
            sources[kind] = None
            self.report.source = " and ".join(sources)
            for before, title, read_entry in chats:
                yield before
                entry = self._read(title, read_entry)
                if isinstance(entry, FullChat):
                    self._send_chat(title, entry)
                # An image that no chat of the file lacks is passed over.
                elif entry and self._awaited.pop(entry[0].digest, ""):
                    self._send({"image": entry[1]})
        for title, number in Counter(self._awaited.values()).items():
            self.report.without.append(PartialChat(title, counted_parts({"damaged image": number})))
        self.report.without += _unread_files(self._path, unread)

    def _recognised(self, unread: list[str]) -> Iterator[tuple[str, Chats]]:
        """Yield what is in each file; one that has no chats by its name, and is of another kind, is `unread`."""
        for source in open_source(self._path, unread):
            try:
                yield recognised(source)
            except UnreadableFileError:
                if not is_projects_name(source.path.parent / source.name):
                    raise
                unread.append(source.name.removeprefix(f"{self._path.name}/"))

    def _read(self, title: str, read_entry: Callable[[], Entry]) -> Entry | None:
        """Return a chat or an image, or note why it is left out."""
        try:
            return read_entry()
        except DamagedChatError as error:
            self._leave(title, f"{error}.")
        except (TypeError, ValueError, OverflowError, LookupError, RecursionError):
            self._leave(title, "It is damaged.")
        return None

    def _send_chat(self, title: str, chat: FullChat) -> None:
        """Send a chat, or note why it is left out."""
        parts = counted_parts(chat.without)
        self._shared += chat.is_project + len(chat.notes)
        if chat.is_project and self._shared > _MAX_SHARED:
            self._leave(title, f"The file has more than {_MAX_SHARED:,} projects and notes.")
        elif not (chat.messages or chat.is_project):
            reason = f"It has no messages that rdchat can show, only {parts}." if parts else "It has no messages."
            self._leave(title, reason)
        elif self._known.have(key := key_of(chat)) and not chat.is_project:
            self.report.already_here.append(title_of(chat))
        elif chat.is_project and chat.without.get(rdchat_json.NAMED) and not (chat.key or self.taken):
            # It came along with a chat that is here already.
            pass
        else:
            written_at = self._path.stat().st_mtime if self._path.exists() else time.time()
            try:
                self._send(chat_frame(chat, written_at))
            except FrameError:
                self._leave(title, "It is too large.")
                return
            for digest in rdchat_json.image_digests(chat):
                if text := chat.texts[digest]:
                    self._send({"image": text})
                else:
                    self._awaited[digest] = title_of(chat)
            if not chat.is_project:
                self.taken.append(key)
                self.report.messages += len(chat.messages)
                self.report.archived += chat.conversation.archived
            if parts:
                self.report.without.append(PartialChat(title_of(chat), parts))

    def _leave(self, title: str, reason: str) -> None:
        self.report.not_taken.append(SkippedChat(title, reason))
        if len(self.report.not_taken) > _MAX_NOT_TAKEN:
            raise UnreadableFileError(f"It is damaged: more than {_MAX_NOT_TAKEN:,} of its chats cannot be imported.")


def _unread_files(path: Path, names: Sequence[str]) -> list[PartialChat]:
    """Return the entry of a report for the files that were not read in an archive or a folder; none without any.

    The first 20 are named, all are counted.
    """
    listed = ", ".join(map(printable_name, names[:20]))
    return [PartialChat(path.name, f"{counted(len(names), 'file')}: {listed}")] if names else []


def _is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database, of any program."""
    if not path.is_file():
        return False
    # Reading it will report the error.
    with suppress(OSError), opened(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


def _stored_chats(path: Path, progress: TaskProgress) -> Chats:
    """Yield the chats of a database of this or an older version, without its Trash; the file is not changed.

    Raises:
        UnreadableFileError: If it is damaged, not ours, or of a newer version.
        StorageFullError: If the disk for temporary files is full.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-") as folder:
        try:
            # This copies the database and migrates the copy to this version; its own progress is not shown.
            copying = Job[Any]()
            progress.job.when_cancelled(copying.cancel)
            prepare(copying, str(path), folder)
        except StorageFullError:
            raise
        except StorageError as error:
            raise UnreadableFileError(error.message) from error
        with reading(Path(folder) / PREPARED / DATABASE) as connection:
            ids = visible_ids(connection)
            for index, conversation in enumerate(ids):
                title = connection.execute(_TITLE, (conversation,)).fetchone()[0]
                yield index / len(ids), title, partial(_read_stored, read_chat, connection, conversation)
            for each in filter(attrgetter("is_project"), folders_listed(rows_of(connection))):
                yield 1.0, each.name, partial(_read_stored, read_project, connection, each)


def _read_stored[T](
    read: Callable[[sqlite3.Connection, T], FullChat], connection: sqlite3.Connection, of: T
) -> FullChat:
    try:
        return read(connection, of)
    except (sqlite3.Error, StorageError) as error:
        raise DamagedChatError("It cannot be read") from error


def recognised(source: SourceFile) -> tuple[str, Chats]:
    """Return the name of the app that wrote a file, and its chats.

    - Jan's messages are known by the file's name.
    - In our own format, with the chats last, and in a list, chats are read one at a time. The first entry of a list
      that is a chat of one of `FORMATS` decides for all.
    - Any other JSON object is read as a whole (`_recognised_file`).

    Raises:
        UnreadableFileError: If rdchat cannot read it, or it is damaged as a whole; also raised by the chats.
    """
    if source.base == MESSAGES:
        return JAN, [(0.0, source.name, partial(_read_jan, source.sibling(THREAD), source))]
    beginning = source.beginning()
    first = beginning.lstrip()[:1]
    if first not in {"{", "[", ""}:
        raise _of_another_kind(source)
    if (own := rdchat_json.head_of(beginning)) is not None:
        head, start = own
        _refuse_newer(source, head)
        return rdchat_json.NAME, _listed(source.list_values(start, '{"chats": ['), rdchat_json.read_entry)
    if first != "[":
        return _recognised_file(source, parsed(source.read_content(), source.name))
    start = beginning.index("[") + 1
    is_empty = True
    for _, chat in islice(source.list_values(start, "["), _LOOKED_AT):
        is_empty = False
        if (kind := _format_of(chat)) is not None:
            return kind.name, _listed(source.list_values(start, "["), partial(kind.read, find=source.image))
    raise UnreadableFileError(f"{source.name} has no chats.") if is_empty else _of_another_kind(source)


def _format_of(chat: Any) -> ChatFormat | None:
    return next((kind for kind in FORMATS if isinstance(chat, dict) and kind.is_ours(chat)), None)


def _recognised_file(source: SourceFile, data: Any) -> tuple[str, Chats]:
    if rdchat_json.is_ours(data):
        _refuse_newer(source, data)
        if not isinstance(data.get("chats"), list):
            raise UnreadableFileError(f"{source.name} is damaged: it has no list of chats.")
        return rdchat_json.NAME, _listed(((0.0, chat) for chat in data["chats"]), rdchat_json.read_entry)
    if (kind := _format_of(data)) is not None:
        title = name(data.get("title")) or source.base
        return kind.name, [(0.0, title, partial(kind.read, data, source.image))]
    if is_jan(data):
        return JAN, [(0.0, source.name, partial(_read_jan, source, source.sibling(MESSAGES)))]
    if source.base.endswith(".chat.json"):
        raise UnreadableFileError(f"{source.name} is from LM Studio 0.2.", "Open it in LM Studio 0.3 or later first.")
    raise _of_another_kind(source)


def _of_another_kind(source: SourceFile) -> UnreadableFileError:
    return UnreadableFileError(f"{source.name} is no chat export. rdchat imports {_KINDS}.")


def _refuse_newer(source: SourceFile, head: Any) -> None:
    """Refuse a file that a later rdchat wrote in a format that this one would misread."""
    version = head.get("version")
    if type(version) is not int or version > rdchat_json.VERSION:
        raise UnreadableFileError(f"{source.name} is from a newer version of rdchat.", "Install that version first.")


def _listed(values: Iterable[tuple[float, Any]], read: Callable[[Any], Entry]) -> Chats:
    """Yield the chats of a list, each with the share of the file before it, one at a time in memory."""
    for number, (share, chat) in enumerate(values, start=1):
        title = name(chat.get("title") or chat.get("name")) if isinstance(chat, dict) else None
        yield share, title or f"Chat {number}", partial(read, chat)


def _read_jan(thread: SourceFile | None, messages: SourceFile | None) -> FullChat:
    if messages is None:
        raise DamagedChatError(f"There is no {MESSAGES} beside it")
    try:
        facts = None if thread is None else parsed(thread.read_content(), thread.base)
    except UnreadableFileError as error:
        # The messages are in the other file, so they are kept: a text in place of the object counts as damaged.
        facts = error.message
    return jan_chat(facts, jan_lines(messages.read_content()))


type OnProgress = Callable[[LoadProgress], object]
type OnEnd = Callable[[Any], object]

STOP_S = 5.0
"""Time for a cancelled task to stop in good order."""
# Time for a cancelled task to answer. A busy machine takes long; the window stays usable meanwhile.
_CANCEL_S = 60.0
# The limit is for foreign files; the other tasks read stored chats of any size.
_MEMORY_BYTES = 1 << 30


class TransferProcess:
    """The app's side. Callbacks run on another thread: `on_end` with the result or a StorageError.

    Args:
        idle_s: The process ends after this time without a task; None keeps it.
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self.child = ChildProcess("transfer", idle_s=idle_s)

    def run_task[T: "DataclassInstance"](
        self, do: str, result: T, on_progress: OnProgress, on_end: OnEnd | None = None, **arguments: Any
    ) -> Job[T]:
        """Run a task: `export_chats`, `back_up` or `prepare`.

        Args:
            do: Its name.
            result: An instance of the result type, whose fields are replaced.
            on_progress: Called while it runs.
            on_end: Called at its end.
            arguments: Arguments of the task. Paths become absolute, because the process may run in another folder.
        """
        job: Job[T] = Job(on_progress, on_end)

        def end(outcome: Any) -> None:
            job.set_outcome(from_plain(result, outcome)[0] if isinstance(outcome, dict) else outcome)

        return self._start(job, do, arguments, end)

    def import_files(
        self, database: Database, paths: Sequence[Path], on_progress: OnProgress, on_end: OnEnd | None = None
    ) -> Job[ImportReport]:
        """Import files and folders; the chats of files read before a failure or cancellation are kept."""
        job: Job[ImportReport] = Job(on_progress, on_end)
        writer = ImportWriter(database)
        arguments = {"database": database.path, "paths": [str(path.absolute()) for path in paths]}
        return self._start(
            job, "import_files", arguments, partial(writer.end_import, on_end=job.set_outcome), writer.store_frame
        )

    def _start[T](
        self, job: Job[T], do: str, arguments: dict[str, Any], end: OnEnd, take: OnEnd | None = None
    ) -> Job[T]:
        """Run a task. `take` gets the frames besides progress, `end` the answer or an error."""

        def on_progress(frame: Any) -> None:
            if "stage" not in frame and take is not None:
                take(frame)
            elif not job.cancelled:
                job.report_progress(LoadProgress(str(frame["stage"]), frame["fraction"]))

        request = {name: str(each.absolute()) if isinstance(each, Path) else each for name, each in arguments.items()}
        is_foreign = do in (import_files.__name__, prepare.__name__)
        limits = Limits(memory_bytes=_MEMORY_BYTES if is_foreign else None, cancel_s=_CANCEL_S)
        child_job = self.child.submit(
            do, request, limits, read=_checked, on_progress=on_progress, on_end=lambda outcome: end(_as_text(outcome))
        )
        job.when_cancelled(child_job.cancel)
        return job

    def close(self) -> None:
        """Stop what the process does. Idempotent."""
        self.child.close(STOP_S)


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict) or not answer:
        raise TypeError("no result")
    return answer


def _as_text(outcome: Any) -> Any:
    """Return a result unchanged, and an error of the process as one about what the person did."""
    match outcome:
        case ChildLimitError():
            hint = (
                "Import the files one at a time to find the one that is too large. The chats of earlier files are kept."
            )
            return StorageError(f"Reading the file {outcome.reason}.", hint)
        case ChildError():
            return StorageError("The task ended unexpectedly.", "Nothing was kept. Try again.")
    return outcome


# The process's own side


def main() -> int:
    """Answer requests until the parent ends."""
    calls = (import_files, export_chats, back_up, prepare)
    return serve({call.__name__: call for call in calls}, grace_s=STOP_S, logs=True)


def import_files(job: Job[Any], database: str, paths: list[str]) -> dict[str, Any]:
    """Send the chats in files to the parent (`read_files`)."""
    read_files(Path(database), [Path(path) for path in paths], job.report_progress, TaskProgress(job))
    # The app takes an empty answer for an error (`_checked`).
    return {"ended": True}
