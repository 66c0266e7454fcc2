"""The files of a message as buttons: chips with a name and a line about the file, and larger tiles for sent images.

The pictures on them are drawn by the child process for images: the window decodes no file of others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from PySide6.QtCore import QObject, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data
from rdchat.errors import ImageRefusedError, RdchatError
from rdchat.inference.api import MAX_IMAGES
from rdchat.inference.vision.image_process import AS_IT_IS, as_file, shared_images
from rdchat.services.background_work import MainThread
from rdchat.services.chat.chat_prompt import FileText
from rdchat.ui.style import (
    RADIUS,
    SMALL,
    TIGHT,
    ElidedLabel,
    IconButton,
    Theme,
    ThinBar,
    column,
    control_font,
    discard,
    line_pixmap,
    paint_card,
    paint_focus,
    row,
    scaled,
    set_tip,
    show_share,
)
from rdchat.work import Job, SerialThread

NO_LIMIT = QSize(*AS_IT_IS)
"""The size of a copy that is as large as the image."""
_ICON = 18
# Of a very long image, the copy is so many times as long as what is seen of it.
_LONGEST = 8
# The height of a chip, its largest and smallest width, and the size of its button, in pixels.
CHIP_HEIGHT = 42
_WIDEST = 300
_MIN = 130
_REMOVE = 22
# A picture on a chip is a square, at this distance from its edges.
_INSET = 5
_SQUARE = CHIP_HEIGHT - 2 * _INSET
# A sent image is fitted into this size, and no side is shorter than the other number.
_TILE = QSize(240, 160)
_SHORTEST = 56
# How opaque the ground is over an image that is left out.
_VEIL = 0.75
_TOO_OLD = f"The model does not get it: of the images of a chat, it gets the latest {MAX_IMAGES}. "

PICTURES = SerialThread("pictures")
"""One for all windows: the child draws one picture at a time."""


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
    def pixels_text(self) -> str:
        """Its size for people."""
        return "size not known yet" if self.size.isEmpty() else f"{dimensions(*self.size.toTuple())} pixels"


def dimensions(width: int, height: int) -> str:
    """Return a size in pixels for people."""
    return f"{width:,} × {height:,}"  # noqa: RUF001  the sign of sizes


def part_text(file: AttachedFile, complete: str) -> str:
    """Return which part of a file was sent; `complete` if all of it was."""
    return f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else complete


def picture_of(file: AttachedFile, text_of: FileText) -> Picture | None:
    """Return the picture of a file that is an image; None for any other file."""
    if file.kind is not FileKind.IMAGE:
        return None
    return Picture(file.digest, file.name, QSize(file.width, file.height), lambda: text_of(file))


def ask(picture: Picture, size: QSize, main: MainThread, then: Callable[[QImage | RdchatError], object]) -> None:
    """Draw a copy that is no larger than `size`, and call `then` on the main thread."""
    PICTURES.do(lambda job: QImage.fromData(drawn(picture, size, job)), main.bring(then, once=True))


def drawn(picture: Picture, size: QSize, job: Job[Any]) -> bytes:
    """Return an image as PNG, turned and without metadata, no larger than `size`; raises ImageRefusedError."""
    try:
        data = image_data(picture.read())
    except ValueError as error:
        raise ImageRefusedError(f"{picture.name} is damaged.", "Attach it again.") from error
    with as_file(data) as path:
        return shared_images().scale_image(
            path, (size.width(), size.height()), name=picture.name, waiting=job.check_cancelled
        )


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
        self._requested = QSize()
        self._image = QImage()
        self.problem = ""

    def fill_area(self, area: QRect, radius: float) -> None:
        """Fill an area of the widget with the image, cut at the longer sides, with round corners and a hairline.

        The image's size is the picture's; where that is not known, the copy's, and before there is a copy the area's.
        """
        colors = self._theme.colors
        ratio = self._widget.devicePixelRatioF()
        size = next((each for each in (self.picture.size, self._image.size()) if not each.isEmpty()), area.size())
        scaled = size.scaled(area.size(), Qt.AspectRatioMode.KeepAspectRatioByExpanding)
        self._ask(scaled.boundedTo(area.size() * _LONGEST) * ratio)
        painter = QPainter(self._widget)
        frame = QPainterPath()
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
        frame.addRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        painter.fillPath(frame, colors.raised)
        if self.problem:
            icon = line_pixmap("warning", colors.muted, _ICON, ratio)
            painter.drawPixmap(area.center() - QPoint(_ICON, _ICON) / 2, icon)
        painter.save()
        painter.setClipPath(frame)
        # One that is smaller stays as it is.
        position = QRectF(QPointF(), scaled.boundedTo(size).toSizeF())
        position.moveCenter(QRectF(area).center())
        painter.drawImage(position, self._image)
        painter.restore()
        painter.setPen(colors.border)
        painter.drawPath(frame)

    def _ask(self, size: QSize) -> None:
        if size != self._requested:
            self._requested = size
            ask(self.picture, size, self._main, self._take)

    def _take(self, outcome: QImage | RdchatError) -> None:
        if isinstance(outcome, QImage):
            self._image = outcome
        else:
            self.problem = str(outcome)
        self._widget.update()


class Chip(QAbstractButton):
    """A file of a message, as a button.

    Args:
        theme: The appearance to follow.
        parent: The Qt parent.

    Attributes:
        remove: Removes the file, if the chip has such a button.
    """

    remove: IconButton | None = None

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    @property
    def _line(self) -> QPen:
        """The line around it, which shows the focus."""
        colors = self._theme.colors
        focused = self.hasFocus()
        return QPen(colors.accent if focused else colors.border, 1.5 if focused else 1)


class FileChip(Chip):
    """A file with its name and a line about it; an image has its picture in place of the icon.

    Args:
        theme: The appearance to follow.
        ground: The background colour, a name of `Colors`.
        removable: Whether the chip has a button that removes the file.
        parent: The Qt parent.
    """

    remove_requested = Signal()

    def __init__(self, theme: Theme, ground: str, *, removable: bool, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._ground = ground
        self._copy: SmallCopy | None = None
        self._name = ElidedLabel(theme, middle=True)
        self._detail = ElidedLabel(theme, "", "muted")
        self._detail.setFont(control_font(-1, tabular=True))
        self._bar = ThinBar("Read", 2)
        self._bar.hide()
        for part in (self._name, self._detail, self._bar):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        if removable:
            self.remove = IconButton("close", "Remove the file", theme, act=self.remove_requested.emit)
            self.remove.setFixedSize(_REMOVE, _REMOVE)
            self.remove.setCursor(Qt.CursorShape.ArrowCursor)
        lines = column(self._name, self._detail, self._bar, spacing=1)
        ends = [self.remove] if self.remove else []
        margins = (2 * SMALL + _ICON, TIGHT, TIGHT if removable else SMALL, TIGHT)
        self._row = row((lines, 1), *ends, within=self, spacing=TIGHT, margins=margins)

    def show_file(self, name: str, detail: str, color: str = "muted", *, tip: str) -> None:
        """Show a name and, in a colour of `Colors`, a line below it; `tip` has details for the tooltip."""
        self._name.setText(name)
        self._detail.show_text(detail, color)
        self.setAccessibleName(f"{name}, {detail}")
        self.setAccessibleDescription(tip)
        set_tip(self, f"{name}. {tip}" if tip else name)
        if self.remove is not None:
            self.remove.setAccessibleName(f"Remove {name}")
        self.updateGeometry()

    def show_picture(self, picture: Picture | None) -> None:
        """Show the picture of an image in place of the icon; a chip's file stays the same, so only the first counts."""
        if picture is not None and self._copy is None:
            self._copy = SmallCopy(picture, self._theme, self)
            margins = self._row.contentsMargins()
            margins.setLeft(_INSET + _SQUARE + SMALL)
            self._row.setContentsMargins(margins)
            self.updateGeometry()

    def show_progress(self, fraction: float | None) -> None:
        """Show how much of the file is read; None shows no bar."""
        self._bar.setVisible(fraction is not None)
        show_share(self._bar, fraction or 0)

    def sizeHint(self) -> QSize:
        texts = max(label.fontMetrics().horizontalAdvance(label.text()) for label in (self._name, self._detail))
        around = self._row.contentsMargins().left() + SMALL + (_REMOVE if self.remove else 0)
        return QSize(min(max(texts + 1 + around, _MIN), _WIDEST), scaled(CHIP_HEIGHT))

    def paintEvent(self, event: QPaintEvent) -> None:
        ground: QColor = getattr(self._theme.colors, self._ground)
        fill = ground.darker(106) if self.isDown() or self.underMouse() else ground
        paint_card(self, QRectF(self.rect()).adjusted(1, 1, -1, -1), fill, self._line, RADIUS - 2)
        if self._copy is not None:
            self._copy.fill_area(QRect(_INSET, _INSET, _SQUARE, _SQUARE), RADIUS - 2 - _INSET // 2)
            return
        icon = line_pixmap("file", self._theme.colors.muted, _ICON, self.devicePixelRatioF())
        QPainter(self).drawPixmap(SMALL, (self.height() - _ICON) // 2, icon)


class ImageTile(Chip):
    """A sent image, as large as it fits."""

    def __init__(self, picture: Picture, note: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._copy = SmallCopy(picture, theme, self)
        self._note = note
        self.digest = picture.digest
        self.left_out = False
        self.setAccessibleName(f"Image {picture.name}, {picture.pixels_text}")
        self.mark_left_out(False)

    def mark_left_out(self, left_out: bool) -> None:
        """Show whether the model does not get the image, since the chat has too many."""
        self.left_out = left_out
        tip = f"{self._note} {_TOO_OLD * left_out}Click to see it larger.".strip()
        self.setAccessibleDescription(tip)
        set_tip(self, f"{self._copy.picture.name}. {tip}")
        self.update()

    def sizeHint(self) -> QSize:
        size = self._copy.picture.size
        if size.isEmpty():
            return QSize(_TILE.height(), _TILE.height())
        fitting = size.scaled(_TILE, Qt.AspectRatioMode.KeepAspectRatio).boundedTo(size)
        return fitting.expandedTo(QSize(_SHORTEST, _SHORTEST))

    def paintEvent(self, event: QPaintEvent) -> None:
        self._copy.fill_area(self.rect(), RADIUS)
        if self.left_out:
            colors = self._theme.colors
            veil = QColor(colors.surface)
            veil.setAlphaF(_VEIL)
            paint_card(self, QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), veil, colors.border)
            painter = QPainter(self)
            painter.setFont(control_font(-1))
            painter.setPen(colors.text)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, "Left out")
        if self.hasFocus():
            paint_focus(QPainter(self), QRectF(self.rect()), self._theme.colors.accent, RADIUS)


class ChipRow(QWidget):
    """Chips side by side, on as many lines as they need."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: list[Chip] = []

    def set_chips(self, chips: Iterable[Chip]) -> None:
        """Show these children of the row; the caller deletes others."""
        self.chips = list(chips)
        for before, chip in pairwise(self.chips):
            QWidget.setTabOrder(before.remove or before, chip)
        for chip in self.chips:
            chip.show()

    def arrange_chips(self, width: int, align: float = 0) -> int:
        """Arrange the chips within a width; return the height they take.

        Lines that do not fill it stand at the left, for 0.5 in the middle, for 1 at the right.
        """
        lines: list[list[tuple[Chip, QSize]]] = []
        left = 0
        for chip in self.chips:
            size = chip.sizeHint()
            size.setWidth(min(size.width(), width))
            if not lines or left + size.width() > width:
                lines.append([])
                left = 0
            lines[-1].append((chip, size))
            left += size.width() + TIGHT
        top = 0
        for line in lines:
            left = round(align * (width - sum(size.width() + TIGHT for _, size in line) + TIGHT))
            bottom = top + max(size.height() for _, size in line)
            for chip, size in line:
                chip.setGeometry(QRect(QPoint(left, bottom - size.height()), size))
                left += size.width() + TIGHT
            top = bottom + TIGHT
        return max(top - TIGHT, 0)


class SentFiles(ChipRow):
    """The files of a message in the transcript, images first, at the right above its text; a click opens what was sent.

    Attributes:
        opened: Emitted with the `AttachedFile` that was clicked.
    """

    opened = Signal(object)

    def __init__(self, files: Sequence[AttachedFile], text_of: FileText, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._text_of = text_of
        self._left_out: Sequence[str] = ()
        self.show_files(files)

    def show_files(self, files: Sequence[AttachedFile]) -> None:
        """Show these files instead."""
        discard(*self.chips)
        images_first = sorted(files, key=lambda file: file.kind is not FileKind.IMAGE)
        self.set_chips([self._chip(file) for file in images_first])
        self.mark_left_out(self._left_out)

    def mark_left_out(self, digests: Sequence[str]) -> None:
        """Mark the images that the model does not get, by their digests."""
        self._left_out = digests
        for chip in self.chips:
            # The tokens are counted at every pause in typing, so an image whose mark stays is not drawn again.
            if isinstance(chip, ImageTile) and chip.left_out != (chip.digest in digests):
                chip.mark_left_out(not chip.left_out)

    def arrange(self, width: int) -> int:
        """Arrange the chips within a width; return the height they take with the gap below."""
        height = self.arrange_chips(width, align=1)
        self.setGeometry(0, 0, width, height)
        return height + SMALL if self.chips else 0

    def _chip(self, file: AttachedFile) -> Chip:
        chip: Chip
        if (picture := picture_of(file, self._text_of)) is not None:
            chip = ImageTile(picture, file.note, self._theme, self)
        else:
            chip = FileChip(self._theme, "surface", removable=False, parent=self)
            chip.show_file(
                file.name, part_text(file, "Whole file"), tip=f"{file.note} Click to read what was sent.".strip()
            )
        chip.clicked.connect(lambda: self.opened.emit(file))
        return chip
