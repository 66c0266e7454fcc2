"""How much memory models could take on this machine, found once beside the main thread."""

from collections.abc import Callable

from PySide6.QtCore import QObject

from rdchat import memory
from rdchat.inference.api.model_room import ModelRoom
from rdchat.services.background.folder_search import FolderSearch


class MachineRoom(FolderSearch):
    """See `FolderSearch`; it finds one `ModelRoom`.

    Args:
        find: Asks the device; it may import MLX. None as long as that cannot be asked.
        parent: The Qt parent.
    """

    def __init__(self, find: Callable[[], ModelRoom | None], parent: QObject | None = None) -> None:
        super().__init__(lambda: (find(),), parent)

    @property
    def room(self) -> ModelRoom | None:
        """What was found; None until then."""
        return self.found[0] if self.found else None


def whole_memory() -> ModelRoom:
    """Return all of the machine's memory, where nobody said how much of it the device takes."""
    total = memory.total_bytes()
    return ModelRoom(total, keeps_quantised=True, total_bytes=total)
