"""A reply's whole time as one bar, divided by what it was spent on."""

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.inference.api.shown_ledger import Spent
from rdchat.ui.look.plain_text import show_tip
from rdchat.ui.look.stage_words import stage_words
from rdchat.ui.look.theme import Theme

_HEIGHT, _CORNER, _GAP = 14, 4.0, 1.0  # pixels


def time_color(theme: Theme, spent: Spent) -> QColor:
    """Return the colour of what time is spent on, in the appearance in force."""
    color: QColor = getattr(theme.times, spent.name.lower())
    return color


class TimeBar(QWidget):
    """Draws the shares of `show_times` side by side, in the order of `Spent`."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.shares: dict[Spent, float] = {}
        self.setAccessibleName("Where the time of this reply went")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(120, _HEIGHT)

    def show_times(self, milliseconds: Mapping[Spent, float]) -> None:
        whole = sum(milliseconds.values())
        self.shares = {spent: milliseconds[spent] / whole for spent in Spent if milliseconds.get(spent)}
        self.setAccessibleDescription("; ".join(f"{spent}: {share:.0%}" for spent, share in self.shares.items()))
        self.update()

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            for spent, area in self._areas().items():
                if area.left() <= event.pos().x() < area.right():
                    words = f"{spent}, {self.shares[spent]:.0%}: {stage_words(spent)}"
                    show_tip(event.globalPos(), words, self)
                    return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(self.rect()), _CORNER, _CORNER)
        painter.setClipPath(outline)
        painter.fillRect(self.rect(), self._theme.colors.border)
        areas = self._areas()
        for spent, area in areas.items():
            painter.fillRect(area, time_color(self._theme, spent))
        for area in list(areas.values())[1:]:
            if area.width() > 2 * _GAP:
                painter.fillRect(QRectF(area.topLeft(), QPointF(area.left() + _GAP, area.bottom())), self._ground)

    @property
    def _ground(self) -> QColor:
        return self._theme.colors.window

    def _areas(self) -> dict[Spent, QRectF]:
        left, areas = 0.0, {}
        for spent, share in self.shares.items():
            areas[spent] = QRectF(left, 0, share * self.width(), self.height())
            left += share * self.width()
        return areas
