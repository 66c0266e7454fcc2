"""Reports to the person what failed when a command read or wrote chats or settings; and the settings themselves.

Commands of the window run inside `StorageWatch`; `SettingsControl` is how they read and change the settings.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.services.background_work import MainThread


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

    A change takes effect at once, and is written on the chats' writer thread, as flushing to disk takes time. So it is
    on disk before the chats are closed or replaced; a kill loses what was changed in the last moment.

    Args:
        store: Stores them.
        storage: Reports a failure to save them; they take effect anyway.
        chats: Has the thread.
    """

    changed = Signal(Settings)

    def __init__(self, store: SettingsStore, storage: StorageWatch, chats: ConversationStore) -> None:
        super().__init__(storage)
        self._store = store
        self._storage = storage
        self._chats = chats
        self._main = MainThread(self)

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
        self._store.settings = settings
        self._chats.run_after_commands(self._store.save_changes, self._main.bring(self._report, once=True))
        self.changed.emit(settings)

    def wait_until_saved(self) -> None:
        """Wait until the changes so far are on disk, or could not be saved."""
        self._chats.run_after_commands(lambda: None).result()

    def _report(self, outcome: object) -> None:
        """Report why the settings could not be saved, if they could not."""
        if isinstance(outcome, StorageError):
            self._storage.report(outcome)
