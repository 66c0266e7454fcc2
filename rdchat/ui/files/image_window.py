"""The window of an image, which goes to the other images of its chat.

Sizes are in device-independent pixels.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QKeyCombination, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QImage,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QNativeGestureEvent,
    QPainter,
    QPixmap,
    QResizeEvent,
    QShortcut,
    QTransform,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QGraphicsScene, QGraphicsView, QWidget

from rdchat.errors import RdchatError, file_errors
from rdchat.services.background_work import MainThread
from rdchat.ui.files.chips import NO_LIMIT, PICTURES, Picture, ask, dimensions, drawn
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    IconButton,
    SideWindow,
    Theme,
    announce,
    ask_to_save,
    column,
    row,
    small_text,
)
from rdchat.work import Job

# The window of an image: its smallest size, and the size of an image whose own is not known yet.
_SMALLEST = QSize(420, 320)
_UNKNOWN = QSize(800, 600)
# The share of the screen that it takes at most when it opens, and the height of its bar.
_SHARE = 0.8
_BAR = 60
# The factor by which a press of a key or a step of a wheel zooms, and the limits of the zoom.
_STEP = 1.25
_MIN_ZOOM = 0.1
_MAX_ZOOM = 16.0
_TOGGLE = QKeyCombination(Qt.KeyboardModifier.ControlModifier, Qt.Key.Key_0)
_Key = QKeySequence.StandardKey


class PictureView(QGraphicsView):
    """An image in the middle of its room, or a line in its place.

    At first it is as large as fits, but no larger than it is. The wheel and a pinch zoom it, a double click goes to its
    actual size and back, and dragging moves it.

    Args:
        theme: The appearance to follow.
        copy: Called by the menu's Copy while it has the keyboard.

    Attributes:
        zoomed: Emitted with the zoom: screen pixels of a pixel of the image.
    """

    zoomed = Signal(float)

    def __init__(self, theme: Theme, copy: Callable[[], object]) -> None:
        super().__init__(transformationAnchor=QGraphicsView.ViewportAnchor.AnchorUnderMouse)
        self._theme = theme
        self.copy = copy
        self.image = QImage()
        self._size = QSize()
        self._text = ""
        # None while it is as large as fits.
        self._zoom: float | None = None
        self.setScene(QGraphicsScene(self))
        self._item = self.scene().addPixmap(QPixmap())
        self._item.setTransformationMode(Qt.TransformationMode.SmoothTransformation)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_image(self, image: QImage, size: QSize, text: str) -> None:
        """Show an image as if it had a size in pixels; without one, show a text."""
        self.image = image
        self._size = size
        self._text = text
        self._item.setPixmap(QPixmap.fromImage(image))
        self._item.setScale(size.width() / max(image.width(), 1))
        self.setSceneRect(QRectF(QPointF(), size.toSizeF()))
        self.zoom_to(None if image.isNull() else self._zoom)

    def zoom_to(self, zoom: float | None) -> None:
        """Show it at a zoom; None shows it as large as fits, but no larger than it is."""
        self._zoom = zoom
        scaled = self._size.scaled(self.viewport().size(), Qt.AspectRatioMode.KeepAspectRatio)
        # 1 where the size is not known yet.
        fitting = min(scaled.width() / max(self._size.width(), 1), 1.0) or 1.0
        scale = fitting if zoom is None else min(max(zoom, _MIN_ZOOM), _MAX_ZOOM)
        self.setTransform(QTransform.fromScale(scale, scale))
        mode = QGraphicsView.DragMode
        self.setDragMode(mode.ScrollHandDrag if scale > fitting else mode.NoDrag)
        self.zoomed.emit(scale)

    def zoom_by(self, factor: float) -> None:
        """Show it larger or smaller than now (`m11` is the present zoom)."""
        self.zoom_to(self.transform().m11() * factor)

    def toggle_zoom(self) -> None:
        """Show it at its actual size, or as large as fits if it was zoomed."""
        self.zoom_to(1.0 if self._zoom is None else None)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.zoom_by(_STEP ** (event.angleDelta().y() / 120))
        else:
            super().wheelEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.toggle_zoom()

    def viewportEvent(self, event: QEvent) -> bool:
        if isinstance(event, QNativeGestureEvent) and event.gestureType() is Qt.NativeGestureType.ZoomNativeGesture:
            self.zoom_by(1 + event.value())
        return super().viewportEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.zoom_to(self._zoom)

    def drawForeground(self, painter: QPainter, area: QRectF | QRect) -> None:
        colors = self._theme.colors
        painter.setPen(colors.muted if self.image.isNull() else colors.border)
        if not self.image.isNull():
            painter.drawRect(self.sceneRect())
            return
        painter.resetTransform()
        room = self.viewport().rect().adjusted(LARGE, LARGE, -LARGE, -LARGE)
        painter.drawText(room, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, self._text)


class ImageWindow(SideWindow):
    """Shows an image, and goes to the others of its chat by the arrow keys; copies and saves it without metadata.

    Args:
        picture: The image.
        find: Returns all images of the chat; called on a thread.
        seen_size: Returns the size at which the model sees an image, None if it does not; called on a thread.
        theme: The appearance to follow.
        parent: The window closes with it.
    """

    def __init__(
        self,
        picture: Picture,
        find: Callable[[], Sequence[Picture]],
        seen_size: Callable[[Picture], tuple[int, int] | None],
        theme: Theme,
        parent: QWidget,
    ) -> None:
        self._largest = parent.screen().availableSize()
        known = _UNKNOWN if picture.size.isEmpty() else picture.size
        fitting = known.scaled(self._largest * _SHARE, Qt.AspectRatioMode.KeepAspectRatio)
        size = (fitting.boundedTo(known) + QSize(2 * LARGE, _BAR + LARGE)).expandedTo(_SMALLEST)
        super().__init__(picture.name, size.toTuple(), _SMALLEST.toTuple(), parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._main = MainThread(self)
        self._pictures = [picture]
        self._index = 0
        self._seen_size = seen_size
        # The size at which the model sees it, as the end of the line below the image; empty until that is known.
        self._seen = ""
        # Whether all of its pixels were asked for.
        self._has_all_pixels = False
        self.view = PictureView(theme, self.copy)
        self.view.zoomed.connect(self._sharpen)
        self.name = ElidedLabel(theme, bold=True, middle=True)
        self.detail = small_text(theme, tabular=True)
        self.previous = IconButton("previous", "Previous image", theme, act=lambda: self.show_other(-1))
        self.next = IconButton("next", "Next image", theme, act=lambda: self.show_other(1))
        self.copy_button = IconButton("copy", "Copy the image", theme, act=self.copy)
        self.save_button = IconButton("save", "Save the image…", theme, act=self.save_image)
        texts = column(self.name, self.detail, spacing=1)
        buttons = row(self.copy_button, self.save_button, spacing=TIGHT)
        bar = row(self.previous, self.next, SMALL, (texts, 1), buttons, spacing=TIGHT, margins=(SMALL, 0, SMALL, SMALL))
        column((self.view, 1), bar, within=self, spacing=SMALL, margins=(MEDIUM, MEDIUM, MEDIUM, 0))
        QShortcut(QKeySequence.StandardKey.MoveToPreviousChar, self, lambda: self.show_other(-1))
        QShortcut(QKeySequence.StandardKey.MoveToNextChar, self, lambda: self.show_other(1))
        self.view.setFocus()
        self._show()
        PICTURES.do(lambda _job: find(), self._main.bring(self._show_among, once=True))

    @property
    def picture(self) -> Picture:
        """The image that is shown."""
        return self._pictures[self._index]

    def show_other(self, steps: int) -> None:
        """Go to another image; nothing happens at the ends."""
        if 0 <= (index := self._index + steps) < len(self._pictures):
            self._index = index
            self._show()

    def copy(self) -> None:
        """Copy the image as pixels."""
        ask(self.picture, NO_LIMIT, self._main, self._put_on_clipboard)

    def save_image(self) -> None:
        """Ask where to save the image, as PNG."""
        name = f"{Path(self.picture.name).stem}.png"
        ask_to_save(self, "Save Image", name, ("PNG (*.png)",), self._save)

    def _save(self, path: str) -> None:
        picture = self.picture

        def write(job: Job[Any]) -> str:
            data = drawn(picture, NO_LIMIT, job)
            with file_errors(f"{Path(path).name} cannot be written", "Choose another folder or name."):
                Path(path).write_bytes(data)
            return f"Saved as {Path(path).name}"

        PICTURES.do(write, self._main.bring(self._report, once=True))

    def _put_on_clipboard(self, outcome: QImage | RdchatError) -> None:
        if isinstance(outcome, QImage):
            QGuiApplication.clipboard().setImage(outcome)
        self._report("Copied" if isinstance(outcome, QImage) else outcome)

    def _report(self, outcome: str | RdchatError) -> None:
        self.detail.show_text(str(outcome), "danger" if isinstance(outcome, RdchatError) else "success")
        self.view.setAccessibleDescription(str(outcome))
        announce(self.view)

    def _show_among(self, pictures: Sequence[Picture] | RdchatError) -> None:
        if not isinstance(pictures, RdchatError) and self.picture in pictures:
            self._index = pictures.index(self.picture)
            self._pictures = list(pictures)
            self._show_position()

    def _show(self) -> None:
        picture = self.picture
        self.setWindowTitle(picture.name)
        self.name.setText(picture.name)
        self.view.setAccessibleName(f"Image {picture.name}, {picture.pixels_text}")
        self.view.show_image(QImage(), picture.size, "Reading…")
        self._seen = ""
        self._has_all_pixels = False
        seen_size = self._seen_size
        self._show_position()
        PICTURES.do(lambda _job: (picture, seen_size(picture)), self._main.bring(self._show_seen, once=True))
        ask(picture, self._largest * self.devicePixelRatioF(), self._main, partial(self._take, picture))

    def _show_seen(self, seen: tuple[Picture, tuple[int, int] | None] | RdchatError) -> None:
        if isinstance(seen, tuple) and seen[0] is self.picture and seen[1] is not None:
            self._seen = f"  ·  The model sees {dimensions(*seen[1])}"
            self._show_position()

    def _show_position(self) -> None:
        count = len(self._pictures)
        position = f"{self._index + 1} of {count}  ·  " if count > 1 else ""
        self.detail.show_text(f"{position}{self.picture.pixels_text}{self._seen}", "muted")
        for button, is_there in ((self.previous, self._index > 0), (self.next, self._index < count - 1)):
            button.setVisible(count > 1)
            button.setEnabled(is_there)

    def _sharpen(self, zoom: float) -> None:
        """Read all pixels of the image once they are needed.

        At first it is read no larger than the screen. A zoom may need more pixels than that copy has.
        """
        picture = self.picture
        # The screen pixels that its whole width takes at this zoom; at most its own.
        needed = picture.size.width() * min(zoom * self.devicePixelRatioF(), 1.0)
        if 0 < self.view.image.width() < needed and not self._has_all_pixels:
            self._has_all_pixels = True
            ask(picture, NO_LIMIT, self._main, partial(self._take, picture))

    def _take(self, picture: Picture, outcome: QImage | RdchatError) -> None:
        if picture is self.picture:
            image = outcome if isinstance(outcome, QImage) else QImage()
            problem = "" if isinstance(outcome, QImage) else str(outcome)
            self.view.show_image(image, image.size() if picture.size.isEmpty() else picture.size, problem)
            self.view.setAccessibleDescription(problem)

    def event(self, event: QEvent) -> bool:
        """Keep some keys from the menus: there they belong to the main window."""
        if isinstance(event, QKeyEvent) and event.type() is QEvent.Type.ShortcutOverride and self._command(event):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if command := self._command(event):
            command()
        else:
            super().keyPressEvent(event)

    def _command(self, event: QKeyEvent) -> Callable[[], object] | None:
        """Return what a key does in this window; None for nothing."""
        view = self.view
        commands: tuple[tuple[QKeySequence.StandardKey, Callable[[], object]], ...] = (
            (_Key.Copy, self.copy),
            (_Key.Save, self.save_image),
            (_Key.ZoomIn, partial(view.zoom_by, _STEP)),
            (_Key.ZoomOut, partial(view.zoom_by, 1 / _STEP)),
        )
        if event.keyCombination() == _TOGGLE:
            return view.toggle_zoom
        return next((command for key, command in commands if event.matches(key)), None)
