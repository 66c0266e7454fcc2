"""Model folders and files that are dropped on a window."""

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from rdchat.services.models.installed.dropped_model import DroppedModel


class ModelDrops(QObject):
    """Takes one folder or file at a time.

    Args:
        model: Looks at what is dropped, and loads it.
        window: What it may be dropped on.
    """

    refused = Signal(str)  # why, a sentence or two

    def __init__(self, model: DroppedModel, window: QWidget) -> None:
        super().__init__(window)
        self._model = model
        model.refused.connect(self.refused)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def close(self) -> None:
        """End looking at what was dropped."""
        self._model.close()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QDropEvent):  # of which entering and moving are kinds
            paths = _paths(event.mimeData())
            if not paths:
                return False
            event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
            event.accept()
            if not isinstance(event, QDragEnterEvent | QDragMoveEvent):
                self._take(paths)
            return True
        return super().eventFilter(watched, event)

    def _take(self, paths: list[str]) -> None:
        if len(paths) == 1:
            self._model.take(paths[0])
        else:
            self.refused.emit(f"{len(paths)} things were dropped. Drop one model folder, or one GGUF file.")


def _paths(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine that are dragged."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
