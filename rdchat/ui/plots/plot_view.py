"""A picture in a window: as wide as there is room, with a tooltip for each part, also by keyboard."""

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from rdchat.ui.look.focus import paint_focus
from rdchat.ui.look.labels import wrapped
from rdchat.ui.look.theme import LARGE, Theme
from rdchat.ui.plots.plot import Column, Mark, Plot, PlotStyle

_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}
_WIDEST = 760


class PlotView(QWidget):
    """Shows a plot. The arrow keys go from part to part; what each says is its tooltip and accessible description."""

    came_to = Signal(QRect)  # the part that the keys went to, which may be out of view

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._plot: Plot = Column([])
        self._current: int | None = None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumWidth(280)
        self.setMaximumWidth(_WIDEST)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def plot(self) -> Plot:
        return self._plot

    def show_plot(self, plot: Plot) -> None:
        before, self._plot = len(self._marks()), plot
        if len(self._marks()) != before:
            self._current = None  # else new figures of the same picture, and the keys go on from where they are
        if self._current is None:
            self.setAccessibleDescription(plot.words)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(_WIDEST, round(self._plot.height(self._style()) + 2 * LARGE))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.colors.surface)
        self._plot.paint(painter, self._area(), self._style())
        if self.hasFocus():
            framed = QRectF(self.rect()) if self._current is None else self._marks()[self._current].area
            paint_focus(painter, framed, self._theme)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            mark = next((mark for mark in self._marks() if mark.area.contains(event.pos())), None)
            if mark is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), wrapped(mark.words), self, mark.area.toRect())
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step, marks = _STEPS.get(Qt.Key(event.key())), self._marks()
        if step is None or not marks:
            super().keyPressEvent(event)
            return
        first = 0 if step > 0 else len(marks) - 1
        self._current = first if self._current is None else min(max(self._current + step, 0), len(marks) - 1)
        self._tell(marks[self._current])

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._current = None
        self.setAccessibleDescription(self._plot.words)
        self.update()

    def _tell(self, mark: Mark) -> None:
        self.setAccessibleDescription(mark.words)
        self.came_to.emit(mark.area.toAlignedRect())
        below = QPoint(round(mark.area.left()) + 24, round(mark.area.bottom()) - 8)
        QToolTip.showText(self.mapToGlobal(below), wrapped(mark.words), self)
        self.update()

    def _marks(self) -> list[Mark]:
        return self._plot.marks(self._area(), self._style())

    def _area(self) -> QRectF:
        return QRectF(self.rect()).adjusted(LARGE, LARGE, -LARGE, -LARGE)

    def _style(self) -> PlotStyle:
        return PlotStyle(self._theme.colors, self._theme.plot, self.font().family())
