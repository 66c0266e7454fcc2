"""The list for newcomers: good models by the memory that they need, each with what drafts for it.

It ships as `assets/newcomers/newcomers.json`, which the package has under `newcomers`. Nobody tried these models here;
`scripts/check_newcomers.py` asks the hub about them.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from PySide6.QtCore import QObject, Signal

from rdchat.files.plain_data import plain
from rdchat.inference.api.model_facts import Fit, ModelSizes
from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.models.fit import Machine, sizes_of
from rdchat.services.models.model_service import DeviceMemory

# A Mac of 16 GB may report a little less.
_ALMOST = 0.97


@dataclass(frozen=True, slots=True)
class Source:
    """A web page and the statement on it."""

    url: str
    says: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The hub's answer about a repository.

    Attributes:
        date: The day, as 2026-11-22.
        problem: Why it is not to be had; empty where it is.
        gated: Whether its authors give access on its page only.
    """

    date: str
    problem: str
    gated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedDrafter:
    """The drafter of a suggested model.

    Attributes:
        repository: The hub id.
        kind: Its kind, such as `DFlash`, or `draft model`.
        size_from: Where that figure is from.
        sources: Where it is named for this model.
    """

    repository: str
    kind: str
    weights_gb: float | None  # None where it is not known
    size_from: str
    sources: tuple[Source, ...]

    @property
    def weight_bytes(self) -> int:
        return round((self.weights_gb or 0) * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A model for newcomers.

    Attributes:
        memory_gb: Memory of the Macs that it was chosen for, in binary gigabytes, as Macs are sold.
        name: Its name for people.
        repository: The hub id.
        size_from: Where that figure is from.
        good_for: What it is good for, a sentence.
        why: Why it was chosen.
        chosen: The day on which it was chosen, as 2026-11-22.
        sources: Where it is named.
    """

    memory_gb: int
    name: str
    repository: str
    weights_gb: float
    size_from: str
    good_for: str
    why: str
    chosen: str
    sources: tuple[Source, ...]
    checked: Checked | None  # None where the hub was not asked
    drafter: SuggestedDrafter

    @property
    def weight_bytes(self) -> int:
        return round(self.weights_gb * 1e9)

    @property
    def sizes(self) -> ModelSizes:
        """The sizes that its need of memory is computed from."""
        return sizes_of(self.weight_bytes, "8-bit" if self.repository.endswith("8bit") else "4-bit")

    def fit(self, machine: Machine) -> Fit | None:
        """Return whether it fits a machine together with its drafter."""
        return machine.fit(self.sizes, self.drafter.weight_bytes)


@cache
def suggestions() -> tuple[Suggestion, ...]:
    """Return the list, those for the least memory first."""
    text = resources.files("rdchat").joinpath("newcomers/newcomers.json").read_text(encoding="utf-8")
    return tuple(plain(Suggestion, fields) for fields in json.loads(text)["models"])


def for_machine(machine: Machine) -> tuple[Suggestion, ...]:
    """Return the suggestions for the largest size of memory that fit a machine, the best first."""
    fitting = [each for each in suggestions() if each.fit(machine) in {Fit.FITS, Fit.TIGHT} and _is_for(each, machine)]
    best = max((each.memory_gb for each in fitting), default=0)
    return tuple(each for each in fitting if each.memory_gb == best)


def _is_for(suggestion: Suggestion, machine: Machine) -> bool:
    return suggestion.memory_gb * 2**30 * _ALMOST <= machine.memory.total_bytes or suggestion.memory_gb == 8


class LargerModel(QObject):
    """Chooses the larger model to offer, if any. It does not ask the hub.

    Args:
        slot: The model that answers.
        settings: Which models were loaded before, and whether the person declined.
        memory: This machine's memory.
        parent: The Qt parent.

    Attributes:
        offered: The model to offer; None for none.
    """

    changed = Signal()

    def __init__(
        self, slot: ModelSlot, settings: SettingsControl, memory: DeviceMemory, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._slot, self._settings, self._memory = slot, settings, memory
        self.offered: Suggestion | None = None
        slot.loaded.connect(self._look)
        slot.load_started.connect(self._decide)
        memory.changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, in later starts neither."""
        self._settings.change(replace(self._settings.values, larger_model_declined=True))
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
