"""Chips: the files of a message, each with its name and one line about it."""

from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QFont, QFontMetricsF, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.plain_text import cut, set_tip
from rdchat.ui.look.theme import RADIUS, SMALL, TIGHT, Theme, control_font

CHIP_HEIGHT = 42
_ICON, _WIDEST, _LEAST = 18, 300, 130


class FileChip(QAbstractButton):
    """One file, as a button.

    Args:
        theme: The appearance to follow.
        ground: The background colour, a name of `Colors`.
        removable: Whether the chip has a button that takes the file out.
        parent: The Qt parent.
    """

    remove_requested = Signal()
    focused = Signal()

    def __init__(self, theme: Theme, ground: str, *, removable: bool, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._ground = theme, ground
        self._name = self._detail = ""
        self._color = "muted"
        self._fraction: float | None = None
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.remove: IconButton | None = None
        if removable:
            self.remove = IconButton("close", "Take the file out", theme, self)
            self.remove.setFixedSize(22, 22)
            self.remove.setCursor(Qt.CursorShape.ArrowCursor)
            self.remove.clicked.connect(self.remove_requested)

    def show_file(self, name: str, detail: str, color: str = "muted", *, tip: str = "") -> None:
        """Show a name and, in a colour of `Colors`, a line below it; `tip` says more in the tooltip."""
        self._name, self._detail, self._color = cut(name), cut(detail), color
        self.setAccessibleName(f"{name}, {detail}")
        self.setAccessibleDescription(tip)
        set_tip(self, f"{name}. {tip}" if tip else name)
        if self.remove is not None:
            self.remove.setAccessibleName(f"Take {name} out")
        self.updateGeometry()
        self.update()

    def show_progress(self, fraction: float | None) -> None:
        """Draw a bar for how much of the file is read; None draws none."""
        self._fraction = fraction
        self.update()

    def sizeHint(self) -> QSize:
        name, detail = (QFontMetricsF(font).horizontalAdvance(text) for font, text in self._lines())
        width = round(max(name, detail)) + 1 + self._left + self._right
        return QSize(min(max(width, _LEAST), _WIDEST), CHIP_HEIGHT)

    def _lines(self) -> tuple[tuple[QFont, str], ...]:
        return (control_font(), self._name), (control_font(-1, tabular=True), self._detail)

    @property
    def _left(self) -> int:
        return SMALL + _ICON + SMALL

    @property
    def _right(self) -> int:
        return SMALL if self.remove is None else TIGHT + self.remove.width() + TIGHT

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.remove is not None:
            self.remove.move(self.width() - self.remove.width() - TIGHT, (self.height() - self.remove.height()) // 2)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit()

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        focused = self.hasFocus()
        painter.setPen(QPen(colors.accent if focused else colors.border, 1.5 if focused else 1))
        ground: QColor = getattr(colors, self._ground)
        painter.setBrush(ground.darker(106) if self.isDown() or self.underMouse() else ground)
        area = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        painter.drawRoundedRect(area, RADIUS - 2, RADIUS - 2)
        picture = line_pixmap("file", colors.muted, _ICON, self.devicePixelRatioF())
        painter.drawPixmap(SMALL, (self.height() - _ICON) // 2, picture)
        room = self.width() - self._left - self._right
        name, detail = QRect(self._left, 4, room, 18), QRect(self._left, 21, room, 16)
        middle = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
        colored = (colors.text, getattr(colors, self._color))
        elided = (Qt.TextElideMode.ElideMiddle, Qt.TextElideMode.ElideRight)
        for (font, text), color, mode, box in zip(self._lines(), colored, elided, (name, detail), strict=True):
            painter.setPen(color)
            painter.setFont(font)
            painter.drawText(box, middle, painter.fontMetrics().elidedText(text, mode, room))
        if self._fraction is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            for color, share in ((colors.border, 1.0), (colors.accent, self._fraction)):
                painter.setBrush(color)
                painter.drawRoundedRect(QRectF(self._left, self.height() - 5, share * room, 2), 1, 1)


class ChipRow(QWidget):
    """Chips side by side, on as many lines as they need."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: list[FileChip] = []

    def set_chips(self, chips: Sequence[FileChip]) -> None:
        """Show these children of the row; the caller deletes others."""
        self.chips = list(chips)
        for before, chip in pairwise(self.chips):
            QWidget.setTabOrder(before.remove or before, chip)
        for chip in self.chips:
            chip.show()

    def layout_for(self, width: int, *, right: bool = False) -> int:
        """Place the chips within a width, from the left or at the right; return the height they take."""
        lines: list[list[tuple[FileChip, int]]] = []
        left = 0
        for chip in self.chips:
            wanted = min(chip.sizeHint().width(), width)
            if not lines or left + wanted > width:
                lines.append([])
                left = 0
            lines[-1].append((chip, wanted))
            left += wanted + TIGHT
        top = 0
        for line in lines:
            x = width - sum(wanted + TIGHT for _, wanted in line) + TIGHT if right else 0
            for chip, wanted in line:
                chip.setGeometry(x, top, wanted, CHIP_HEIGHT)
                x += wanted + TIGHT
            top += CHIP_HEIGHT + TIGHT
        return max(top - TIGHT, 0)


class SentFiles(ChipRow):
    """The files of a message in the transcript, at the right above its text; a click opens what was sent."""

    opened = Signal(object)  # an `AttachedFile`

    def __init__(self, files: Sequence[AttachedFile], theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.set_chips([self._chip(file, theme) for file in files])

    def place(self, width: int) -> int:
        """Place the chips within a width; return the height they take with the gap below."""
        height = self.layout_for(width, right=True)
        self.setGeometry(0, 0, width, height)
        return height + SMALL if self.chips else 0

    def _chip(self, file: AttachedFile, theme: Theme) -> FileChip:
        chip = FileChip(theme, "surface", removable=False, parent=self)
        part = f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else f"{file.characters:,} characters"
        chip.show_file(file.name, part, tip=f"{file.note} Click to read what was sent.".strip())
        chip.clicked.connect(lambda: self.opened.emit(file))
        return chip
