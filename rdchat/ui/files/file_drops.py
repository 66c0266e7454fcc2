"""Takes models and files that are dropped on a window, and shows where a drop would land."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.files.dragged_things import Dragged, look_at
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, RADIUS, SMALL, TIGHT, Theme

_ICON = 28
_VEIL = 0.6  # opacity of the veil over what is below
_WIDEST = 320  # pixels of a line of text


class DropOverlay(QWidget):
    """Covers a part of a window while something is dragged over it that can be dropped there.

    The pointer goes through it: the window below receives the drop.

    Attributes:
        words: What a drop would do.
        name: What is dragged.
    """

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme, self._window = theme, window
        self._area: QWidget | None = None
        self.words = self.name = ""
        self._picture = PlainLabel()
        self._title = ThemedLabel(theme, "", points_more=3, bold=True)
        self._about = ThemedLabel(theme, "", "muted")
        self._card = QWidget()
        self._card.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Maximum)
        lines = (self._picture, SMALL - TIGHT, self._title, self._about)
        column(*lines, within=self._card, spacing=TIGHT, margins=(LARGE, LARGE, LARGE, MEDIUM + TIGHT))
        for label in (self._picture, self._title, self._about):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        column(None, row(None, self._card, None), None, within=self)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_over(self, area: QWidget, icon: str, words: str, name: str) -> None:
        """Cover a part of the window with an icon, bold words and the name of what is dragged."""
        if area is not self._area:
            self._leave_area()
            self._area = area
            area.installEventFilter(self)
        self.words, self.name = words, name
        self.setAccessibleName(f"{words}: {name}")
        self._picture.setPixmap(line_pixmap(icon, self._theme.colors.accent, _ICON, self.devicePixelRatioF()))
        room = min(_WIDEST, area.width() - 6 * LARGE)
        for label, text in ((self._title, words), (self._about, name)):
            label.setText(label.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, room))
        self._fit()
        self.raise_()
        self.show()
        self.update()

    def take_away(self) -> None:
        """Hide the overlay."""
        self._leave_area()
        self.hide()

    def _leave_area(self) -> None:
        if self._area is not None:
            self._area.removeEventFilter(self)
            self._area = None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            self._fit()
        return False

    def _fit(self) -> None:
        if self._area is not None:
            place = self._area.mapTo(self._window, QPoint(0, 0))
            self.setGeometry(QRect(place, self._area.size()))

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil, tint = QColor(colors.surface), QColor(colors.accent)
        veil.setAlphaF(_VEIL)
        tint.setAlphaF(0.1)
        painter.fillRect(self.rect(), veil)
        painter.setBrush(tint)
        painter.setPen(QPen(colors.accent, 2))
        edge = SMALL + 1
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(edge, edge, -edge, -edge), RADIUS, RADIUS)
        painter.setPen(colors.border)
        painter.setBrush(colors.surface)
        painter.drawRoundedRect(self._card.geometry(), RADIUS, RADIUS)


class FileDrops(QObject):
    """Takes one model folder or file at a time, and any number of other files where the window has a use for them.

    Args:
        problem: Returns why a model cannot be loaded, empty if it can. Called on a thread.
        load: Loads a model.
        window: Receives the drops.
        theme: The appearance to follow.
        takes_files: Whether files that are not models are emitted by `files_dropped`.

    Attributes:
        sign: Shows where a drop would land.
    """

    refused = Signal(str)  # why, in a sentence or two
    files_dropped = Signal(list)  # paths

    def __init__(
        self,
        problem: Callable[[str], str],
        load: Callable[[str], object],
        window: QWidget,
        theme: Theme,
        *,
        takes_files: bool = False,
    ) -> None:
        super().__init__(window)
        self._look, self._load = partial(look_at, problem=problem, takes_files=takes_files), load
        self._task = BackgroundWork("dropped files", self)
        self._chat_area = self._model_area = window
        self.sign = DropOverlay(theme, window)
        self._seen: Dragged | None = None  # what was dragged over the window last
        self._over: tuple[str, ...] = ()  # what is dragged over the window now
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def show_on(self, *, chat: QWidget, model: QWidget) -> None:
        """Set the parts of the window that the overlay covers: for files, and for a model."""
        self._chat_area, self._model_area = chat, model

    def close(self) -> None:
        """End all checks."""
        self._task.close()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QDropEvent):  # the base class of enter and move events
            paths = tuple(url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile())
            if not paths:
                return False
            event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
            event.accept()
            if isinstance(event, QDragEnterEvent):
                self._enter(paths)
            elif not isinstance(event, QDragMoveEvent):
                self._leave()
                self._look_at(paths, self._take)
            return True
        if isinstance(event, QDragLeaveEvent):
            self._leave()
        return super().eventFilter(watched, event)

    def _enter(self, paths: tuple[str, ...]) -> None:
        self._over = paths
        if self._seen is not None and self._seen.paths == paths:  # a drag also leaves and enters between child widgets
            self._show(self._seen)
        else:
            self._look_at(paths, self._show)

    def _leave(self) -> None:
        self._over = ()
        self.sign.take_away()

    def _look_at(self, paths: tuple[str, ...], then: Callable[[Dragged], object]) -> None:
        look = self._look
        self._task.replace(
            lambda _job: look(paths), then, failed=lambda error: then(Dragged(paths, True, problem=str(error)))
        )

    def _show(self, dragged: Dragged) -> None:
        self._seen = dragged
        if dragged.paths != self._over or dragged.problem or not dragged.name:
            return
        if dragged.is_model:
            self.sign.show_over(self._model_area, "model", "Open this model", dragged.name)
        else:
            self.sign.show_over(self._chat_area, "attach", "Attach to this chat", dragged.name)

    def _take(self, dropped: Dragged) -> None:
        if not dropped.is_model:
            self.files_dropped.emit(list(dropped.paths))
        elif dropped.problem:
            self.refused.emit(dropped.problem)
        else:
            self._load(dropped.paths[0])
