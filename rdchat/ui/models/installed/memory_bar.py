"""The machine's memory as a bar: the model's parts, and the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.inference.api.memory_facts import gigabytes
from rdchat.ui.look.plain_text import show_tip
from rdchat.ui.look.theme import Theme

LIMIT = "limit"
_HEIGHT, _CORNER, _GAP, _TICK = 16, 4.0, 1.0, 4.0  # pixels


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of the bar.

    Attributes:
        name: What takes it.
        color: The name of a colour of `Colors`; empty for memory that is left, `LIMIT` for the mark.
        size: In bytes.
        words: Explains it.
    """

    name: str
    color: str
    size: int
    words: str


def part_color(theme: Theme, part: MemoryPart) -> QColor:
    """Return the colour of a part, in the appearance in force."""
    if part.color == LIMIT:
        return theme.colors.text
    color: QColor = getattr(theme.colors, part.color) if part.color else theme.colors.border
    return color


class MemoryBar(QWidget):
    """Draws parts side by side, with a mark at the most that a model is given."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._parts: Sequence[MemoryPart] = ()
        self._limit = 0
        self.setAccessibleName("Memory")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(160, _HEIGHT + 2 * int(_TICK))

    def show_parts(self, parts: Sequence[MemoryPart], limit: int) -> None:
        """Show parts, in bytes, and the most that a model is given."""
        self._parts, self._limit = [part for part in parts if part.size > 0], limit
        self.setAccessibleDescription("; ".join(f"{part.name}: {gigabytes(part.size)}" for part in self._parts))
        self.update()

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            for part, area in self._areas():
                if area.left() <= event.pos().x() < area.right():
                    words = f"{part.name}, {gigabytes(part.size)}: {part.words}"
                    show_tip(event.globalPos(), words, self)
                    return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = QRectF(0, _TICK, self.width(), _HEIGHT)
        outline = QPainterPath()
        outline.addRoundedRect(ground, _CORNER, _CORNER)
        painter.save()
        painter.setClipPath(outline)
        painter.fillRect(ground, self._theme.colors.border)
        areas = self._areas()
        for part, area in areas:
            painter.fillRect(area, part_color(self._theme, part))
        for _, area in areas[1:]:
            if area.width() > 2 * _GAP:
                line = QRectF(area.topLeft(), QPointF(area.left() + _GAP, area.bottom()))
                painter.fillRect(line, self._theme.colors.surface)
        painter.restore()
        whole = sum(part.size for part in self._parts)
        if 0 < self._limit < whole:
            place = self._limit / whole * self.width()
            painter.fillRect(QRectF(place - 1, 0, 2, self.height()), self._theme.colors.text)

    def _areas(self) -> list[tuple[MemoryPart, QRectF]]:
        whole = sum(part.size for part in self._parts)
        left, areas = 0.0, []
        for part in self._parts:
            width = part.size / whole * self.width()
            areas.append((part, QRectF(left, _TICK, width, _HEIGHT)))
            left += width
        return areas
