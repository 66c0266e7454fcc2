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
        storage: Tells of it where they cannot be saved; they are in force all the same.
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
        """What was wrong with the file when it was read; None where nothing was."""
        return self._store.notice

    def read_again(self) -> None:
        """Take the settings of the file, which another one has replaced, and tell of them."""
        with self._storage.reading():
            self._store.read()
        self.changed.emit(self.settings)

    def change(self, settings: Settings) -> None:
        """Save other settings and tell of them."""
        with self._storage.reading():
            self._store.save(settings)
        self.changed.emit(settings)
