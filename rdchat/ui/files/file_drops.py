"""Takes models, files and images that are dropped on a window, and shows where a drop would land.

`image_in` and `local_files` also read what is pasted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QBuffer, QEvent, QMimeData, QObject, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QImage,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QWidget

from rdchat import mac_desktop
from rdchat.chat.attachments.attached_file import printable_name
from rdchat.chat.attachments.kinds import looks_readable
from rdchat.errors import ImageRefusedError
from rdchat.files import FORMATS, MEDIA
from rdchat.services.background_work import BackgroundWork
from rdchat.ui.style import LARGE, SMALL, Theme, control_font, line_pixmap, paint_card

# Another program may give an image's bytes this name.
_QT_IMAGE = "application/x-qt-image"
# The overlay, in pixels: the card with its icon and two lines of text, and the widest text. `_VEIL` is the opacity
# around the card.
_ICON = 28
_VEIL = 0.6
_CARD = QSize(360, 132)
_WIDEST = 320
_LINE = 26


def local_files(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine among the data."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]


def has_image(data: QMimeData) -> bool:
    """Return whether the data are an image without text; the URL that browsers add does not count."""
    if not data.hasImage() and not any(kind.startswith(MEDIA) for kind in data.formats()):
        return False
    lines = {line.strip() for line in data.text().splitlines()}
    return not lines - {url.toString() for url in data.urls()} - {""}


def image_in(data: QMimeData, *, is_dragged: bool) -> Callable[[], bytes]:
    """Return a function that gives the image's data, never what is at its URL; call it on a thread, as it may encode.

    It is the first of these that there is: the Mac's pasteboard, bytes in a format that rdchat reads, bytes in another
    one, bytes under Qt's name, and Qt's decoded image, which is encoded as PNG.

    Bytes of another program are not decoded here, whatever they are: the child that decodes images gets them.
    """
    if result := mac_desktop.pasteboard_image(is_dragged=is_dragged):
        return lambda: result
    others = (kind for kind in data.formats() if kind.startswith(MEDIA))
    best = filter(data.hasFormat, (each.media_type for each in FORMATS))
    for kind in (*best, *others, _QT_IMAGE):
        if given := bytes(data.data(kind).data()):
            return lambda: given
    return partial(_as_png, data.imageData())


def _as_png(image: QImage | None) -> bytes:
    if image is None:
        raise ImageRefusedError(
            "The other app has not saved what was dropped as a file yet.",
            "Save it and drop the file, or copy and paste it.",
        )
    buffer = QBuffer()
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # its type wants bytes, its code a str
    return bytes(buffer.data().data())


@dataclass(frozen=True, slots=True)
class Dragged:
    """Files and folders that are dragged or dropped.

    Attributes:
        paths: Paths on this machine.
        is_model: Whether it is a model; otherwise they are files for the next message.
        name: Name of the file, or the number of files; empty if nothing can be read.
        problem: Why a model cannot be loaded, a sentence or two.
    """

    paths: tuple[str, ...]
    is_model: bool
    name: str = ""
    problem: str = ""


def look_at(paths: tuple[str, ...], problem: Callable[[str], str], *, takes_files: bool) -> Dragged:
    """Look at files and folders, which takes seconds on a sleeping disk.

    They count as a model if one of them may be one, or if nothing else is taken; a model must be dropped alone.

    Args:
        paths: Where they are; not empty.
        problem: Returns why a model cannot be loaded, empty if it can.
        takes_files: Whether files that are not models are taken.
    """
    if any(is_model(Path(path)) for path in paths) or not takes_files:
        if len(paths) > 1:
            return Dragged(paths, True, problem=f"{len(paths)} items were dropped. Drop one model folder.")
        return Dragged(paths, True, printable_name(Path(paths[0]).name), problem(paths[0]))
    readable = [path for path in paths if looks_readable(Path(path))]
    one = printable_name(Path(readable[0]).name) if readable else ""
    return Dragged(paths, False, f"{len(readable)} files" if len(readable) > 1 else one)


def is_model(path: Path) -> bool:
    """Return whether a path may be a model: a folder, or a file of weights."""
    return path.suffix.lower() in {".gguf", ".safetensors"} or path.is_dir()


class DropOverlay(QWidget):
    """Covers a part of a window while something is dragged over it that can be dropped there.

    The pointer goes through it: the window below receives the drop.

    Attributes:
        text: The effect of a drop.
        name: Name of the dragged thing.
    """

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme = theme
        self._window = window
        self.text = ""
        self.name = ""
        self._icon = ""
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_over(self, area: QWidget, icon: str, text: str, name: str) -> None:
        """Cover a part of the window with an icon, bold words and the name of what is dragged."""
        self._icon = icon
        self.text = text
        self.name = name
        self.setAccessibleName(f"{text}: {name}")
        self.setGeometry(QRect(area.mapTo(self._window, QPoint(0, 0)), area.size()))
        self.raise_()
        self.show()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        veil = QColor(colors.surface)
        tint = QColor(colors.accent)
        veil.setAlphaF(_VEIL)
        tint.setAlphaF(0.1)
        paint_card(self, self.rect(), veil, radius=0)
        edge = SMALL + 1
        pen = QPen(colors.accent, 2)
        paint_card(self, QRectF(self.rect()).adjusted(edge, edge, -edge, -edge), tint, pen)
        card = QRect(QPoint(0, 0), _CARD)
        card.moveCenter(self.rect().center())
        paint_card(self, card, colors.surface, colors.border)
        painter = QPainter(self)
        picture = line_pixmap(self._icon, colors.accent, _ICON, self.devicePixelRatioF())
        painter.drawPixmap(card.center().x() - _ICON // 2, card.top() + LARGE, picture)
        lines = ((colors.text, control_font(3, bold=True), self.text), (colors.muted, control_font(), self.name))
        for index, (color, font, text) in enumerate(lines):
            painter.setPen(color)
            painter.setFont(font)
            line = card.adjusted(0, LARGE + _ICON + SMALL + index * _LINE, 0, 0)
            elided = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, _WIDEST)
            painter.drawText(line, Qt.AlignmentFlag.AlignHCenter, elided)


class FileDrops(QObject):
    """Takes one model folder or file at a time, or any number of files for a message.

    Args:
        problem: Returns why a model cannot be loaded, empty if it can. Called on a thread.
        load: Loads a model.
        window: Receives the drops.
        theme: The appearance to follow.
        takes_files: Whether files that are not models are emitted by `files_dropped`.

    Attributes:
        sign: Shows where a drop would land.
        refused: Emitted with a sentence or two: why a drop was refused.
        files_dropped: Emitted with the paths.
        image_dropped: Emitted with what gives the data of an image that is no file; see `image_in`.
    """

    refused = Signal(str)
    files_dropped = Signal(list)
    image_dropped = Signal(object)

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
        self._takes_files = takes_files
        self._look = partial(look_at, problem=problem, takes_files=takes_files)
        self._load = load
        # Two threads: files that are opened are looked at to the end, also while something else is dragged.
        self._task = BackgroundWork("dropped files", self)
        self._taking = BackgroundWork("opened files", self)
        self._chat_area = window
        self._model_area = window
        self.sign = DropOverlay(theme, window)
        # What was dragged last, once it was looked at, and the paths that are over the window now; none for an image.
        self._seen: Dragged | None = None
        self._over: tuple[str, ...] = ()
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def show_on(self, *, chat: QWidget, model: QWidget) -> None:
        """Set the parts of the window that the overlay covers: for files, and for a model."""
        self._chat_area = chat
        self._model_area = model

    def take_files(self, paths: tuple[str, ...]) -> None:
        """Take files as if they were dropped; several calls wait for each other."""
        look = self._look
        failed = lambda error: self._take(Dragged(paths, True, problem=str(error)))  # noqa: E731
        self._taking.do(lambda: look(paths), self._take, failed)

    def end_checks(self) -> None:
        """End all checks."""
        self._task.finish_work()
        self._taking.finish_work()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take drags and drops of the window that have files, or an image that is no file if files are taken.

        What enters is looked at and shown by the overlay; a move is only accepted. A drop of files is looked at again,
        and then taken. A file that another program has only promised has no path yet, and counts as an image.
        """
        # The class of drops is also the base class of enter and move events.
        if isinstance(event, QDropEvent):
            paths = tuple(local_files(event.mimeData()))
            has_data = has_image(event.mimeData()) or mac_desktop.is_file_promised()
            is_image = not paths and self._takes_files and has_data
            if not paths and not is_image:
                return False
            event.setDropAction(Qt.DropAction.CopyAction)
            event.accept()
            if isinstance(event, QDragEnterEvent) and is_image:
                self._over = ()
                self._seen = Dragged((), False, "Image")
                self._show(self._seen)
            elif isinstance(event, QDragEnterEvent):
                self._enter(paths)
            elif not isinstance(event, QDragMoveEvent):
                self._leave()
                if is_image:
                    self.image_dropped.emit(image_in(event.mimeData(), is_dragged=True))
                else:
                    self._look_at(paths, self._take)
            return True
        if isinstance(event, QDragLeaveEvent):
            self._leave()
        return super().eventFilter(watched, event)

    def _enter(self, paths: tuple[str, ...]) -> None:
        self._over = paths
        if self._seen is not None and self._seen.paths == paths:  # Qt sends enter events for each child widget
            self._show(self._seen)
        else:
            self._look_at(paths, self._show)

    def _leave(self) -> None:
        self._over = ()
        self.sign.hide()

    def _look_at(self, paths: tuple[str, ...], then: Callable[[Dragged], object]) -> None:
        look = self._look
        self._task.replace(
            lambda _job: look(paths), then, failed=lambda error: then(Dragged(paths, True, problem=str(error)))
        )

    def _show(self, dragged: Dragged) -> None:
        """Show where a drop would land, if that is still over the window and can be dropped."""
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
