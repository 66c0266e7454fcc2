"""The functions by which the models window's services read models and ask the device.

The composition root gives them (`ModelSources`), so that services import no MLX.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from rdchat.hub import RepositoryFiles
from rdchat.inference.api import MachineMemory, ModelCard, ModelPart
from rdchat.services.background_work import FolderSearch

if TYPE_CHECKING:
    from rdchat.hub.hub_api import HubApi

type Find = Callable[[HubApi, ModelCard, str, ModelPart], RepositoryFiles | None]
"""Takes the hub, a model, its original's hub id, empty to find it, and what it lacks; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class ModelSources:
    """Slow functions; each is called on a thread.

    Attributes:
        models: Yields the models on this machine; takes a folder of the person's own, or "".
        memory: Returns the machine's memory, an estimate before the engine has started; None if it is unknown.
        drafters: Returns the drafter heads that fit the model in a folder; None before the engine has started.
        calls: Returns the measured time of a model's calls by rows, in plain steps; None before the engine has
            started.
        problem: Returns why a folder or file cannot be loaded, a sentence; empty where it can.
        original_parts: Finds at the hub what a model lacks.
    """

    models: Callable[[str], Iterable[ModelCard]] = lambda _chosen: ()
    memory: Callable[[], MachineMemory | None] = lambda: None
    drafters: Callable[[Path], tuple[ModelCard, ...] | None] = lambda _folder: ()
    calls: Callable[[Path], Mapping[int, float] | None] = lambda _folder: {}
    problem: Callable[[str], str] = lambda _path: ""
    original_parts: Find = lambda _hub, _model, _original, _part: None


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

    def ask_again(self) -> None:
        """Ask again; emits `changed` if the answer differs."""
        self.search_folders()
