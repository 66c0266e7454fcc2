"""Reads files of chats: finds out which app wrote each, and sends its chats to be stored."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat
from rdchat.chat.transfer.chat_import import Frame, KnownChats, chat_frame, key_of, title_of
from rdchat.chat.transfer.formats import chatgpt, jan, lm_studio, rdchat_json
from rdchat.chat.transfer.formats.fields import chat_name, chat_name_in, mapping
from rdchat.chat.transfer.json_list import ListValue
from rdchat.chat.transfer.reports import FileReport, NotTaken, TaskProgress, Without, counted_parts
from rdchat.chat.transfer.source_files import (
    TOO_LONG,
    OutOfBoundsError,
    SourceFile,
    UnreadableFileError,
    check_marks,
    files_in,
    open_source,
    parsed,
)
from rdchat.chat.transfer.stored_chats import is_database, stored_chats
from rdchat.work.frames import FrameError

_MOST_NOT_TAKEN = 10_000  # chats of one file that are named in its report

type Chats = Iterator[tuple[float, str, Callable[[], WholeChat]]]
"""Of each chat: the share of the file before it, its title, and what makes it, which raises DamagedChatError."""

_KINDS = "rdchat's own JSON and database, ChatGPT's conversations.json, and chat files of LM Studio and Jan"


def read_files(database: Path, paths: Sequence[Path], send: Callable[[Frame], object], progress: TaskProgress) -> None:
    """Read files, and those of chats in folders, one after another; each ends with its report.

    A file that cannot be read takes nothing from the others.

    Args:
        database: The store's file, whose chats are not imported again.
        paths: What to read.
        send: Gets the chats (`chat_frame`) and reports.
        progress: Of the whole.
    """
    files: list[Path] = []
    for path in paths:
        try:
            files += files_in(path)
        except UnreadableFileError as error:
            send({"file": asdict(FileReport(path.name or str(path), problem=str(error)))})
    with reading(database) as connection:
        known = KnownChats(connection)
        for place, path in enumerate(files):
            progress.tell(f"Reading {path.name}", place / len(files))
            reader = _FileReader(path, known, send)
            try:
                for before in reader.read(progress):
                    progress.tell(f"Importing from {path.name}", (place + before) / len(files))
            except (UnreadableFileError, FrameError) as error:
                send({"file": asdict(FileReport(path.name, problem=str(error)))})
            else:
                known.add(reader.taken)
                send({"file": asdict(reader.report())})


class _FileReader:
    """Reads one file.

    Attributes:
        taken: Keys of the chats that were sent.
    """

    def __init__(self, path: Path, known: KnownChats, send: Callable[[Frame], object]) -> None:
        self._path, self._known, self._send = path, known, send
        self.taken: list[tuple[str, bytes]] = []
        self._sources: list[str] = []
        self._messages = 0
        self._without: list[Without] = []
        self._already_here: list[str] = []
        self._not_taken: list[NotTaken] = []

    def read(self, progress: TaskProgress) -> Iterator[float]:
        """Send the chats; yield the share of the file before each."""
        for kind, chats in self._found(progress):
            self._sources.append(kind)
            for before, title, make in chats:
                yield before
                self._take(title, make)

    def _found(self, progress: TaskProgress) -> Iterator[tuple[str, Chats]]:
        if is_database(self._path):
            yield rdchat_json.NAME, stored_chats(self._path, progress)
        else:
            yield from map(recognised, open_source(self._path))

    def _take(self, title: str, make: Callable[[], WholeChat]) -> None:
        """Send a chat, or note why not."""
        try:
            chat = make()
        except DamagedChatError as error:
            self._leave(title, f"{error}.")
            return
        except (TypeError, ValueError, OverflowError, LookupError, RecursionError):  # a kind of damage not looked for
            self._leave(title, "It is damaged.")
            return
        parts = counted_parts(chat.without)
        if not chat.messages:
            reason = f"It has no messages that rdchat can show, only {parts}." if parts else "It has no messages."
            self._leave(title, reason)
        elif self._known.have(key := key_of(chat)):
            self._already_here.append(title_of(chat))
        else:
            self._send(chat_frame(chat, self._date()))
            self.taken.append(key)
            self._messages += len(chat.messages)
            self._without += [Without(title_of(chat), parts)] if parts else []

    def _leave(self, title: str, reason: str) -> None:
        self._not_taken.append(NotTaken(title, reason))
        if len(self._not_taken) > _MOST_NOT_TAKEN:
            raise UnreadableFileError(f"It is damaged: more than {_MOST_NOT_TAKEN:,} of its chats cannot be taken.")

    def _date(self) -> float:
        try:
            return self._path.stat().st_mtime
        except OSError:  # reading it says what is wrong
            return time.time()

    def report(self) -> FileReport:
        return FileReport(
            self._path.name,
            " and ".join(dict.fromkeys(self._sources)),
            messages=self._messages,
            without=tuple(self._without),
            already_here=tuple(self._already_here),
            not_taken=tuple(self._not_taken),
        )


def recognised(source: SourceFile) -> tuple[str, Chats]:
    """Return whose file it is, and its chats.

    Raises:
        UnreadableFileError: If it is none that rdchat reads, or damaged as a whole; the chats raise it too.
    """
    if source.base == jan.MESSAGES:
        return jan.NAME, _jan(source, source.read())
    source = source.in_utf8()
    beginning = source.beginning()
    if (found := rdchat_json.head_of(beginning)) is not None:
        head, place = found
        _refuse_newer(source, head)
        return rdchat_json.NAME, _listed(source, place, b'{"chats": [', rdchat_json.read)
    if beginning.lstrip().startswith(b"["):
        return _recognised_list(source, beginning.index(b"[") + 1, beginning)
    return _recognised_whole(source, parsed(source.read(), source.name))


def _recognised_list(source: SourceFile, place: int, beginning: bytes) -> tuple[str, Chats]:
    if chatgpt.may_be_ours(beginning):
        return chatgpt.NAME, _listed(source, place, b"[", chatgpt.read)
    if sum(1 for _ in source.values(place, b"[")):  # also finds out whether it is whole
        raise _of_another_kind(source)
    raise UnreadableFileError(f"{source.name} holds no chats.")


def _recognised_whole(source: SourceFile, data: Any) -> tuple[str, Chats]:
    if rdchat_json.is_ours(data):
        return rdchat_json.NAME, _own(source, data)
    if chatgpt.is_ours(data):
        return chatgpt.NAME, iter([(0.0, chat_name(data, 0), _later(chatgpt.read, data))])
    if lm_studio.is_ours(data):
        return lm_studio.NAME, iter([(0.0, source.base, _later(lm_studio.read, data))])
    if jan.is_ours(data):
        return jan.NAME, _jan(source, source.beside(jan.MESSAGES), data)
    if lm_studio.is_old(data):
        return lm_studio.NAME, _old_lm_studio(source, data)
    raise _of_another_kind(source)


def _of_another_kind(source: SourceFile) -> UnreadableFileError:
    return UnreadableFileError(f"{source.name} is none of the files that rdchat imports: {_KINDS}.")


def _refuse_newer(source: SourceFile, head: Any) -> None:
    if rdchat_json.is_newer(head):
        raise UnreadableFileError(f"{source.name} is from a newer version of rdchat.", "Install that version first.")


def _own(source: SourceFile, data: Any) -> Chats:
    _refuse_newer(source, data)
    try:
        chats = rdchat_json.chats(data)
    except DamagedChatError as error:
        raise UnreadableFileError(f"{source.name} is damaged: {error}.") from error
    return (
        (place / len(chats), chat_name(chat, place), _later(rdchat_json.read, chat)) for place, chat in enumerate(chats)
    )


def _listed(source: SourceFile, place: int, end: bytes, read: Callable[[Any], WholeChat]) -> Chats:
    """Yield the chats of a list that begins at a place; one of them is in memory at a time."""
    for number, value in enumerate(source.values(place, end)):
        share = min((place + value.before) / max(source.size, 1), 1.0)
        try:
            chat = _parsed(value)
        except OutOfBoundsError as error:
            yield share, chat_name_in(value.data, number), partial(_refuse, error.words)
        else:
            yield share, chat_name(chat, number), _later(read, chat)


def _parsed(value: ListValue) -> Any:
    if value.too_long:
        raise OutOfBoundsError("The chat", TOO_LONG)
    return parsed(value.data, "The chat")


def _refuse(words: str) -> WholeChat:
    raise DamagedChatError(f"It {words}")


def _jan(source: SourceFile, messages: bytes | None, thread: Any = None) -> Chats:
    def make() -> WholeChat:
        if messages is None:
            raise DamagedChatError(f"There is no {jan.MESSAGES} beside it")
        check_marks(messages, source.name)
        about = thread if thread is not None else _beside(source, jan.THREAD)
        return jan.read(mapping(about, jan.THREAD), jan.lines_of(messages))

    yield 0.0, source.name, make


def _old_lm_studio(source: SourceFile, data: Any) -> Chats:
    stem = source.base.removesuffix(".json").removesuffix(".chat")

    def make() -> WholeChat:
        config, metadata = (_beside(source, f"{stem}.{kind}.chat.json") for kind in ("config", "metadata"))
        return lm_studio.read_old(data, mapping(config, "Its settings"), mapping(metadata, "Its metadata"))

    yield 0.0, source.base, make


def _beside(source: SourceFile, name: str) -> Any:
    """Return the JSON of a file beside, None where there is none."""
    try:
        data = source.beside(name)
        return None if data is None else parsed(data, name)
    except UnreadableFileError as error:
        raise DamagedChatError(error.message.rstrip(".")) from error


def _later(read: Callable[[Any], WholeChat], data: Any) -> Callable[[], WholeChat]:
    return lambda: read(data)
