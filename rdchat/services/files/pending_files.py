"""The files of messages that are typed: read, counted, and the part of each that is sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached, block_of, shown_name
from rdchat.chat.attachments.choosing import Part, whole
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.errors import RdchatError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.files.part_choice import PartChoice
from rdchat.services.files.token_counts import TokenCount, tokens_of
from rdchat.work.job import Job

MOST_FILES = 20  # of one message
_QUESTION = 256  # tokens for the question and for the least of a reply
_MOST_CHARACTERS = 2_000_000  # of one message: no model here takes them, and storing more would hold the window up


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A file of a message that is not sent yet."""

    id: int
    chat: int | None  # whose message it is; None for a new chat
    name: str  # in printable characters
    fraction: float | None = None  # how much of it is read, from 0 to 1; None before that is known
    read: ReadFile | None = None  # None while it is read
    part: Part | None = None  # what of it is sent
    file: AttachedFile | None = None  # the part, as it will be stored
    count: TokenCount | None = None  # of the part; None until it is counted

    @property
    def block(self) -> str:
        """How it will stand in the prompt; empty while it is read."""
        return "" if self.file is None or self.part is None else block_of(self.file, self.part.text)


class PendingFiles(QObject):
    """Keeps the files of each chat's unsent message. Lives on the main thread.

    Args:
        engine: Counts.
        model: Tells which model is loaded.
        parent: The Qt parent.
    """

    changed = Signal()
    refused = Signal(str)  # why a file was not taken, a sentence or two

    def __init__(self, engine: EngineClient, model: ModelSlot, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._model = engine, model
        self._chat: int | None = None
        self._files: dict[int, PendingFile] = {}  # of all chats, in the order in which they came
        self._last = 0
        self._reader = FileReader()
        self._reading = BackgroundWork("files", self)
        self._jobs: dict[int, Job[Any]] = {}  # of files that are being read
        self._counting = BackgroundWork("file tokens", self)
        model.loaded.connect(self._count_all)
        model.load_started.connect(self._forget_counts)
        model.unload_started.connect(self._forget_counts)

    @property
    def files(self) -> Sequence[PendingFile]:
        """Those of the open chat."""
        return tuple(file for file in self._files.values() if file.chat == self._chat)

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

    def show_chat(self, chat: int | None) -> None:
        """Take the files of a chat for those of the open one."""
        self._chat = chat
        self.changed.emit()

    def add(self, paths: Iterable[str]) -> None:
        """Read files for the open chat's next message; those that cannot be read are told by `refused`."""
        for path in paths:
            if len(self.files) >= MOST_FILES:
                self.refused.emit(f"A message takes {MOST_FILES} files at most.")
                break
            file = self._add(shown_name(Path(path).name))
            self._read(file.id, Path(path))
        self.changed.emit()

    def _add(self, name: str, **values: Any) -> PendingFile:
        self._last += 1
        file = self._files[self._last] = PendingFile(self._last, self._chat, name, **values)
        return file

    def remove(self, file_id: int) -> None:
        """Take a file out again; one that is being read is read no further."""
        self._drop([file_id])
        self.changed.emit()

    def _drop(self, file_ids: Iterable[int]) -> None:
        for file_id in file_ids:
            del self._files[file_id]
            if (job := self._jobs.pop(file_id, None)) is not None:
                job.cancel()

    def choose(self, file_id: int, part: Part) -> None:
        """Send another part of a file."""
        file = self._files.get(file_id)
        if file is not None and file.read is not None:
            made = attached(file.read, part.text, part.words)
            self._change(file_id, part=part, file=made, count=None)
            self._count(file_id)

    def part_choice(self, file_id: int) -> PartChoice | None:
        """Return what computes parts of a file; None while it is read."""
        file = self._files.get(file_id)
        if file is None or file.read is None or file.part is None:
            return None
        others = sum(each.count.tokens for each in self.files if each.count and each.id != file_id)
        room = None if self.room is None else self.room - others
        tokens = file.count
        if tokens is not None and file.part.words:  # estimated from the part that is chosen
            share = sum(map(len, file.read.parts)) / max(len(file.part.text), 1)
            tokens = TokenCount(round(tokens.tokens * share), exact=False)
        return PartChoice(file.read, tokens, room, self._engine.count_tokens)

    def reason_to_wait(self) -> str:
        """Say why the message cannot be sent yet, for its files; empty where it can."""
        files = self.files
        for file in files:
            if file.file is None:
                return f"{file.name} is still being read. Wait a moment, or take it out."
        if files and self._model.loading:
            return "The model is still loading; it counts the files first. Try again in a moment."
        if sum(file.file.characters for file in files if file.file) > _MOST_CHARACTERS:
            return f"The files have more than {_MOST_CHARACTERS // 10**6} million characters. Choose parts of them."
        if any(file.count is None for file in files) and self._model.info is not None:
            return "The files are still being counted. Try again in a moment."
        if self.too_long:
            one = len(files) == 1
            return f"{'This file is' if one else 'These files are'} more than the model takes. Choose a part first."
        return ""

    def to_send(self) -> list[tuple[AttachedFile, str]]:
        """Return the files of the message, each with its text."""
        return [(file.file, file.part.text) for file in self.files if file.file and file.part]

    def follow(self, before: int | None, after: int | None) -> None:
        """Go with the typed text from a chat to the one that it became, or that goes on from it."""
        moved = {file.id: replace(file, chat=after) for file in self._files.values() if file.chat == before}
        self._files.update(moved)
        self.show_chat(self._chat)

    def bring_back(self, files: Iterable[tuple[AttachedFile, str]]) -> None:
        """Put files that were sent before, each with its text, into the open chat's next message."""
        for file, text in files:
            kind = FileKind.TEXT if file.kind is FileKind.PDF else file.kind  # its pages are one text by now
            read = ReadFile(file.name, kind, (text,), file.note)
            self._count(self._add(file.name, fraction=1.0, read=read, part=Part(text, file.taken), file=file).id)
        self.changed.emit()

    def clear(self) -> None:
        """Take out the files of the open chat: they were sent."""
        self._drop([file.id for file in self.files])
        self.changed.emit()

    def begin_anew(self) -> None:
        """Keep the open chat's files for a new one, and no others: the store is another one now."""
        kept = self.files or [file for file in self._files.values() if file.chat is None]
        self._drop(self._files.keys() - {file.id for file in kept})
        for file in kept:
            self._files[file.id] = replace(file, chat=None)
        self.show_chat(None)

    def close(self) -> None:
        """Read and count no more."""
        for job in self._jobs.values():
            job.cancel()
        self._reading.close()
        self._counting.close()
        self._reader.close()

    def _read(self, file_id: int, path: Path) -> None:
        def read(job: Job[Any]) -> tuple[ReadFile, Part, AttachedFile]:
            read = self._reader.read(path, job.tell, job.check)
            part = whole(read)
            return read, part, attached(read, part.text)

        self._jobs[file_id] = self._reading.run(
            read,
            lambda outcome: self._on_read(file_id, outcome),
            lambda fraction: self._change(file_id, fraction=fraction),
        )

    def _on_read(self, file_id: int, outcome: tuple[ReadFile, Part, AttachedFile] | RdchatError) -> None:
        wanted = self._jobs.pop(file_id, None) is not None
        if wanted and isinstance(outcome, RdchatError):
            self.remove(file_id)
            self.refused.emit(str(outcome))
        elif wanted and not isinstance(outcome, RdchatError):
            read, part, file = outcome
            self._change(file_id, fraction=1.0, read=read, part=part, file=file)
            self._count(file_id)
        if not self._jobs:
            self._reading.do(self._reader.close)  # the next file starts another

    def _change(self, file_id: int, **values: Any) -> None:
        if (file := self._files.get(file_id)) is not None:
            self._files[file_id] = replace(file, **values)
            self.changed.emit()

    def _count(self, file_id: int) -> None:
        file, info = self._files.get(file_id), self._model.info
        if file is None or file.file is None or info is None:
            return
        counted, block = file.file, file.block

        def take(count: TokenCount | RdchatError) -> None:
            file = self._files.get(file_id)
            if file is None or file.file != counted or self._model.info is not info:
                return
            if isinstance(count, RdchatError):  # the reply will say what is wrong; four characters are a token or so
                count = TokenCount(len(block) // 4, exact=False)
            self._change(file_id, count=count)

        self._counting.do(lambda: tokens_of(block, self._engine.count_tokens), take)

    @Slot()
    def _count_all(self) -> None:
        for file_id in self._files:
            self._count(file_id)

    @Slot()
    def _forget_counts(self) -> None:
        self._files = {file.id: replace(file, count=None) for file in self._files.values()}
        self.changed.emit()
