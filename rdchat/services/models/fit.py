"""Whether a model of the hub fits this machine, by the arithmetic of the engine's memory gate (`model_facts`).

The gate reads the headers of the weights and the configuration. The hub tells the bytes of the weights and their
quantisation; so the size of the KV cache is an allowance here, and the rest comes out as the gate has it.

A model or drafter, wherever it is: on the hub, on its way, or on this machine.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from rdchat.hub import HubModel, RepositoryFiles, Suggestion, drafter_for, suggestions
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.inference.api import GATE_TOKENS, Dtype, Fit, MachineMemory, MemoryNeed, ModelCard, ModelSizes
from rdchat.services.background_work import FolderSearch
from rdchat.services.chat_controller import ChatController
from rdchat.services.models.service_base import DeviceMemory, ModelSources

if TYPE_CHECKING:
    from rdchat.services.models.window_services import Models

# Values in the cache per token. Models have 57,000 (Llama 3.2 3B), 74,000 (Qwen3 8B) or 164,000 (Llama 3.3 70B).
_CACHE_VALUES = 61_000
_CACHE_VALUES_PER_WEIGHT = 1.4e-6
# Bits per quantised weight, for a scale and a bias of 16 bits each in a group of 64.
_OVERHEAD_BITS = 0.5
# A number of weights, such as `27B` or `0.6b`; not that of the weights that work for each token: `A3B`, `E4B`, `8x7B`.
_NAMED_SIZE = re.compile(r"(?<![a-zA-Z0-9._])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")
# Names of mixtures may give only the weights that work for each token, as `17B-16E`.
_MIXTURE = re.compile(r"(?<![a-z0-9])\d+e(?![a-z0-9])|moe", re.IGNORECASE)
_BITS = re.compile(r"(\d+)-bit|mxfp(\d)|nvfp(\d)")


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory and precision that models are judged by.

    Attributes:
        memory: Of this machine.
        dtype: The precision that models are loaded in.
    """

    memory: MachineMemory
    dtype: Dtype = Dtype.AUTO

    @property
    def when_idle(self) -> "Machine":
        """This machine while no other program needs memory, by which models of the hub are judged."""
        return replace(self, memory=replace(self.memory, room=self.memory.total_room))

    def need(self, sizes: ModelSizes, drafter_bytes: int = 0) -> MemoryNeed:
        """Return the memory that a model needs, with a drafter of some bytes."""
        return replace(MemoryNeed.for_sizes(sizes, self.dtype, self.memory.on_gpu), drafter_bytes=drafter_bytes)

    def refuses(self, sizes: ModelSizes) -> bool:
        """Whether loading a model now would be refused."""
        return self.need(sizes).fit(self.memory.room) is Fit.TOO_LARGE

    def fit(self, sizes: ModelSizes | None, drafter_bytes: int = 0) -> Fit | None:
        """Return whether a model fits the whole memory, with a drafter; None where its sizes are not known."""
        return None if sizes is None else self.need(sizes, drafter_bytes).fit(self.memory.total_room)


def sizes_of(weight_bytes: int, quantization: str, float_bits: int = 16) -> ModelSizes:
    """Estimate a model's sizes from its safetensors.

    Args:
        weight_bytes: Of the tensors.
        quantization: Such as `4-bit`; empty where the weights are floats.
        float_bits: Of most of the floats.
    """
    bits = _bits_of(quantization)
    parameters = int(weight_bytes * 8 / (bits + _OVERHEAD_BITS if bits else float_bits))
    float_type = Dtype.FLOAT32 if float_bits == 32 else Dtype.BFLOAT16
    cache_values = _CACHE_VALUES + int(parameters * _CACHE_VALUES_PER_WEIGHT)
    return ModelSizes(parameters, weight_bytes, bits, float_type, cache_values, GATE_TOKENS)


def _bits_of(quantization: str) -> int | None:
    match = _BITS.fullmatch(quantization)
    return int(next(filter(None, match.groups()))) if match else None


def pair_bytes(repository: str) -> int:
    """Return the bytes of the drafter that is downloaded with a model of the hub; 0 without one."""
    drafter = drafter_for(repository)
    return drafter.weight_bytes if drafter is not None else 0


def sizes_suggested(suggestion: Suggestion) -> ModelSizes:
    """Estimate the sizes of a suggested model."""
    return sizes_of(suggestion.weight_bytes, "8-bit" if suggestion.repository.endswith("8bit") else "4-bit")


def sizes_read(model: HubModel) -> ModelSizes | None:
    """Estimate the sizes of a found model, by its name where the hub gives none; None where neither does."""
    size = model.weight_bytes
    name = model.repository.rpartition("/")[2]
    named = _NAMED_SIZE.search(name)
    if size is None and named is not None and not _MIXTURE.search(name):
        parameters = float(named[1]) * (1e9 if named[2] in "bB" else 1e6)
        bits = _bits_of(model.quantization)
        size = int(parameters * (bits + _OVERHEAD_BITS if bits else model.float_bits) / 8)
    return None if size is None else sizes_of(size, model.quantization, model.float_bits)


