"""Chips: the files of a message, each with its name and one line about it; sent images are larger, without these."""

from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind
from rdchat.services.chat.chat_prompt import FileText
from rdchat.ui.files.pictures import Picture, SmallCopy, picture_of
from rdchat.ui.style.buttons import IconButton
from rdchat.ui.style.icons import line_pixmap
from rdchat.ui.style.labels import ElidedLabel, set_tip
from rdchat.ui.style.layouts import ThinBar, column, discard, row, show_share
from rdchat.ui.style.theme import RADIUS, SMALL, TIGHT, Theme, control_font, paint_card, paint_focus

CHIP_HEIGHT = 42
_ICON = 18
_WIDEST = 300
_MIN = 130
_REMOVE = 22
# A picture on a chip is a square, at this distance from its edges.
_INSET = 5
_SQUARE = CHIP_HEIGHT - 2 * _INSET
# A sent image is fitted into this size, and no side is shorter than the other number.
_TILE = QSize(240, 160)
_SHORTEST = 56


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
        self._name = ElidedLabel(theme, mode=Qt.TextElideMode.ElideMiddle)
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

    def show_file(self, name: str, detail: str, color: str = "muted", *, tip: str = "") -> None:
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
        """Show the picture of an image in place of the icon."""
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
        return QSize(min(max(texts + 1 + around, _MIN), _WIDEST), CHIP_HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        ground: QColor = getattr(self._theme.colors, self._ground)
        fill = ground.darker(106) if self.isDown() or self.underMouse() else ground
        paint_card(self, QRectF(self.rect()).adjusted(1, 1, -1, -1), fill, self._line, RADIUS - 2)
        if self._copy is not None:
            self._copy.paint(QRect(_INSET, _INSET, _SQUARE, _SQUARE), RADIUS - 2 - _INSET // 2)
            return
        icon = line_pixmap("file", self._theme.colors.muted, _ICON, self.devicePixelRatioF())
        QPainter(self).drawPixmap(SMALL, (self.height() - _ICON) // 2, icon)


class ImageTile(Chip):
    """A sent image, as large as it fits."""

    def __init__(self, picture: Picture, note: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._copy = SmallCopy(picture, theme, self)
        self.setAccessibleName(f"Image {picture.name}, {picture.text}")
        tip = f"{note} Click to see it larger.".strip()
        self.setAccessibleDescription(tip)
        set_tip(self, f"{picture.name}. {tip}")

    def sizeHint(self) -> QSize:
        size = self._copy.picture.size
        if size.isEmpty():
            return QSize(_TILE.height(), _TILE.height())
        fitting = size.scaled(_TILE, Qt.AspectRatioMode.KeepAspectRatio).boundedTo(size)
        return fitting.expandedTo(QSize(_SHORTEST, _SHORTEST))

    def paintEvent(self, event: QPaintEvent) -> None:
        self._copy.paint(self.rect(), RADIUS)
        if self.hasFocus():
            paint_focus(QPainter(self), QRectF(self.rect()), self._theme.colors.accent, RADIUS)


class ChipRow(QWidget):
    """Chips side by side, on as many lines as they need."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: list[Chip] = []

    def set_chips(self, chips: Sequence[Chip]) -> None:
        """Show these children of the row; the caller deletes others."""
        self.chips = list(chips)
        for before, chip in pairwise(self.chips):
            QWidget.setTabOrder(before.remove or before, chip)
        for chip in self.chips:
            chip.show()

    def layout_for(self, width: int, *, right: bool = False) -> int:
        """Arrange the chips within a width, from the left or at the right; return the height they take."""
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
            x = width - sum(size.width() + TIGHT for _, size in line) + TIGHT if right else 0
            bottom = top + max(size.height() for _, size in line)
            for chip, size in line:
                chip.setGeometry(QRect(QPoint(x, bottom - size.height()), size))
                x += size.width() + TIGHT
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
        self.show_files(files)

    def show_files(self, files: Sequence[AttachedFile]) -> None:
        """Show these files instead."""
        discard(*self.chips)
        images_first = sorted(files, key=lambda file: file.kind is not FileKind.IMAGE)
        self.set_chips([self._chip(file, self._theme) for file in images_first])

    def arrange(self, width: int) -> int:
        """Arrange the chips within a width; return the height they take with the gap below."""
        height = self.layout_for(width, right=True)
        self.setGeometry(0, 0, width, height)
        return height + SMALL if self.chips else 0

    def _chip(self, file: AttachedFile, theme: Theme) -> Chip:
        chip: Chip
        if (picture := picture_of(file, self._text_of)) is not None:
            chip = ImageTile(picture, file.note, theme, self)
        else:
            chip = FileChip(theme, "surface", removable=False, parent=self)
            part = f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else "Whole file"
            chip.show_file(file.name, part, tip=f"{file.note} Click to read what was sent.".strip())
        chip.clicked.connect(lambda: self.opened.emit(file))
        return chip
