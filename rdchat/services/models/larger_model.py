"""Which suggested models fit this machine, and the larger model to offer instead of the default one.

The default model is small, so that it runs everywhere. A card offers a larger one until the person has used one on this
computer, or declined.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal

from rdchat.hub import Suggestion, suggestions
from rdchat.inference.api import Fit, ModelCard, ModelInfo
from rdchat.services.background_work import FolderSearch
from rdchat.services.models.fit import Machine, sizes_suggested
from rdchat.services.models.model_sources import DeviceMemory, ModelSources
from rdchat.services.window.chat_controller import ChatController

if TYPE_CHECKING:
    from rdchat.services.models.model_services import Models

# A machine that reports at least this share of a size counts as one of that size: a Mac of 16 GB may report a bit less.
_ALMOST = 0.97
_LOADABLE = {Fit.FITS, Fit.TIGHT}
# Models with a chat template whose names say that they were not made to answer.
_NO_CHAT = re.compile(r"(?<![a-z0-9])(base|pt|embed(ding)?s?|rerank(er)?|guard)(?![a-z0-9])", re.IGNORECASE)
# Copies of one model may differ in the number of weights, but not by so many.
_SAME_SIZE = 10**8
_DEFAULT_PARAMETERS = 134_515_008
# Share of the measured speed of reading that writing reaches, as seen on a CPU and as published for Macs.
_REACHED = 0.8
# English words in a token.
_WORDS = 0.75


def suggested_fit(suggestion: Suggestion, machine: Machine) -> Fit | None:
    """Return whether a suggested model fits a machine together with its drafter."""
    return machine.fit(sizes_suggested(suggestion), suggestion.drafter.weight_bytes)


def for_machine(machine: Machine) -> tuple[Suggestion, ...]:
    """Return the suggestions for the largest size of memory that fit a machine, the best first."""
    memory_gb = machine.memory.total_bytes / _ALMOST / 2**30
    # Those for 8 GB, the least memory of the list, are tried on every machine.
    candidates = (each for each in suggestions() if each.memory_gb <= memory_gb or each.memory_gb == 8)
    fitting = [each for each in candidates if suggested_fit(each, machine) in _LOADABLE]
    best = max((each.memory_gb for each in fitting), default=0)
    return tuple(each for each in fitting if each.memory_gb == best)


def best_here(cards: Iterable[ModelCard], machine: Machine, above: int = 0) -> ModelCard | None:
    """Return the largest model on this machine that answers and fits it; None for none.

    Of copies of one size, the one with more bits per weight comes first.

    Args:
        cards: The models.
        machine: The machine, judged by its whole memory.
        above: The model must have clearly more weights than this.
    """
    best: ModelCard | None = None
    # Steps of `_SAME_SIZE`, then bytes. A model must have at least one step more than `above`.
    best_rank = (above // _SAME_SIZE + 1, 0)
    for card in cards:
        answers = card.model and card.can_be_loaded and card.has_template and not _NO_CHAT.search(card.name)
        if answers and card.sizes is not None and machine.fit(card.sizes) in _LOADABLE:
            rank = (card.sizes.parameters // _SAME_SIZE, card.sizes.stored_bytes)
            if rank > best_rank:
                best = card
                best_rank = rank
    return best


def smallest_that_sees(machine: Machine | None) -> tuple[Suggestion, bool]:
    """Return the smallest suggestion that sees images and fits a machine, else the smallest; and whether it fits."""
    seeing = [each for each in suggestions() if each.sees]
    fitting = [each for each in seeing if machine is not None and suggested_fit(each, machine) in _LOADABLE]
    return min(fitting or seeing, key=lambda each: each.weight_bytes), bool(fitting)


def check_text(suggestion: Suggestion) -> str:
    """Return the licences of a suggested model and its drafter, and that nobody tried the pair."""
    own = suggestion.licence
    licence = suggestion.drafter.licence or "unknown"
    sees = " It is made to see images." if suggestion.sees else ""
    return f"Licence: {own}{f'; of the drafter: {licence}' if licence != own else ''}.{sees} Not tried with rdchat."


def words_a_second(suggestion: Suggestion, machine: Machine) -> float:
    """Return about how many words a second a suggested model writes on a machine without drafting; 0 if unknown.

    For each token, a machine reads the weights that work for it once, in the precision in which they are held.
    """
    read = machine.need(sizes_suggested(suggestion)).weights_bytes * suggestion.active_share
    return _REACHED * machine.memory.bytes_per_second / read * _WORDS


class LargerModel(QObject):
    """Chooses the larger model to offer, if any: one on this machine, else one to download. It does not ask the hub.

    The choice is made as soon as a load begins, by an estimate of the memory, which the device confirms later.

    Args:
        controller: Has the model that answers, and the settings: whether the person declined, or has used a larger one.
        sources: Find the models on this machine.
        memory: This machine's memory.
        parent: The Qt parent.

    Attributes:
        offered: The model to offer; None for none.
        words: About how many words a second it would write; 0 where that is unknown.
    """

    changed = Signal()

    def __init__(
        self,
        controller: ChatController,
        sources: ModelSources,
        memory: DeviceMemory,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        slot = controller.model_slot
        self._slot = slot
        self._settings = controller.settings
        self._memory = memory
        self.offered: ModelCard | Suggestion | None = None
        self.words = 0.0
        self._search = FolderSearch(lambda chosen: tuple(sources.models(chosen)), self)
        slot.load_started.connect(self._look)
        # The engine has imported MLX by then.
        slot.load_progressed.connect(memory.ask_again, Qt.ConnectionType.SingleShotConnection)
        slot.loaded.connect(self._note_larger)
        for happened in (slot.loaded, slot.failed):
            happened.connect(self._look)
        for changed in (self._search.changed, memory.changed):
            changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, also after the next start."""
        self._settings.change_values(larger_model_declined=True)
        self._decide()

    def load_offered(self) -> None:
        """Load the offered model that is on this machine."""
        if isinstance(self.offered, ModelCard):
            self._slot.load_model(self.offered.model)

    def follow(self, models: "Models") -> None:
        """Look for the offered model again when it is downloaded."""
        models.downloads.finished.connect(self._look)

    def end_search(self) -> None:
        """End the search."""
        self._search.finish_work()

    @property
    def machine(self) -> Machine | None:
        """This machine's memory and precision; None before they are known."""
        memory = self._memory.now
        return None if memory is None else Machine(memory, self._slot.dtype)

    def _note_larger(self, info: ModelInfo) -> None:
        if not info.server and _is_larger(info):
            self.decline()

    def _look(self) -> None:
        """Find out about models and memory."""
        if self._may_offer:
            self._search.search_folders(self._settings.values.models_folder)
            self._memory.ask_again()
        self._decide()

    @property
    def _may_offer(self) -> bool:
        """Whether a small model of this machine answers, and the person wants to hear of larger ones."""
        slot = self._slot
        info = slot.info
        is_small = slot.chosen is None or (info is not None and not info.server and not _is_larger(info))
        return is_small and not self._settings.values.larger_model_declined

    def _decide(self) -> None:
        """Choose the model to offer: the best one here, else a suggested one; none while something is not known."""
        machine = self.machine
        offered: ModelCard | Suggestion | None = None
        words = 0.0
        if machine is not None and self._may_offer and self._search.looked:
            offered = best_here(self._search.results, machine, _DEFAULT_PARAMETERS)
            offered = offered or next(iter(for_machine(machine)), None)
        if machine is not None and isinstance(offered, Suggestion):
            words = words_a_second(offered, machine)
        if (offered, words) != (self.offered, self.words):
            self.offered = offered
            self.words = words
            self.changed.emit()


def _is_larger(model: ModelInfo) -> bool:
    return model.parameters // _SAME_SIZE > _DEFAULT_PARAMETERS // _SAME_SIZE
