"""What the person prefers, stored as it changes, and with it the model that the next start loads."""

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings
from rdchat.chat.settings_store import SettingsStore
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.text.one_reply import BorrowedModel


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


class RememberedModel(QObject):
    """Keeps the choice, also of what did not load: it is mended by another precision, or tried again later.

    Not before the outcome: a model that takes the whole process down must not do so at every start. One that is
    borrowed for a reply is kept once the person stays with it.

    Args:
        slot: The model that answers.
        borrowed: Another one, for one reply.
        preferences: Have the choice.
        parent: The Qt parent.
    """

    def __init__(
        self, slot: ModelSlot, borrowed: BorrowedModel, preferences: SettingsControl, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._slot, self._borrowed, self._preferences = slot, borrowed, preferences
        slot.loaded.connect(self._remember)
        slot.failed.connect(self._remember)
        borrowed.stayed.connect(self._remember_staying)

    @Slot()
    def _remember_staying(self) -> None:
        if self._slot.info is not None:  # else once it has loaded
            self._remember()

    @Slot()
    def _remember(self) -> None:
        if self._borrowed.holds:
            return
        remembered = self._slot.remembered_in(self._preferences.settings)
        if remembered != self._preferences.settings:
            self._preferences.change(remembered)
