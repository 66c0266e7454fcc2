"""Functions that read models and ask the device, given by the composition root: services may not import MLX."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject

from rdchat.inference.api.model_facts import MachineMemory, ModelCard
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.models.drafters.mtp_search import Find


@dataclass(frozen=True, slots=True)
class ModelSources:
    """Slow functions; each is called on a thread.

    Attributes:
        models: Yields the models on this machine; takes a folder of the person's own, or "".
        memory: Returns the machine's memory; None before the engine has started.
        drafters: Returns the drafter heads that fit the model in a folder; None before the engine has started.
        calls: Returns the measured time of a model's calls by rows, in plain steps; None before the engine has
            started.
        problem: Returns why a folder or file cannot be loaded, a sentence; empty where it can.
        mtp_layers: Finds the MTP layers of a model at the hub.
    """

    models: Callable[[str], Iterable[ModelCard]] = lambda _chosen: ()
    memory: Callable[[], MachineMemory | None] = lambda: None
    drafters: Callable[[Path], tuple[ModelCard, ...] | None] = lambda _folder: ()
    calls: Callable[[Path], Mapping[int, float] | None] = lambda _folder: {}
    problem: Callable[[str], str] = lambda _path: ""
    mtp_layers: Find = lambda _hub, _model, _original: None


class DeviceMemory(FolderSearch):
    """The machine's memory as the engine's device sees it; a `FolderSearch` for one `MachineMemory`.

    Args:
        find: Asks the device; None before the engine has started.
        parent: The Qt parent.
    """

    def __init__(self, find: Callable[[], MachineMemory | None], parent: QObject | None = None) -> None:
        super().__init__(lambda: (memory,) if (memory := find()) is not None else None, parent)

    @property
    def now(self) -> MachineMemory | None:
        """The last answer; None before the engine has started."""
        return self.results[0] if self.results else None

    def ask(self) -> None:
        """Ask again; emits `changed` if the answer differs."""
        self.look()
