"""A small bar chart: one bar for each whole number, its value above it."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.ui.look.plain_text import set_tip, show_tip
from rdchat.ui.look.theme import Theme, control_font

_HEIGHT, _WIDEST, _GAP = 72, 48.0, 16.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        label: Stands below it.
        share: Its height, from 0 to 1.
        value: Stands above it.
        words: Says it in full, for its tooltip and for screen readers.
    """

    label: str
    share: float
    value: str
    words: str


class BarChart(QWidget):
    """Draws `bars`; the highest possible bar fills its height.

    Args:
        theme: The appearance to follow.
        name: What it shows.
        definition: How to read it; the tooltip beside the bars.
    """

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__()
        self._theme = theme
        self._definition = definition
        self.bars: tuple[Bar, ...] = ()
        self.setFont(control_font(-2, tabular=True))
        self.setAccessibleName(name)
        set_tip(self, definition)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def show_bars(self, bars: Sequence[Bar]) -> None:
        if tuple(bars) != self.bars:
            self.bars = tuple(bars)
            self.setAccessibleDescription("; ".join(bar.words for bar in bars))
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, _HEIGHT)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            step = self._step()
            place = int(event.pos().x() / step) if step else len(self.bars)
            if place < len(self.bars):
                show_tip(event.globalPos(), f"{self.bars[place].words}. {self._definition}", self)
                return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = QFontMetricsF(painter.font()).height()
        base = self.height() - line
        painter.setPen(QPen(colors.border, 1))
        painter.drawLine(0, round(base), self.width(), round(base))
        step = self._step()
        shown_every = self._labels_every(step)
        fill = QColor(colors.accent)
        fill.setAlpha(190)
        for place, bar in enumerate(self.bars):
            left, height = place * step, bar.share * (base - line - 2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(fill)
            painter.drawRoundedRect(QRectF(left + _gap(step) / 2, base - height, step - _gap(step), height), 1.5, 1.5)
            if place % shown_every == 0:
                painter.setPen(colors.muted)
                painter.drawText(QRectF(left, base, step, line), Qt.AlignmentFlag.AlignCenter, bar.label)
            if shown_every == 1:
                painter.setPen(colors.text)
                above = QRectF(left, base - height - line - 1, step, line)
                painter.drawText(above, Qt.AlignmentFlag.AlignCenter, bar.value)

    def _step(self) -> float:
        """Return the width of a bar with its gap, in pixels."""
        return min(self.width() / len(self.bars), _WIDEST) if self.bars else 0.0

    def _labels_every(self, step: float) -> int:
        """Return how many bars share a label, so that none runs into the next."""
        metrics = QFontMetricsF(self.font())
        widest = max((metrics.horizontalAdvance(max(bar.label, bar.value, key=len)) for bar in self.bars), default=0.0)
        return max(1, -int(-(widest + 2) // step)) if step else 1


def _gap(step: float) -> float:
    return min(_GAP, step / 3)
