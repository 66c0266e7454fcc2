"""Reads and counts the files of unsent messages, and keeps the part of each that is sent.

Files are read on one thread and counted on another; `PendingFiles` has their state for the window.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.attachments.attached_file import (
    MAX_FILES,
    AttachedFile,
    FileKind,
    Part,
    ReadFile,
    all_of,
    attached,
    block_of,
    printable_name,
    too_large,
)
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.attachments.kinds import is_image
from rdchat.errors import RdchatError
from rdchat.inference.api import ChatImage, ChatMessage, GenerationRequest, ImageCap, Role
from rdchat.services.background_work import BackgroundWork
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.files.part_choice import PartChoice, Room, TokenCount, tokens_of
from rdchat.services.files.prompt_images import image_bytes, looked_at
from rdchat.services.storage_watch import SettingsControl
from rdchat.work import Job

# The question and the shortest reply need this many tokens.
_QUESTION = 256
_TOO_MANY = f"A message takes {MAX_FILES} files at most."
# What reading a file gives: its content, the part to send, and the file with that part as it will be stored.
type _Read = tuple[ReadFile, Part, AttachedFile]


@dataclass(slots=True, eq=False)
class PendingFile:
    """A file of a message that is not sent yet.

    Attributes:
        chat: Id of the chat of its message; None for a new chat.
        name: Its name, in printable characters.
        job: Reads it.
        fraction: Share of it that was read, from 0 to 1; None until that is known.
        read: Its content; None while it is read.
        part: The part of it that is sent.
        file: The part, as it will be stored.
        count: Tokens of the part; None until they are counted.
        whole: Tokens of the complete file, as they were counted last.
    """

    id: int
    chat: int | None
    name: str
    job: Job[Any] | None = None
    fraction: float | None = None
    read: ReadFile | None = None
    part: Part | None = None
    file: AttachedFile | None = None
    count: TokenCount | None = None
    whole: TokenCount | None = None

    @property
    def block(self) -> str:
        """Its text in the prompt; empty while it is read, and for an image."""
        return "" if self.file is None or self.part is None or self.image else block_of(self.file, self.part.text)

    @property
    def image(self) -> ChatImage | None:
        """The image, to be counted: it is no file yet that a model could see. None for another file."""
        if (file := self.file) is None or file.kind is not FileKind.IMAGE:
            return None
        return ChatImage(Path(), file.digest, file.width, file.height, file.name)


class PendingFiles(QObject):
    """Keeps the files of each chat's unsent message. Lives on the main thread.

    Args:
        model: The loaded model, and the engine, which counts tokens.
        settings: Say how many tokens an image may take.

    Attributes:
        chat: Id of the open chat; None for a new one.
        refused: Why a file was not taken, a sentence or two.
    """

    changed = Signal()
    refused = Signal(str)

    def __init__(self, model: ModelSlot, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._engine = model.engine
        self._model = model
        self._settings = settings
        # The limit by which images were counted.
        self._cap = settings.values.image_cap
        self.chat: int | None = None
        self._files: dict[int, PendingFile] = {}
        # What `take_back` undoes, latest last: the files of the open chat that were removed, which are not in `_files`,
        # and the texts that were pasted, which are.
        self._changes = deque[PendingFile](maxlen=MAX_FILES)
        # The last id.
        self._last = 0
        self._reader = FileReader()
        self._reading = BackgroundWork("files", self)
        self._counting = BackgroundWork("file tokens", self)
        for changed in (model.loaded, model.load_started, model.unload_started):
            changed.connect(self._count_all)
        settings.changed.connect(self._take_cap)

    @property
    def files(self) -> Sequence[PendingFile]:
        """The files of the open chat."""
        return tuple(file for file in self._files.values() if file.chat == self.chat)

    @property
    def blocks(self) -> str:
        """Their text in the prompt; empty without files."""
        return "\n\n".join(block for file in self.files if (block := file.block))

    @property
    def images(self) -> tuple[ChatImage, ...]:
        """The images among them, to be counted."""
        return tuple(image for file in self.files if (image := file.image))

    @property
    def tokens(self) -> int | None:
        """The tokens of all files; None if some are not counted."""
        counts = [file.count for file in self.files]
        return sum(count.tokens for count in counts if count) if all(counts) else None

    @property
    def excess(self) -> int:
        """The number of tokens that the files alone are too long by; 0 if they fit, or are not counted.

        Leaving out other messages does not help then.
        """
        info = self._model.info
        room = self.room
        tokens = self.tokens
        if info is None or room is None or tokens is None:
            return 0
        # A remote server's model counts with another tokenizer, so this count may be too high.
        might_fit = info.server and tokens < info.longest_count
        return 0 if might_fit else max(tokens - room, 0)

    @property
    def _counts_exactly(self) -> bool:
        """Whether the model's tokenizer is here; a remote server has its own."""
        info = self._model.info
        return info is None or not info.server

    @property
    def to_shorten(self) -> Sequence[PendingFile]:
        """The files that do not fit together with the shorter ones; the person must choose a part of each."""
        room = self.room
        if not self.excess or room is None:
            return ()
        # Images come first, whatever their size: of them no part can be chosen, so the room is theirs.
        shortest_first = sorted(self.files, key=lambda file: (file.image is None, _tokens(file)))
        ends = accumulate(map(_tokens, shortest_first))
        too_long = [file for file, end in zip(shortest_first, ends, strict=True) if end > room and not file.image]
        return [file for file in self.files if file in too_long]

    @property
    def room(self) -> int | None:
        """Tokens that files can have in the model's context, with a question and some of a reply; None without one."""
        info = self._model.info
        return None if info is None else info.context_length - min(_QUESTION, info.context_length // 8)

    def show_chat(self, chat: int | None) -> None:
        """Show the files of a chat, which is the open one now."""
        self.chat = chat
        self._changes.clear()
        self.changed.emit()

    def add_files(self, paths: Iterable[str]) -> None:
        """Read files for the open chat's next message; `refused` reports those that cannot be read."""
        for path in paths:
            if len(self.files) >= MAX_FILES:
                self.refused.emit(_TOO_MANY)
                break
            self._read(self._add(printable_name(Path(path).name)), Path(path))
        self.changed.emit()

    def add_image(self, image: bytes | Callable[[], bytes], name: str) -> None:
        """Attach an image that is no file, such as one from the clipboard; `refused` reports why it is not taken.

        Args:
            image: Its data, or what returns them, which is called on a thread.
            name: Its name for people.
        """
        if len(self.files) >= MAX_FILES:
            self.refused.emit(_TOO_MANY)
            return
        self._run(
            self._add(name), lambda job: _read_image(image() if callable(image) else image, name, job.check_cancelled)
        )
        self.changed.emit()

    def add_text(self, text: str) -> bool:
        """Attach a text that was pasted, unless the message has too many files."""
        if len(self.files) >= MAX_FILES:
            return False
        names = {file.name for file in self.files}
        numbered = (f"Pasted text{f' {number}' if number > 1 else ''}.txt" for number in count(1))
        name = next(name for name in numbered if name not in names)
        read = ReadFile(name, FileKind.TEXT, (text,))
        file = self._add(name)
        self._take(file, read, Part(text, ""), attached(read, text))
        self._changes.append(file)
        return True

    def _add(self, name: str) -> PendingFile:
        """Add a file to the open chat's message, before it is read."""
        self._last += 1
        file = PendingFile(self._last, self.chat, name)
        self._files[self._last] = file
        return file

    def remove_file(self, file_id: int) -> None:
        """Remove a file, and stop reading it; one that was read can be taken back."""
        file = self._files[file_id]
        self._drop([file])
        if file.read is not None:
            self._changes.append(file)
        self.changed.emit()

    def take_back(self, max_text: int) -> str | None:
        """Undo the last removal of a file, or the last paste of a text.

        Args:
            max_text: A pasted text of more characters stays a file, and an earlier change is undone.

        Returns:
            The pasted text, which is no file any more; empty after a removal; None without such a change.
        """
        while self._changes:
            file = self._changes.pop()
            # A file that was removed: it comes back.
            if file.id not in self._files:
                if len(self.files) >= MAX_FILES:
                    self.refused.emit(_TOO_MANY)
                    return ""
                file.chat = self.chat
                self.put_back([file])
                self._count(file)
                return ""
            # A text that was pasted: the caller puts it into the field.
            text = file.read.parts[0] if file.read else ""
            if 0 < len(text) <= max_text:
                self._drop([file])
                self.changed.emit()
                return text
        return None

    def _drop(self, files: Iterable[PendingFile]) -> None:
        """Remove files, and stop reading them."""
        for file in files:
            del self._files[file.id]
            if file.job is not None:
                file.job.cancel()

    def choose_part(self, file_id: int, part: Part) -> None:
        """Send another part of a file."""
        file = self._files.get(file_id)
        if file is not None and file.read is not None:
            self._take(file, file.read, part, attached(file.read, part.text, part.label))

    def _take(self, file: PendingFile, read: ReadFile, part: Part, attached: AttachedFile) -> None:
        """Send a part of a file that was read."""
        file.fraction = 1.0
        file.read = read
        file.part = part
        file.file = attached
        self._count(file)
        self.changed.emit()

    def part_choice(self, file_id: int) -> PartChoice | None:
        """Return what computes parts of a file; None while it is read, and for an image."""
        file = self._files.get(file_id)
        if file is None or file.read is None or file.part is None or file.image:
            return None
        others = [each for each in self.files if each is not file]
        to_shorten = self.to_shorten
        tokens = file.count
        room = None
        # The files to shorten share what the others leave.
        if self.room is not None:
            remaining = sum(_tokens(each) for each in others if each not in to_shorten)
            room = Room(
                self.room,
                sum(map(_tokens, others)),
                suggested=(self.room - remaining) // (len(to_shorten) if file in to_shorten else 1),
                present=tokens.tokens if tokens else 0,
            )
        return PartChoice(
            file.read, file.whole or tokens, room, self._engine.count_tokens, is_exact=self._counts_exactly
        )

    def reason_to_wait(self) -> str:
        """Return why the files keep the message from being sent; empty if they do not."""
        files = self.files
        for file in files:
            if file.file is None:
                return f"{file.name} is still being read. Wait a moment, or remove it."
        if files and self._model.loading:
            return "The files are counted when the model is loaded. Try again in a moment."
        if problem := too_large([each.file for each in files if each.file]):
            return problem
        if any(file.count is None for file in files) and self._model.info is not None:
            return "The files are still being counted. Try again in a moment."
        if excess := self.excess:
            too_long = f"{TokenCount(excess, self._counts_exactly).description} too long for this model."
            one = len(files) == 1
            remedy = "Remove some, or choose smaller images."
            if self.to_shorten:
                remedy = "Choose a part of it." if one else "Choose parts of them."
            return f"{'This file is' if one else 'These files are'} {too_long} {remedy}"
        return ""

    def to_send(self) -> list[tuple[AttachedFile, str]]:
        """Return the files of the message, each with its text."""
        return [(file.file, file.part.text) for file in self.files if file.file and file.part]

    def follow(self, before: int | None, after: int | None) -> None:
        """Move files with the typed text from a chat to the one that it became, or that continues it."""
        for file in self._files.values():
            file.chat = after if file.chat == before else file.chat
        self.changed.emit()

    def restore_files(self, files: Iterable[tuple[AttachedFile, str]]) -> None:
        """Put files that were sent before, each with its text, into the open chat's next message."""
        for file, text in files:
            # The pages of a PDF are one text since it was sent.
            kind = FileKind.TEXT if file.kind is FileKind.PDF else file.kind
            read = ReadFile(file.name, kind, (text,), file.note)
            self._take(self._add(file.name), read, Part(text, file.taken), file)

    def remove_files(self) -> None:
        """Remove the files of the open chat, which were sent."""
        self._drop(self.files)
        self._changes.clear()
        self.changed.emit()

    def put_back(self, files: Iterable[PendingFile]) -> None:
        """Put files that were removed back into their places."""
        self._files = dict(sorted((self._files | {file.id: file for file in files}).items()))
        self.changed.emit()

    def begin_anew(self) -> None:
        """Keep only the open chat's files, or if it has none those of the new chat: the store was replaced.

        They become files of a new chat, as the ids of chats are those of another store.
        """
        remaining = self.files or [file for file in self._files.values() if file.chat is None]
        self._drop([file for file in self._files.values() if file not in remaining])
        for file in remaining:
            file.chat = None
        self.show_chat(None)

    def stop_reading(self, timeout_s: float = 2.0) -> None:
        """Stop reading and counting, and wait so long for each."""
        # What is still read or counted reports nothing any more.
        self.blockSignals(True)
        self._drop(list(self._files.values()))
        self._reading.finish_work(timeout_s)
        self._counting.finish_work(timeout_s)
        self._reader.close()

    def _read(self, file: PendingFile, path: Path) -> None:
        """Read a file from the disk."""

        def read(job: Job[Any]) -> _Read:
            self._reader.download(path, job.check_cancelled)
            if is_image(path):
                return _read_image(image_bytes(path, file.name), file.name, job.check_cancelled)
            read = self._reader.read_file(path, job.report_progress, job.check_cancelled)
            part = all_of(read)
            return read, part, attached(read, part.text)

        self._run(file, read)

    def _run(self, file: PendingFile, read: Callable[[Job[Any]], _Read]) -> None:
        """Read a file by a function, on the thread."""

        def on_progress(fraction: float) -> None:
            file.fraction = fraction
            self.changed.emit()

        file.job = self._reading.run_job(read, lambda outcome: self._on_read(file, outcome), on_progress)

    def _on_read(self, file: PendingFile, outcome: _Read | RdchatError) -> None:
        """Take a file that was read, or remove it and say why it cannot be read; one removed meanwhile is ignored."""
        file.job = None
        if file.id in self._files:
            if isinstance(outcome, RdchatError):
                self.remove_file(file.id)
                self.refused.emit(str(outcome))
            else:
                self._take(file, *outcome)
        if not any(each.job for each in self._files.values()):
            # The next file starts another child.
            self._reading.do(self._reader.close)

    def _count(self, file: PendingFile) -> None:
        """Count the tokens of the part of a file that is sent, with the loaded model."""
        file.count = None
        info = self._model.info
        if file.file is None or info is None:
            return
        counted = file.file
        block = file.block
        image = file.image

        def take(count: TokenCount | RdchatError) -> None:
            # Another part or another model is counted in a job of its own.
            if file.file != counted or self._model.info is not info:
                return
            # The reply will show what is wrong; a token has some four characters.
            if isinstance(count, RdchatError):
                count = TokenCount(len(block) // 4, exact=False)
            count = replace(count, exact=count.exact and self._counts_exactly)
            file.count = count
            if not counted.taken:
                file.whole = count
            self.changed.emit()

        count_tokens = self._engine.count_tokens
        cap = self._cap
        self._counting.do(
            lambda: _tokens_of_image(image, cap, count_tokens) if image else tokens_of(block, count_tokens), take
        )

    @Slot()
    def _take_cap(self) -> None:
        if (cap := self._settings.values.image_cap) is not self._cap:
            self._cap = cap
            self._count_all()

    @Slot()
    def _count_all(self) -> None:
        for file in self._files.values():
            self._count(file)
        self.changed.emit()


def _read_image(data: bytes, name: str, waiting: Callable[[], None]) -> _Read:
    """Decode an image; `waiting` may raise to end that."""
    file, text = looked_at(data, name, waiting)
    return ReadFile(file.name, FileKind.IMAGE, (text,), file.note), Part(text), file


def _tokens_of_image(image: ChatImage, cap: ImageCap, count: Callable[[GenerationRequest], int]) -> TokenCount:
    """Return the tokens that an image adds to a message: of a line of text, where the model does not see."""
    without = ChatMessage(Role.USER, ".")
    with_image = replace(without, images=(image,))
    tokens = [count(GenerationRequest((each,), image_cap=cap)) for each in (with_image, without)]
    return TokenCount(max(tokens[0] - tokens[1], 0))


def _tokens(file: PendingFile) -> int:
    return file.count.tokens if file.count else 0
