"""Checks a model folder or file that was dropped on a window, and loads it."""

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.sources import ModelSources


class DroppedModel(QObject):
    """Loads a dropped model. The loaded one stays if the dropped one cannot be loaded. Lives on the main thread.

    Attributes:
        problem: Returns why a folder or file cannot be loaded, empty where it can; for any thread.
    """

    refused = Signal(str)  # why, a sentence or two

    def __init__(self, sources: ModelSources, slot: ModelSlot, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.problem, self._slot = sources.problem, slot
        self._task = BackgroundWork("dropped model", self)

    def take(self, path: str) -> None:
        """Check a folder or a file and load it; `refused` follows if it is not a model."""
        self._task.replace(lambda _job: (path, self.problem(path)), self._take, failed=self._on_failed)

    def close(self) -> None:
        """End the work."""
        self._task.close()

    def _take(self, checked: tuple[str, str]) -> None:
        path, problem = checked
        if problem:
            self.refused.emit(problem)
        else:
            self._slot.load(path)

    def _on_failed(self, error: RdchatError) -> None:
        self.refused.emit(str(error))
