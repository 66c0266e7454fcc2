"""The app's settings, stored as they change."""

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings
from rdchat.chat.settings_store import SettingsStore
from rdchat.services.chat.storage_watch import StorageWatch


class SettingsControl(QObject):
    """The settings in force, and the one way to change them.

    Args:
        store: Where they are kept.
        storage: Reports a failure to save them; they are in force all the same.
        parent: The Qt parent.
    """

    changed = Signal(Settings)

    def __init__(self, store: SettingsStore, storage: StorageWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store, self._storage = store, storage

    @property
    def settings(self) -> Settings:
        return self._store.settings

    @property
    def notice(self) -> Notice | None:
        """The problem of the file when it was read; None for none."""
        return self._store.notice

    def read_again(self) -> None:
        """Read the file again after it was replaced, and emit `changed`."""
        with self._storage.reading():
            self._store.read()
        self.changed.emit(self.settings)

    def change(self, settings: Settings) -> None:
        """Save other settings and emit `changed`."""
        with self._storage.reading():
            self._store.save(settings)
        self.changed.emit(settings)
