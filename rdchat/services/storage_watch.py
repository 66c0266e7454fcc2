"""Reports to the person what failed when a command read or wrote chats or settings; and the settings themselves.

Commands of the window run inside `StorageWatch`; `SettingsControl` is how they read and change the settings.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.errors import StorageError


class StorageWatch(QObject):
    """Runs every command that uses the store. If one fails, it reports that and skips the rest of the block."""

    failed = Signal(Notice)
    recovered = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        # The number of failures since the last write that worked.
        self._failures = 0

    def report(self, error: StorageError) -> None:
        self._failures += 1
        self.failed.emit(Notice(error.message, error.hint))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Guard a block that writes no chats: its success does not show that they can be saved."""
        try:
            yield
        except StorageError as error:
            self.report(error)

    def read_or_default[T, U](self, read: Callable[[], T], otherwise: U) -> T | U:
        """Return what is read, or something else where that fails."""
        try:
            return read()
        except StorageError as error:
            self.report(error)
            return otherwise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard a block that writes chats: its success ends an earlier failure.

        It is no success if something in the block reported a failure of its own, such as a block within it.
        """
        before = self._failures
        with self.reading():
            yield
        if self._failures == before:
            self.note_success()

    def note_success(self) -> None:
        """Chats were written."""
        if self._failures:
            self._failures = 0
            self.recovered.emit()


class SettingsControl(QObject):
    """The current settings, and the only way to change them.

    Args:
        store: Stores them.
        storage: Reports a failure to save them; they take effect anyway.
    """

    changed = Signal(Settings)

    def __init__(self, store: SettingsStore, storage: StorageWatch) -> None:
        super().__init__(storage)
        self._store = store
        self._storage = storage

    @property
    def values(self) -> Settings:
        return self._store.settings

    @property
    def notice(self) -> Notice | None:
        """The problem of the file when it was read; None for none."""
        return self._store.notice

    def read_again(self) -> None:
        """Read the file again after it was replaced, and emit `changed`."""
        with self._storage.reading():
            self._store.read_settings()
        self.changed.emit(self.values)

    def change_values(self, **values: object) -> None:
        """Change settings by their names."""
        self.change(replace(self.values, **values))  # type: ignore[arg-type]

    def change(self, settings: Settings) -> None:
        """Save other settings and emit `changed`."""
        with self._storage.reading():
            self._store.save_settings(settings)
        self.changed.emit(settings)
