"""Imports files of chats: finds out whose they are, makes chats of them, and writes all of a file or nothing."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rdchat.chat.storage.precedence import Precedence
from rdchat.chat.transfer.chat_writer import ChatWriter, KnownChats, title_of
from rdchat.chat.transfer.connections import writing
from rdchat.chat.transfer.formats import chatgpt, jan, lm_studio, rdchat_json
from rdchat.chat.transfer.formats.fields import chat_name, chat_name_in, mapping
from rdchat.chat.transfer.json_list import ListValue
from rdchat.chat.transfer.portable import DamagedChatError, PortableChat
from rdchat.chat.transfer.reports import FileReport, ImportReport, NotTaken, Progress, Without, counted_parts
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
from rdchat.errors import StorageError

_MOST_NOT_TAKEN = 10_000  # of one file, each of which is told of
_LOOKED_AT = 100  # chats, to find out whose they are; some may be damaged

type Chats = Iterator[tuple[float, str, Callable[[], PortableChat]]]
"""Of each chat: the share of the file before it, its title, and what makes it, which raises DamagedChatError."""

_KINDS = "rdchat's own JSON and database, ChatGPT's conversations.json, and chat files of LM Studio and Jan"


class CancelledError(Exception):
    """The person stopped what goes on."""


class Import:
    """Imports files, one after another.

    Args:
        database: The store's file.
        tell: Called with where it stands.
        check: Called often; raises CancelledError to stop.
        considerate: Whether a window uses the store too.
    """

    def __init__(
        self,
        database: Path,
        tell: Callable[[Progress], object],
        check: Callable[[], object] = lambda: None,
        *,
        considerate: bool = True,
    ) -> None:
        self._database, self._tell, self._check, self._considerate = database, tell, check, considerate

    def run(self, paths: Sequence[Path]) -> ImportReport:
        """Import files, and those of chats in folders.

        A file that cannot be read takes nothing from the others.

        Raises:
            StorageError: If the store cannot be written; what was imported of files before stays.
        """
        reports: list[FileReport] = []
        files: list[Path] = []
        for path in paths:
            try:
                files += files_in(path)
            except UnreadableFileError as error:
                reports.append(FileReport(path.name or str(path), problem=str(error)))
        with writing(self._database) as connection, self._precedence() as precedence:
            known = KnownChats(connection)
            for place, path in enumerate(files):
                self._tell(Progress(f"Reading {path.name}", place / len(files)))
                share = (place / len(files), 1 / len(files))
                try:
                    reports.append(self._import_file(ChatWriter(connection, precedence), known, path, share))
                except CancelledError:
                    return ImportReport(tuple(reports), cancelled=True)
                except sqlite3.Error as error:
                    raise StorageError(
                        f"The chats cannot be stored: {error}.", "Check the disk, then try again."
                    ) from error
        return ImportReport(tuple(reports))

    def _import_file(self, writer: ChatWriter, known: KnownChats, path: Path, share: tuple[float, float]) -> FileReport:
        taking = _Taking(writer, known, self._fallback_date(path))
        try:
            for kind, chats in self._found_in(path):
                self._check()
                taking.sources.append(kind)
                for before, title, make in chats:
                    self._check()
                    self._tell(Progress(f"Importing from {path.name}", share[0] + share[1] * before))
                    taking.take(title, make)
            writer.show()
        except UnreadableFileError as error:
            writer.discard()
            return FileReport(path.name, problem=str(error))
        except BaseException:
            writer.discard()
            raise
        known.add(taking.taken)
        return taking.report(path.name)

    def _found_in(self, path: Path) -> Iterator[tuple[str, Chats]]:
        if is_database(path):
            yield rdchat_json.NAME, stored_chats(path, self._check)
        else:
            yield from map(recognised, open_source(path))

    @contextmanager
    def _precedence(self) -> Iterator[Precedence | None]:
        precedence = Precedence(self._database) if self._considerate else None
        try:
            yield precedence
        finally:
            if precedence:
                precedence.close()

    @staticmethod
    def _fallback_date(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # reading it says what is wrong
            return time.time()


class _Taking:
    """What was taken of a file so far, and what not."""

    def __init__(self, writer: ChatWriter, known: KnownChats, fallback_date: float) -> None:
        self._writer, self._known, self._fallback_date = writer, known, fallback_date
        self.sources: list[str] = []
        self.taken: list[tuple[int, str]] = []
        self._messages = 0
        self._without: list[Without] = []
        self._already_here: list[str] = []
        self._not_taken: list[NotTaken] = []

    def take(self, title: str, make: Callable[[], PortableChat]) -> None:
        """Write a chat, or note why not."""
        try:
            chat = make()
        except DamagedChatError as error:
            self._leave(title, f"{error}.")
            return
        except (TypeError, ValueError, OverflowError, LookupError, RecursionError):  # a kind of damage not looked for
            self._leave(title, "It is damaged.")
            return
        if not chat.messages:
            parts = counted_parts(chat.without)
            reason = f"It has no messages that rdchat can show, only {parts}." if parts else "It has no messages."
            self._leave(title, reason)
        elif self._known.have(chat):
            self._already_here.append(title_of(chat))
        else:
            self.taken.append((self._writer.add(chat, self._fallback_date), title_of(chat)))
            self._messages += len(chat.messages)
            if parts := counted_parts(chat.without):
                self._without.append(Without(title_of(chat), parts))

    def _leave(self, title: str, reason: str) -> None:
        self._not_taken.append(NotTaken(title, reason))
        if len(self._not_taken) > _MOST_NOT_TAKEN:
            raise UnreadableFileError(f"It is damaged: more than {_MOST_NOT_TAKEN:,} of its chats cannot be taken.")

    def report(self, file: str) -> FileReport:
        return FileReport(
            file,
            " and ".join(dict.fromkeys(self.sources)),
            tuple(conversation for conversation, _ in self.taken),
            self._messages,
            tuple(self._without),
            tuple(self._already_here),
            tuple(self._not_taken),
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
        return _recognised_list(source, beginning.index(b"[") + 1)
    return _recognised_whole(source, parsed(source.read(), source.name))


def _recognised_list(source: SourceFile, place: int) -> tuple[str, Chats]:
    with closing(source.values(place, b"[")) as values:
        found = [_is_chatgpt(value) for value in islice(values, _LOOKED_AT)]
    if not found:
        raise UnreadableFileError(f"{source.name} holds no chats.")
    if not any(found):
        raise _of_another_kind(source)
    return chatgpt.NAME, _listed(source, place, b"[", chatgpt.read)


def _is_chatgpt(value: ListValue) -> bool:
    try:
        return chatgpt.is_ours(_parsed(value))
    except OutOfBoundsError:
        return chatgpt.may_be_ours(value.data)


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


def _listed(source: SourceFile, place: int, end: bytes, read: Callable[[Any], PortableChat]) -> Chats:
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


def _refuse(words: str) -> PortableChat:
    raise DamagedChatError(f"It {words}")


def _jan(source: SourceFile, messages: bytes | None, thread: Any = None) -> Chats:
    def make() -> PortableChat:
        if messages is None:
            raise DamagedChatError(f"There is no {jan.MESSAGES} beside it")
        check_marks(messages, source.name)
        about = thread if thread is not None else _beside(source, jan.THREAD)
        return jan.read(mapping(about, jan.THREAD), jan.lines_of(messages))

    yield 0.0, source.name, make


def _old_lm_studio(source: SourceFile, data: Any) -> Chats:
    stem = source.base.removesuffix(".json").removesuffix(".chat")

    def make() -> PortableChat:
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


def _later(read: Callable[[Any], PortableChat], data: Any) -> Callable[[], PortableChat]:
    return lambda: read(data)
