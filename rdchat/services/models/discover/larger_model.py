"""Offers a larger model while nothing but the default model was ever loaded."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.discover.fit import Machine
from rdchat.services.models.discover.newcomers import Suggestion, for_machine
from rdchat.services.models.sources import DeviceMemory


class LargerModel(QObject):
    """Chooses the larger model to offer, if any. It does not ask the hub.

    Args:
        slot: The model that answers.
        preferences: Which models were loaded before, and whether the person declined.
        memory: This machine's memory.
        parent: The Qt parent.

    Attributes:
        offered: The model to offer; None for none.
    """

    changed = Signal()

    def __init__(
        self, slot: ModelSlot, preferences: SettingsControl, memory: DeviceMemory, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._slot, self._preferences, self._memory = slot, preferences, memory
        self.offered: Suggestion | None = None
        slot.loaded.connect(self._look)
        slot.load_started.connect(self._decide)
        memory.changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, in later starts neither."""
        self._preferences.change(replace(self._preferences.settings, larger_model_declined=True))
        self._decide()

    def _look(self) -> None:
        """Find out about the memory; not before the default model is there, as that imports MLX."""
        if self._wanted and self._memory.now is None:
            self._memory.ask()
        self._decide()

    @property
    def _wanted(self) -> bool:
        settings, slot = self._preferences.settings, self._slot
        only_default = slot.chosen is None and slot.info is not None and not settings.recent_models
        return only_default and not settings.larger_model_declined

    def _decide(self) -> None:
        memory = self._memory.now
        fitting = for_machine(Machine(memory, self._slot.dtype)) if memory is not None and self._wanted else ()
        offered = fitting[0] if fitting else None
        if offered != self.offered:
            self.offered = offered
            self.changed.emit()