def sizes_of_files(model: HubModel, files: RepositoryFiles) -> ModelSizes:
    """Estimate a model's sizes from its files."""
    weights = {file.digest: file.size for file in files.files if file.name.endswith(".safetensors")}
    return sizes_of(sum(weights.values()), model.quantization, model.float_bits)


class ModelState(Enum):
    """Where a model is; a `STOPPED` download is paused or has failed."""

    FOUND = auto()
    DOWNLOADING = auto()
    STOPPED = auto()
    INSTALLED = auto()


@dataclass(frozen=True, slots=True)
class Model:
    """A model or drafter under one id, with what the library, the downloads and the hub know of it.

    Attributes:
        id: A hub id, a drafter's folder, or the id of a download.
        card: Facts from its files on this machine; None if they were not read.
        hub: The hub's description; None if the hub was not asked.
        download: Its download; None without one.
        is_installed: Whether all of it is on this machine.
        has_older_version: Whether another version is on this machine.
        drafts: Whether it is listed as a drafter for the chosen model.
        is_model: Whether it answers by itself.
        size: Bytes to download; 0 if unknown.
        load_name: What loads it; empty for a drafter, or until that is known.
        can_start: Whether enough is known of its files for a download.
        facts: Shown below the name of a model that a remote server runs, or several Macs.
    """

    id: str
    card: ModelCard | None = None
    hub: HubModel | None = None
    download: Download | None = None
    is_installed: bool = False
    has_older_version: bool = False
    drafts: bool = False
    is_model: bool = True
    size: int = 0
    load_name: str = ""
    can_start: bool = True
    facts: str = ""

    @classmethod
    def downloaded(cls, download: Download) -> "Model":
        """Return the model of an entry in the list of downloads."""
        installed = download.state is DownloadState.FINISHED
        name = download.model_name if installed and download.is_model else ""
        return cls(download.id, download=download, is_installed=installed, is_model=download.is_model, load_name=name)

    @property
    def state(self) -> ModelState:
        if self.is_installed:
            return ModelState.INSTALLED
        if self.download is None or self.download.state is DownloadState.FINISHED:
            # A finished download that is not installed was deleted since.
            return ModelState.FOUND
        return ModelState.STOPPED if self.download.state.has_ended else ModelState.DOWNLOADING

    @property
    def is_smaller_model(self) -> bool:
        """Whether it would draft as a smaller model; otherwise it is a drafter head."""
        return self.hub is not None and self.hub.is_smaller_model

    @property
    def is_in_downloads(self) -> bool:
        """Whether it is an entry in the list of downloads."""
        return self.download is not None and self.id == self.download.id

    @property
    def folder(self) -> Path | None:
        """The folder of its files, as far as it is known."""
        if self.card is not None:
            return self.card.path
        return Path(self.download.folder) if self.download is not None and self.download.folder else None


# A Mac of 16 GB may report a little less.
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
    held_gb = machine.memory.total_bytes / _ALMOST / 2**30
    here = (each for each in suggestions() if each.memory_gb <= held_gb or each.memory_gb == 8)
    fitting = [each for each in here if suggested_fit(each, machine) in _LOADABLE]
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
        # The name of the offered model, once it is downloaded.
        self._downloaded = ""
        # The result is one tuple of all models.
        self._search = FolderSearch(lambda chosen: (tuple(sources.models(chosen)),), self)
        self._search.changed.connect(self._decide)
        self._slot.loaded.connect(self._look)
        self._slot.failed.connect(self._look)
        self._slot.load_started.connect(self._decide)
        self._slot.engine.request_ended.connect(self._load_downloaded)
        memory.changed.connect(self._decide)

    def decline(self) -> None:
        """Offer none any more, in later starts neither."""
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
        """Find out about models and memory; not before the default model is there, as that imports MLX."""
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
        memory = self._memory.now
        offered: ModelCard | Suggestion | None = None
        if memory is not None and self._may_offer and (self._search.results or self._search.problem):
            machine = Machine(memory, self._slot.dtype)
            here = self._search.results[0] if self._search.results else ()
            offered = best_here(here, machine, self._slot.info.parameters if self._slot.info else 0)
            offered = offered or next(iter(for_machine(machine)), None)
        if offered != self.offered:
            self.offered = offered
            self.changed.emit()

    def _on_downloaded(self, download: "Download") -> None:
        if isinstance(self.offered, Suggestion) and download.repository == self.offered.repository:
            self._downloaded = download.model_name
            self._load_downloaded()

    def _load_downloaded(self) -> None:
        """Load the downloaded model, but not during a reply: loading would end it."""
        if self._downloaded and self.offered is not None and not self._slot.engine.writing:
            self._slot.load_model(self._downloaded)
            self._downloaded = ""
