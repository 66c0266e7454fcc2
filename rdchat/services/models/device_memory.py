"""The machine's memory as the engine's device has it, asked for beside the main thread."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot

from rdchat.inference.api.memory_facts import MachineMemory
from rdchat.services.background.folder_search import FolderSearch


class DeviceMemory(FolderSearch):
    """See `FolderSearch`; it finds one `MachineMemory`.

    Args:
        find: Asks the device; None before the engine has begun.
        parent: The Qt parent.
    """

    def __init__(self, find: Callable[[], MachineMemory | None], parent: QObject | None = None) -> None:
        super().__init__(lambda: (memory,) if (memory := find()) is not None else None, parent)

    @property
    def now(self) -> MachineMemory | None:
        """What was found last; None before the engine has begun."""
        return self.found[0] if self.found else None

    @Slot()
    def ask(self) -> None:
        """Ask again; `changed` follows where it is another."""
        self.look()
