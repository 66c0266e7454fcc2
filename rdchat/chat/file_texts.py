"""Reads the texts of attached files when a prompt needs them."""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile, block_of
from rdchat.chat.conversation import Message
from rdchat.chat.storage.connections import errors_in_words, open_reader

_LOST = "(The text of this file is lost.)"


class FileTexts:
    """Reads texts from the store on any thread.

    Args:
        path: The database of a `ConversationStore` that is open in this process, which has checked it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def text(self, file: AttachedFile) -> str:
        """Return the text of a file as it was sent; raises StorageError."""
        with errors_in_words(self._path), closing(open_reader(self._path)) as connection:
            row = connection.execute("SELECT text FROM file_texts WHERE digest = ?", (file.digest,)).fetchone()
        return row[0] if row else _LOST

    def spelled_out(self, messages: Iterable[Message], waiting: Callable[[], object] = lambda: None) -> list[Message]:
        """Return messages with the text for the model: each file before the question; raises StorageError.

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
