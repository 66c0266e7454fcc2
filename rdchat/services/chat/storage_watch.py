"""Tells the person of what the store could not do, and when it can again."""

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.errors import StorageError


class StorageWatch(QObject):
    """Stands around every command that touches the store; where it fails, the rest of the block is left out."""

    failed = Signal(Notice)
    recovered = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._failures = 0  # since the last write that worked

    def report(self, error: StorageError) -> None:
        self._failures += 1
        self.failed.emit(Notice(error.message, error.hint))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block that writes no chats: that it works does not show that they can be saved."""
        try:
            yield
        except StorageError as error:
            self.report(error)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A block that writes chats: that nothing in it fails ends what was told before."""
        before = self._failures
        with self.reading():
            yield
        if self._failures == before:
            self.note_success()

    def note_success(self) -> None:
        """Something was written."""
        if self._failures:
            self._failures = 0
            self.recovered.emit()
