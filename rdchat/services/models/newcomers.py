"""Which suggested models fit this machine, and the larger model to offer instead of the default one."""

from PySide6.QtCore import QObject, Signal

from rdchat.hub.newcomers import Suggestion, suggestions
from rdchat.inference.api.model_facts import Fit
from rdchat.services.chat_controller import ChatController
from rdchat.services.models.fit import Machine, sizes_suggested
from rdchat.services.models.service_base import DeviceMemory

# A Mac of 16 GB may report a little less.
_ALMOST = 0.97


def suggested_fit(suggestion: Suggestion, machine: Machine) -> Fit | None:
    """Return whether a suggested model fits a machine together with its drafter."""
    return machine.fit(sizes_suggested(suggestion), suggestion.drafter.weight_bytes)


def for_machine(machine: Machine) -> tuple[Suggestion, ...]:
    """Return the suggestions for the largest size of memory that fit a machine, the best first."""
    held_gb = machine.memory.total_bytes / _ALMOST / 2**30
    here = (each for each in suggestions() if each.memory_gb <= held_gb or each.memory_gb == 8)
    fitting = [each for each in here if suggested_fit(each, machine) in {Fit.FITS, Fit.TIGHT}]
    best = max((each.memory_gb for each in fitting), default=0)
    return tuple(each for each in fitting if each.memory_gb == best)


def smallest_that_sees(machine: Machine) -> Suggestion | None:
    """Return the smallest suggestion that sees images and fits a machine; None for none."""
    fitting = (each for each in suggestions() if each.sees and suggested_fit(each, machine) in {Fit.FITS, Fit.TIGHT})
    return min(fitting, key=lambda each: each.weight_bytes, default=None)


class LargerModel(QObject):
    """Chooses the larger model to offer, if any. It does not ask the hub.

    Args:
        controller: Has the model that answers, and the settings: models loaded before, and whether the person declined.
        memory: This machine's memory.
        parent: The Qt parent.

    Attributes:
        offered: The model to offer; None for none.
    """

    changed = Signal()

    def __init__(self, controller: ChatController, memory: DeviceMemory, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._slot, self._settings, self._memory = controller.model_slot, controller.settings, memory
        self.offered: Suggestion | None = None
        self._slot.loaded.connect(self._look)
        self._slot.load_started.connect(self._decide)
        memory.changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, in later starts neither."""
        self._settings.update(larger_model_declined=True)
        self._decide()

    def _look(self) -> None:
        """Find out about the memory; not before the default model is there, as that imports MLX."""
        if self._may_offer and self._memory.now is None:
            self._memory.ask()
        self._decide()

    @property
    def _may_offer(self) -> bool:
        settings, slot = self._settings.values, self._slot
        only_default = slot.chosen is None and slot.info is not None and not settings.recent_models
        return only_default and not settings.larger_model_declined

    def _decide(self) -> None:
        memory = self._memory.now
        fitting = for_machine(Machine(memory, self._slot.dtype)) if memory is not None and self._may_offer else ()
        offered = fitting[0] if fitting else None
        if offered != self.offered:
            self.offered = offered
            self.changed.emit()
