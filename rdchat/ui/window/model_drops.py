"""What is dropped on a window: models, and files for a chat."""

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from rdchat.services.background.latest_task import LatestTask
from rdchat.services.models.installed.dropped_model import DroppedModel


class ModelDrops(QObject):
    """Takes a model's folder or file at a time; other files by any number, where the window has a use for them.

    Args:
        model: Looks at what is dropped, and loads it.
        window: What it may be dropped on.
        takes_files: Whether what is no model is told by `files_dropped`.
    """

    refused = Signal(str)  # why, a sentence or two
    files_dropped = Signal(list)  # paths

    def __init__(self, model: DroppedModel, window: QWidget, *, takes_files: bool = False) -> None:
        super().__init__(window)
        self._model, self._takes_files = model, takes_files
        self._look = LatestTask("dropped files", self)
        self._look.done.connect(self._sort)
        model.refused.connect(self.refused)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def close(self) -> None:
        """End looking at what was dropped."""
        self._look.close()
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
        if not self._takes_files:
            self._take_model(paths)
        else:  # a disk that sleeps may take its time to say what is a folder
            self._look.start(lambda _tell: (paths, any(_is_model(Path(path)) for path in paths)))

    @Slot(object)
    def _sort(self, found: tuple[list[str], bool]) -> None:
        paths, has_model = found
        if has_model:
            self._take_model(paths)
        else:
            self.files_dropped.emit(paths)

    def _take_model(self, paths: list[str]) -> None:
        if len(paths) == 1:
            self._model.take(paths[0])
        else:
            self.refused.emit(f"{len(paths)} things were dropped. Drop one model folder, or one GGUF file.")


def _is_model(path: Path) -> bool:
    return path.suffix.lower() in {".gguf", ".safetensors"} or path.is_dir()


def _paths(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine that are dragged."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
