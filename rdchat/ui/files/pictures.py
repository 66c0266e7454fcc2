"""Small copies of images, which the images' child draws: the window decodes no foreign file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QPainterPath
from PySide6.QtWidgets import QWidget

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data
from rdchat.errors import ImageRefusedError, RdchatError
from rdchat.inference.vision.image_process import AS_IT_IS, as_file, shared_images
from rdchat.services.background.background_work import MainThread
from rdchat.services.chat.chat_prompt import FileText
from rdchat.ui.style.icons import line_pixmap
from rdchat.ui.style.theme import Theme
from rdchat.work.job import Job, SerialThread

NO_LIMIT = QSize(*AS_IT_IS)
"""The size of a copy that is as large as the image."""
_ICON = 18
# Of a very long image, the copy is so many times as long as what is seen of it.
_LONGEST = 8


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of a message.

    Attributes:
        digest: See `AttachedFile`.
        name: Its name for people.
        size: Width and height in pixels, turned as its EXIF asks; empty until it was decoded.
        read: Returns the file as it was given, in base64; not for the main thread.
    """

    digest: str
    name: str
    size: QSize
    read: Callable[[], str] = field(compare=False)

    @property
    def text(self) -> str:
        """Its size for people."""
        return "size not known yet" if self.size.isEmpty() else f"{size_text(*self.size.toTuple())} pixels"


def size_text(width: int, height: int) -> str:
    """Return a size in pixels for people."""
    return f"{width:,} × {height:,}"  # noqa: RUF001  the sign of sizes


def picture_of(file: AttachedFile, text_of: FileText) -> Picture | None:
    """Return the picture of a file that is an image; None for any other file."""
    if file.kind is not FileKind.IMAGE:
        return None
    return Picture(file.digest, file.name, QSize(file.width, file.height), lambda: text_of(file))


PICTURES = SerialThread("pictures")
"""One for all windows: the child draws one picture at a time."""


def ask(picture: Picture, size: QSize, then: Callable[[QImage | RdchatError], object]) -> None:
    """Draw a copy that is no larger than `size`, and call `then` on the thread."""
    PICTURES.do(lambda job: QImage.fromData(drawn(picture, size, job)), then)


def drawn(picture: Picture, size: QSize, job: Job[Any]) -> bytes:
    """Return an image as PNG, turned and without metadata, no larger than `size`; raises ImageRefusedError."""
    try:
        data = image_data(picture.read())
    except ValueError as error:
        raise ImageRefusedError(f"{picture.name} is damaged.", "Attach it again.") from error
    with as_file(data) as path:
        return shared_images().draw(path, (size.width(), size.height()), name=picture.name, waiting=job.check)


class SmallCopy(QObject):
    """A small copy of an image on a widget, which it asks for when it is first painted.

    Args:
        picture: The image.
        theme: The appearance to follow.
        widget: Is painted again when the copy is there.

    Attributes:
        problem: Why the image cannot be shown; empty if it can.
    """

    def __init__(self, picture: Picture, theme: Theme, widget: QWidget) -> None:
        super().__init__(widget)
        self.picture = picture
        self._theme = theme
        self._widget = widget
        self._main = MainThread(self)
        self._asked = QSize()
        self._image = QImage()
        self.problem = ""

    def paint(self, area: QRect, radius: float) -> None:
        """Fill an area of the widget with the image, cut at the longer sides, with round corners and a hairline."""
        colors = self._theme.colors
        ratio = self._widget.devicePixelRatioF()
        size = next((each for each in (self.picture.size, self._image.size()) if not each.isEmpty()), area.size())
        shown = size.scaled(area.size(), Qt.AspectRatioMode.KeepAspectRatioByExpanding)
        self._ask(shown.boundedTo(area.size() * _LONGEST) * ratio)
        painter = QPainter(self._widget)
        frame = QPainterPath()
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
        frame.addRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        painter.fillPath(frame, colors.raised)
        if self.problem:
            icon = line_pixmap("warning", colors.muted, _ICON, ratio)
            painter.drawPixmap(area.center() - QPointF(_ICON, _ICON).toPoint() / 2, icon)
        painter.save()
        painter.setClipPath(frame)
        # One that is smaller stays as it is.
        place = QRectF(QPointF(), shown.boundedTo(size).toSizeF())
        place.moveCenter(QRectF(area).center())
        painter.drawImage(place, self._image)
        painter.restore()
        painter.setPen(colors.border)
        painter.drawPath(frame)

    def _ask(self, size: QSize) -> None:
        if size != self._asked:
            self._asked = size
            ask(self.picture, size, self._main.bring(self._take, once=True))

    def _take(self, outcome: QImage | RdchatError) -> None:
        if isinstance(outcome, QImage):
            self._image = outcome
        else:
            self.problem = str(outcome)
        self._widget.update()
