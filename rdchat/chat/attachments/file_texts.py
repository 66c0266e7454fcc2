"""The texts of files that were brought into chats, read when the model is to be told them."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile, block_of
from rdchat.chat.conversation import Message
from rdchat.chat.storage.file_check import refuse_surprises
from rdchat.chat.storage.files import TEXT
from rdchat.errors import StorageError

_MOST_KEPT = 16_000_000  # characters
_LOST = "(The text of this file is lost.)"


class FileTexts:
    """Reads from the store's file on connections of its own, from any thread; keeps what was read last.

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
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True, autocommit=True)) as connection:
                connection.text_factory = lambda data: data.decode("utf-8", "replace")
                refuse_surprises(connection)
                row = connection.execute(TEXT, (digest,)).fetchone()
        except sqlite3.Error as error:
            raise StorageError(
                f"The text of a file cannot be read: {error}.", "Check the disk, then try again."
            ) from error
        return row[0] if row else _LOST
