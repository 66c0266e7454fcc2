"""What is dropped on a window: models, and files for a chat."""

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.files.dragged_things import Dragged, DraggedThings, Landing, is_model
from rdchat.services.models.installed.dropped_model import DroppedModel
from rdchat.ui.look.theme import Theme
from rdchat.ui.window.drop_sign import DropSign


class ModelDrops(QObject):
    """Takes a model's folder or file at a time; other files by any number, where the window has a use for them.

    While something is dragged over the window that it can take, a sign says where it lands.

    Args:
        model: Looks at what is dropped, and loads it.
        window: What it may be dropped on.
        theme: The appearance to follow.
        takes_files: Whether what is no model is told by `files_dropped`.

    Attributes:
        sign: Says where what is dragged lands.
        seen: What was last dragged over the window, as far as it was looked at.
    """

    refused = Signal(str)  # why, a sentence or two
    files_dropped = Signal(list)  # paths

    def __init__(self, model: DroppedModel, window: QWidget, theme: Theme, *, takes_files: bool = False) -> None:
        super().__init__(window)
        self._model, self._takes_files = model, takes_files
        self._areas = {Landing.CHAT: window, Landing.MODEL: window}
        self.sign = DropSign(theme, window)
        self.seen: Dragged | None = None
        self._over: tuple[str, ...] = ()  # what is dragged over the window now
        self._dragged = DraggedThings(model.problem, takes_files=takes_files, parent=self)
        self._dragged.seen.connect(self._on_seen)
        self._look = BackgroundWork("dropped files", self)
        model.refused.connect(self.refused)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def show_on(self, *, chat: QWidget, model: QWidget) -> None:
        """Show the sign on these parts of the window: where files land, and where a model does."""
        self._areas = {Landing.CHAT: chat, Landing.MODEL: model}

    def close(self) -> None:
        """End looking at what was dropped."""
        self._dragged.close()
        self._look.close()
        self._model.close()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QDropEvent):  # of which entering and moving are kinds
            paths = _paths(event.mimeData())
            if not paths:
                return False
            event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
            event.accept()
            if isinstance(event, QDragEnterEvent):
                self._enter(tuple(paths))
            elif not isinstance(event, QDragMoveEvent):
                self._leave()
                self._take(paths)
            return True
        if isinstance(event, QDragLeaveEvent):
            self._leave()
        return super().eventFilter(watched, event)

    def _enter(self, paths: tuple[str, ...]) -> None:
        self._over = paths
        if self.seen is not None and self.seen.paths == paths:  # it also leaves and enters between parts of a window
            self._show(self.seen)
        else:
            self._dragged.look(paths)

    def _leave(self) -> None:
        self._over = ()
        self.sign.take_away()

    @Slot(Dragged)
    def _on_seen(self, dragged: Dragged) -> None:
        self.seen = dragged
        if dragged.paths == self._over:
            self._show(dragged)

    def _show(self, dragged: Dragged) -> None:
        if dragged.landing is Landing.CHAT:
            self.sign.show_over(self._areas[Landing.CHAT], "attach", "Attach to this chat", dragged.name)
        elif dragged.landing is Landing.MODEL:
            self.sign.show_over(self._areas[Landing.MODEL], "model", "Open this model", dragged.name)

    def _take(self, paths: list[str]) -> None:
        if not self._takes_files:
            self._take_model(paths)
        else:  # a disk that sleeps may take its time to say what is a folder
            self._look.replace(lambda _job: (paths, any(is_model(Path(path)) for path in paths)), self._sort)

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


def _paths(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine that are dragged."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
