"""The files in the message field: read one after the other beside the window, counted, and kept until they are sent."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached, block_of, shown_name
from rdchat.chat.attachments.choosing import Part, whole
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.errors import RdchatError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.files.part_choice import PartChoice
from rdchat.services.files.token_counts import TokenCount, tokens_of

MOST_FILES = 20  # of one message
_QUESTION = 256  # tokens for what is asked and for the least of a reply
_MOST_CHARACTERS = 2_000_000  # of one message: no model here takes them, and storing more would hold the window up


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A file in the message field.

    Attributes:
        id: Its number.
        name: In printable characters.
        fraction: How much of it is read, from 0 to 1; None before that is known.
        read: The file; None while it is read.
        part: What of it is to be sent.
        file: That, as it will be stored.
        count: Its tokens; None until they are counted.
    """

    id: int
    name: str
    fraction: float | None = None
    read: ReadFile | None = None
    part: Part | None = None
    file: AttachedFile | None = None
    count: TokenCount | None = None

    @property
    def block(self) -> str:
        """How it will stand in the prompt; empty while it is read."""
        return "" if self.file is None or self.part is None else block_of(self.file, self.part.text)


class PendingFiles(QObject):
    """Keeps the files of each chat's unsent message. Lives on the main thread.

    Args:
        engine: Counts.
        model: Tells which model is loaded.
        open_chat: Returns the id of the open chat; None for a new one.
        parent: The Qt parent.
    """

    changed = Signal()
    refused = Signal(str)  # why a file was not taken, a sentence or two
    _told = Signal(int, float)

    def __init__(
        self,
        engine: EngineClient,
        model: ModelSlot,
        open_chat: Callable[[], int | None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine, self._model, self._open_chat = engine, model, open_chat
        self._chats: dict[int | None, dict[int, PendingFile]] = {}
        self._last = 0
        self._reader = FileReader()
        self._reading = BackgroundWork("files", self)
        self._counting = BackgroundWork("file tokens", self)
        self._gone: set[int] = set()  # of those being read
        self._closed = threading.Event()
        self._told.connect(self._on_told, Qt.ConnectionType.QueuedConnection)
        model.loaded.connect(self._count_all)
        model.load_started.connect(self._forget_counts)
        model.unload_started.connect(self._forget_counts)

    @property
    def files(self) -> Sequence[PendingFile]:
        """Those of the open chat, in the order in which they came."""
        return tuple(self._mine.values())

    @property
    def _mine(self) -> dict[int, PendingFile]:
        return self._chats.get(self._open_chat(), {})

    @property
    def blocks(self) -> str:
        """How they will stand in the prompt; empty for none."""
        return "\n\n".join(block for file in self.files if (block := file.block))

    @property
    def tokens(self) -> int | None:
        """Of all of them; None where some are not counted."""
        counts = [file.count for file in self.files]
        return sum(count.tokens for count in counts if count) if all(counts) else None

    @property
    def too_long(self) -> bool:
        """Whether the files alone are more than the model takes: leaving out other messages cannot help."""
        limit, tokens = self.room, self.tokens
        return limit is not None and tokens is not None and tokens > limit

    @property
    def to_shorten(self) -> PendingFile | None:
        """The longest of files that are too long together: a part of it helps most; None where they are not."""
        return max(self.files, key=lambda file: file.count.tokens if file.count else 0) if self.too_long else None

    @property
    def room(self) -> int | None:
        """Tokens that files can have in the model's context, with a question and some of a reply; None without one."""
        info = self._model.info
        return None if info is None else info.context_length - min(_QUESTION, info.context_length // 8)

    def add(self, paths: Iterable[str]) -> None:
        """Read files for the open chat's next message; those that cannot be read are told by `refused`."""
        mine = self._chats.setdefault(self._open_chat(), {})
        for path in paths:
            if len(mine) >= MOST_FILES:
                self.refused.emit(f"A message takes {MOST_FILES} files at most.")
                break
            self._last += 1
            mine[self._last] = PendingFile(self._last, shown_name(Path(path).name))
            self._read(self._last, Path(path))
        self.changed.emit()

    def remove(self, file_id: int) -> None:
        """Take a file out again; one that is being read is read no further."""
        file = self._mine.pop(file_id, None)
        if file is not None and file.read is None:
            self._gone.add(file_id)
        self.changed.emit()

    def choose(self, file_id: int, part: Part) -> None:
        """Send another part of a file."""
        file = self._mine.get(file_id)
        if file is not None and file.read is not None:
            made = attached(file.read, part.text, part.words)
            self._mine[file_id] = replace(file, part=part, file=made, count=None)
            self._count(file_id)
            self.changed.emit()

    def part_choice(self, file_id: int) -> PartChoice | None:
        """Return what computes parts of a file; None while it is read."""
        file = self._mine.get(file_id)
        if file is None or file.read is None or file.part is None:
            return None
        others = sum(each.count.tokens for each in self.files if each.count and each.id != file_id)
        room = None if self.room is None else self.room - others
        tokens = file.count
        if tokens is not None and file.part.words:  # reckoned from the part that is chosen
            share = sum(map(len, file.read.parts)) / max(len(file.part.text), 1)
            tokens = TokenCount(round(tokens.tokens * share), exact=False)
        return PartChoice(file.read, tokens, room, self._engine.count_tokens)

    def reason_to_wait(self) -> str:
        """Say why the message cannot be sent yet, for its files; empty where it can."""
        for file in self.files:
            if file.file is None:
                return f"{file.name} is still being read. Wait a moment, or take it out."
        if self.files and self._model.loading:
            return "The model is still loading; it counts the files first. Try again in a moment."
        if sum(file.file.characters for file in self.files if file.file) > _MOST_CHARACTERS:
            return f"The files have more than {_MOST_CHARACTERS // 10**6} million characters. Choose parts of them."
        if any(file.count is None for file in self.files) and self._model.info is not None:
            return "The files are still being counted. Try again in a moment."
        if self.too_long:
            one = len(self.files) == 1
            return f"{'This file is' if one else 'These files are'} more than the model takes. Choose a part first."
        return ""

    def to_send(self) -> list[tuple[AttachedFile, str]]:
        """Return the files of the message, each with its text."""
        return [(file.file, file.part.text) for file in self.files if file.file and file.part]

    def follow(self, chat: int | None, stored: int | None) -> None:
        """Go with what was typed from a chat to the one that it became, or that goes on from it."""
        if chat != stored and (files := self._chats.pop(chat, None)):
            self._chats[stored] = files
            self.changed.emit()

    def bring_back(self, files: Iterable[tuple[AttachedFile, str]]) -> None:
        """Put files that were sent before, each with its text, into the open chat's next message."""
        for file, text in files:
            self._last += 1
            kind = FileKind.TEXT if file.kind is FileKind.PDF else file.kind  # its pages are one text by now
            read = ReadFile(file.name, kind, (text,), file.note)
            mine = self._chats.setdefault(self._open_chat(), {})
            mine[self._last] = PendingFile(self._last, file.name, 1.0, read, Part(text, file.taken), file)
            self._count(self._last)
            self.changed.emit()

    def clear(self, chat: int | None) -> None:
        """Take out all files of a chat: they were sent."""
        if self._chats.pop(chat, None):
            self.changed.emit()

    def begin_anew(self) -> None:
        """Keep the open chat's files for a new one, and no others: the store is another one now."""
        kept = self._mine or self._chats.get(None, {})
        dropped = [file for files in self._chats.values() if files is not kept for file in files.values()]
        self._gone |= {file.id for file in dropped if file.read is None}
        self._chats = {None: kept}

    def close(self) -> None:
        """Read and count no more."""
        self._closed.set()
        self._reading.close()
        self._counting.close()
        self._reader.close()

    def _read(self, file_id: int, path: Path) -> None:
        def waiting() -> None:
            if self._closed.is_set() or file_id in self._gone:
                raise _NotWantedError

        def read() -> tuple[ReadFile, Part, AttachedFile] | None:
            try:
                waiting()
                read = self._reader.read(path, lambda fraction: self._told.emit(file_id, fraction), waiting)
            except _NotWantedError:
                return None
            part = whole(read)
            return read, part, attached(read, part.text)

        self._reading.do(read, lambda outcome: self._on_read(file_id, outcome))

    @Slot(int, float)
    def _on_told(self, file_id: int, fraction: float) -> None:
        self._replace(file_id, fraction=fraction)

    def _on_read(self, file_id: int, outcome: tuple[ReadFile, Part, AttachedFile] | RdchatError | None) -> None:
        self._gone.discard(file_id)
        if isinstance(outcome, RdchatError):
            for files in self._chats.values():
                files.pop(file_id, None)
            self.changed.emit()
            self.refused.emit(str(outcome))
        elif outcome is not None:
            for files in self._chats.values():
                if file_id in files:
                    read, part, file = outcome
                    files[file_id] = replace(files[file_id], fraction=1.0, read=read, part=part, file=file)
            self._count(file_id)
            self.changed.emit()
        if not any(file.read is None for files in self._chats.values() for file in files.values()):
            self._reading.do(self._reader.close)  # the next file starts another

    def _replace(self, file_id: int, **values: object) -> None:
        for files in self._chats.values():
            if file_id in files:
                files[file_id] = replace(files[file_id], **values)  # type: ignore[arg-type]
                self.changed.emit()

    def _find(self, file_id: int) -> PendingFile | None:
        return next((files[file_id] for files in self._chats.values() if file_id in files), None)

    def _count(self, file_id: int) -> None:
        file, info = self._find(file_id), self._model.info
        if file is None or file.file is None or info is None:
            return
        block, counted = file.block, file.file
        self._counting.do(
            lambda: tokens_of(block, self._engine.count_tokens),
            lambda outcome: self._on_counted(file_id, counted, info, outcome),
        )

    def _on_counted(
        self, file_id: int, counted: AttachedFile, model: object, outcome: TokenCount | RdchatError
    ) -> None:
        file = self._find(file_id)
        if file is None or file.file != counted or self._model.info is not model:
            return
        if isinstance(outcome, RdchatError):  # the reply will say what is wrong; four characters are a token or so
            outcome = TokenCount(len(file.block) // 4, exact=False)
        self._replace(file_id, count=outcome)

    @Slot()
    def _count_all(self) -> None:
        for files in self._chats.values():
            for file_id in files:
                self._count(file_id)

    @Slot()
    def _forget_counts(self) -> None:
        for files in self._chats.values():
            for file_id in files:
                files[file_id] = replace(files[file_id], count=None)
        self.changed.emit()


class _NotWantedError(Exception):
    """A file was taken out while it was read."""
