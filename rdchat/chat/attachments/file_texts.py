"""Reads the texts of attached files when a prompt needs them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile, block_of
from rdchat.chat.conversation import Message
from rdchat.chat.storage.connections import errors_in_words, open_reader
from rdchat.chat.storage.messages import FILE_TEXT

_MOST_KEPT = 16_000_000  # characters
_LOST = "(The text of this file is lost.)"


class FileTexts:
    """Reads texts from the store on any thread, and caches those that were read last.

    Args:
        path: The database of a `ConversationStore` that is open in this process, which has checked it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, str] = OrderedDict()  # by digest, so that nothing in it is ever out of date
        self._characters = 0

    def text(self, file: AttachedFile) -> str:
        """Return the text of a file as it was sent; raises StorageError."""
        with self._guard:
            if file.digest in self._kept:
                self._kept.move_to_end(file.digest)
                return self._kept[file.digest]
        text = self._read(file.digest)
        with self._guard:
            if file.digest not in self._kept:
                self._kept[file.digest] = text
                self._characters += len(text)
            while self._characters > _MOST_KEPT:
                self._characters -= len(self._kept.popitem(last=False)[1])
        return text

    def spelled_out(self, messages: Iterable[Message], waiting: Callable[[], object] = lambda: None) -> list[Message]:
        """Return messages whose text is what the model is told: each file before the question; raises StorageError.

        Args:
            messages: Perhaps a path, which is read meanwhile.
            waiting: Called before each message; what it raises ends the work.
        """
        told: list[Message] = []
        for each in messages:
            waiting()
            told.append(replace(each, text=self._spelled(each)) if each.files else each)
        return told

    def _spelled(self, message: Message) -> str:
        blocks = [block_of(file, self.text(file)) for file in message.files]
        return "\n\n".join([*blocks, message.text] if message.text.strip() else blocks)

    def _read(self, digest: str) -> str:
        with errors_in_words(self._path), closing(open_reader(self._path)) as connection:
            row = connection.execute(FILE_TEXT, (digest,)).fetchone()
        return row[0] if row else _LOST
