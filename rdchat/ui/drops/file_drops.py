"""Takes models and files that are dropped on a window."""

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from rdchat.services.files.dragged_things import Dragged, DraggedThings, Landing
from rdchat.services.models.installed.dropped_model import DroppedModel
from rdchat.ui.drops.drop_overlay import DropOverlay
from rdchat.ui.look.theme import Theme

_ICONS = {Landing.CHAT: ("attach", "Attach to this chat"), Landing.MODEL: ("model", "Open this model")}


class FileDrops(QObject):
    """Takes one model folder or file at a time, and any number of other files where the window has a use for them.

    Args:
        model: Checks and loads a model that is dropped.
        window: Receives the drops.
        theme: The appearance to follow.
        takes_files: Whether files that are not models are emitted by `files_dropped`.

    Attributes:
        sign: Shows where a drop would land.
    """

    refused = Signal(str)  # why, in a sentence or two
    files_dropped = Signal(list)  # paths

    def __init__(self, model: DroppedModel, window: QWidget, theme: Theme, *, takes_files: bool = False) -> None:
        super().__init__(window)
        self._model = model
        self._areas = {Landing.CHAT: window, Landing.MODEL: window}
        self.sign = DropOverlay(theme, window)
        self._seen: Dragged | None = None  # what was dragged over the window last
        self._over: tuple[str, ...] = ()  # what is dragged over the window now
        self._dropped: tuple[str, ...] = ()  # what was dropped, until it is known what it is
        self._dragged = DraggedThings(model.problem, takes_files=takes_files, parent=self)
        self._dragged.seen.connect(self._on_seen)
        model.refused.connect(self.refused)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def show_on(self, *, chat: QWidget, model: QWidget) -> None:
        """Set the parts of the window that the overlay covers: for files, and for a model."""
        self._areas = {Landing.CHAT: chat, Landing.MODEL: model}

    def close(self) -> None:
        """End all checks."""
        self._dragged.close()
        self._model.close()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QDropEvent):  # the base class of enter and move events
            paths = tuple(url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile())
            if not paths:
                return False
            event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
            event.accept()
            if isinstance(event, QDragEnterEvent):
                self._over = paths
                self._look_at(paths)
            elif not isinstance(event, QDragMoveEvent):
                self._leave()
                self._dropped = paths
                self._look_at(paths)
            return True
        if isinstance(event, QDragLeaveEvent):
            self._leave()
        return super().eventFilter(watched, event)

    def _look_at(self, paths: tuple[str, ...]) -> None:
        if self._seen is not None and self._seen.paths == paths:  # a drag also leaves and enters between child widgets
            self._on_seen(self._seen)
        else:
            self._dragged.look(paths)

    def _leave(self) -> None:
        self._over = ()
        self.sign.take_away()

    @Slot(Dragged)
    def _on_seen(self, dragged: Dragged) -> None:
        self._seen = dragged
        if dragged.paths == self._dropped:
            self._dropped = ()
            self._take(dragged)
        elif dragged.paths == self._over and dragged.landing in _ICONS:
            self.sign.show_over(self._areas[dragged.landing], *_ICONS[dragged.landing], dragged.name)

    def _take(self, dropped: Dragged) -> None:
        if not dropped.is_model:
            self.files_dropped.emit(list(dropped.paths))
        elif len(dropped.paths) == 1:
            self._model.take(dropped.paths[0])
        else:
            self.refused.emit(f"{len(dropped.paths)} things were dropped. Drop one model folder, or one GGUF file.")
