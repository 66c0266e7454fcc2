"""A model or drafter, wherever it is: on the hub, on its way, or on this machine."""

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import ModelCard


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
        gguf: The GGUF file to download; empty for all known files.
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
    gguf: str = ""
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
