"""Whether a model fits this machine, also one of the hub; and `Model`, the models window's view of one.

A model is judged by the arithmetic of the engine's memory gate (`model_facts`), which takes its sizes. For a model on
this machine they come from the headers of its files. For one of the hub they are estimated here: the hub tells only the
bytes of the weights and their quantisation, so the size of the KV cache is an allowance.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from rdchat.hub import HubModel, RepositoryFiles, Suggestion, drafter_for
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.inference.api import GATE_TOKENS, Dtype, Fit, MachineMemory, MemoryNeed, ModelCard, ModelSizes

# Values in the cache per token. Models have 57,000 (Llama 3.2 3B), 74,000 (Qwen3 8B) or 164,000 (Llama 3.3 70B).
_CACHE_VALUES = 61_000
_CACHE_VALUES_PER_WEIGHT = 1.4e-6
# Bits per quantised weight, for a scale and a bias of 16 bits each in a group of 64.
_OVERHEAD_BITS = 0.5
# A number of weights, such as `27B` or `0.6b`; not that of the weights that work for each token: `A3B`, `E4B`, `8x7B`.
_NAMED_SIZE = re.compile(r"(?<![a-zA-Z0-9._])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")
# Names of mixtures may give only the weights that work for each token, as `17B-16E`.
_MIXTURE = re.compile(r"(?<![a-z0-9])\d+e(?![a-z0-9])|moe", re.IGNORECASE)
_BITS = re.compile(r"(?:mxfp|nvfp)?(\d+)(?:-bit)?")


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
    """Return the bits of a quantisation such as `4-bit` or `mxfp4`; None for floats."""
    match = _BITS.fullmatch(quantization)
    return int(match[1]) if match else None


def pair_bytes(repository: str) -> int:
    """Return the bytes of the drafter that is downloaded with a model of the hub; 0 without one."""
    drafter = drafter_for(repository)
    return drafter.weight_bytes if drafter is not None else 0


def sizes_suggested(suggestion: Suggestion) -> ModelSizes:
    """Estimate the sizes of a suggested model."""
    return sizes_of(suggestion.weight_bytes, "8-bit" if suggestion.repository.endswith("8bit") else "4-bit")


def sizes_read(model: HubModel) -> ModelSizes | None:
    """Estimate the sizes of a found model, by its name where the hub gives none; None where neither does.

    `Qwen3-8B-4bit` has 8e9 parameters of 4.5 bits, so 4.5 GB. The name of a mixture says nothing.
    """
    size = model.weight_bytes
    name = model.repository.rpartition("/")[2]
    named = _NAMED_SIZE.search(name)
    if size is None and named is not None and not _MIXTURE.search(name):
        parameters = float(named[1]) * (1e9 if named[2] in "bB" else 1e6)
        bits = _bits_of(model.quantization)
        size = int(parameters * (bits + _OVERHEAD_BITS if bits else model.float_bits) / 8)
    return None if size is None else sizes_of(size, model.quantization, model.float_bits)


def sizes_of_files(model: HubModel, files: RepositoryFiles) -> ModelSizes:
    """Estimate a model's sizes from its files; files with the same content count once."""
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
    """A model or drafter in the models window, with what the library, the downloads and the hub know of it.

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
