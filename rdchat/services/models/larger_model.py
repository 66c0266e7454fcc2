"""Which suggested models fit this machine, and the larger model to offer instead of the default one.

The default model is small, so that it runs everywhere. A banner offers a larger one until the person has loaded another
model or declined.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from rdchat.hub import Suggestion, suggestions
from rdchat.inference.api import Fit, ModelCard
from rdchat.services.background_work import FolderSearch
from rdchat.services.chat_controller import ChatController
from rdchat.services.models.fit import Machine, sizes_suggested
from rdchat.services.models.service_base import DeviceMemory, ModelSources

if TYPE_CHECKING:
    from rdchat.hub.downloads.download import Download
    from rdchat.services.models.window_services import Models

# A machine that reports at least this share of a size counts as one of that size: a Mac of 16 GB may report a bit less.
_ALMOST = 0.97
_LOADABLE = {Fit.FITS, Fit.TIGHT}
# Models with a chat template whose names say that they were not made to answer.
_NO_CHAT = re.compile(r"(?<![a-z0-9])(base|pt|embed(ding)?s?|rerank(er)?|guard)(?![a-z0-9])", re.IGNORECASE)
# Copies of one model may differ in the number of weights, but not by so many.
_SAME_SIZE = 10**8


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


class LargerModel(QObject):
    """Chooses the larger model to offer, if any: one on this machine, else one to download. It does not ask the hub.

    Args:
        controller: Has the model that answers, and the settings: models loaded before, and whether the person declined.
        sources: Find the models on this machine.
        memory: This machine's memory.
        parent: The Qt parent.

    Attributes:
        offered: The model to offer; None for none.
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
        self._slot = controller.model_slot
        self._settings = controller.settings
        self._memory = memory
        self.offered: ModelCard | Suggestion | None = None
        # The name of the offered model from the end of its download until it is loaded.
        self._downloaded = ""
        self._search = FolderSearch(lambda chosen: tuple(sources.models(chosen)), self)
        self._search.changed.connect(self._decide)
        self._slot.loaded.connect(self._look)
        self._slot.failed.connect(self._look)
        self._slot.load_started.connect(self._decide)
        self._slot.engine.request_ended.connect(self._load_downloaded)
        memory.changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, also after the next start."""
        self._settings.change_values(larger_model_declined=True)
        self._decide()

    def load_offered(self) -> None:
        """Load the offered model that is on this machine."""
        if isinstance(self.offered, ModelCard):
            self._slot.load_model(self.offered.model)

    def follow(self, models: "Models") -> None:
        """Load the offered model as soon as it is downloaded, unless the person chose another one meanwhile."""
        models.downloads.finished.connect(self._on_downloaded)

    def end_search(self) -> None:
        """End the search."""
        self._search.finish_work()

    def _look(self) -> None:
        """Find out about models and memory, which is unknown until the default model is loaded, as that imports MLX."""
        if self._may_offer:
            self._search.search_folders(self._settings.values.models_folder)
            if self._memory.now is None:
                self._memory.ask_again()
        self._decide()

    @property
    def _may_offer(self) -> bool:
        settings = self._settings.values
        slot = self._slot
        only_default = slot.chosen is None and not slot.loading and not settings.recent_models
        return only_default and not settings.larger_model_declined

    def _decide(self) -> None:
        """Choose the model to offer: the best one here, else a suggested one; none while something is not known."""
        memory = self._memory.now
        offered: ModelCard | Suggestion | None = None
        if memory is not None and self._may_offer and self._search.looked:
            machine = Machine(memory, self._slot.dtype)
            offered = best_here(self._search.results, machine, self._slot.info.parameters if self._slot.info else 0)
            offered = offered or next(iter(for_machine(machine)), None)
        if offered != self.offered:
            self.offered = offered
            self.changed.emit()

    def _on_downloaded(self, download: "Download") -> None:
        if isinstance(self.offered, Suggestion) and download.repository == self.offered.repository:
            self._downloaded = download.model_name
            self._load_downloaded()

    def _load_downloaded(self) -> None:
        """Load the downloaded model, but not during a reply: loading would end it; its end calls this again.

        Once the person has chosen another model, nothing is offered any more, and the download is only kept.
        """
        if self._downloaded and self.offered is not None and not self._slot.engine.writing:
            self._slot.load_model(self._downloaded)
            self._downloaded = ""
