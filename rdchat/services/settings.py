"""The current settings, and the only way to change them."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.services.storage_watch import StorageWatch


class SettingsControl(QObject):
    """The current settings, and the only way to change them.

    Args:
        store: Stores them.
        storage: Reports a failure to save them; they take effect anyway.
        parent: The Qt parent.
    """

    changed = Signal(Settings)

    def __init__(self, store: SettingsStore, storage: StorageWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
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
            self._store.read()
        self.changed.emit(self.values)

    def update(self, **values: object) -> None:
        """Change settings by their names."""
        self.change(replace(self.values, **values))  # type: ignore[arg-type]

    def change(self, settings: Settings) -> None:
        """Save other settings and emit `changed`."""
        with self._storage.reading():
            self._store.save(settings)
        self.changed.emit(settings)
