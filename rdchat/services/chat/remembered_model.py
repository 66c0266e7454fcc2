"""Which model the next start loads."""

from PySide6.QtCore import QObject, Slot

from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.text.one_reply import BorrowedModel


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
