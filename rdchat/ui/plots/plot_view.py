"""Widgets that show drawings: each part has a tooltip, which in a view the keyboard reaches too."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QHelpEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from rdchat.ui.plots.drawing import Drawing, Mark, Plot
from rdchat.ui.style.labels import show_tip
from rdchat.ui.style.theme import LARGE, Theme, paint_focus

_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}
_WIDEST = 760


class Chart(QWidget):
    """A widget that is a drawing: a subclass implements `draw`, and the height follows from the width.

    Attributes:
        margin: Margin around the drawing, in pixels.
    """

    margin = 0

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.theme = theme
        self._height = 0
        self.setAccessibleName(name)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.changed.connect(self.update)

    def draw(self, drawing: Drawing) -> None:
        """Fill the drawing and set its height."""
        raise NotImplementedError

    def redraw(self, description: str) -> None:
        """Show new content, and describe it to screen readers."""
        self.setAccessibleDescription(description)
        before = self._height
        self._height = self.heightForWidth(self.width())
        if self._height != before:
            self.updateGeometry()
        self.update()

    @property
    def drawing(self) -> Drawing:
        """The drawing at the present width."""
        return self._drawing(self.width())

    def _drawing(self, width: int, painter: QPainter | None = None) -> Drawing:
        drawing = Drawing(width - 2 * self.margin, self.theme.colors, self.font(), painter)
        self.draw(drawing)
        return drawing

    def heightForWidth(self, width: int) -> int:
        return round(self._drawing(width).height + 2 * self.margin)

    def sizeHint(self) -> QSize:
        return QSize(120, self.heightForWidth(self.width()))

    def area_of(self, mark: Mark) -> QRectF:
        """Return where a part is in the widget."""
        return mark.box.translated(self.margin, self.margin)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            position = QPointF(event.pos())
            mark = next((mark for mark in self.drawing.marks if self.area_of(mark).contains(position)), None)
            if mark is not None:
                show_tip(event.globalPos(), mark.text, self, self.area_of(mark).toRect())
                return True
            QToolTip.hideText()
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.translate(self.margin, self.margin)
        self._drawing(self.width(), painter)


class PlotView(Chart):
    """Shows plots. The arrow keys go from part to part and show its tooltip, which screen readers read too.

    `part_reached` follows; the part may be out of view.
    """

    part_reached = Signal(QRect)
    margin = LARGE

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, name)
        self._plots: Sequence[Plot] = ()
        self._current: int | None = None
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumWidth(280)
        self.setMaximumWidth(_WIDEST)

    @property
    def description(self) -> str:
        return " ".join(self.drawing.descriptions)

    def draw(self, drawing: Drawing) -> None:
        for plot in self._plots:
            plot.draw_plot(drawing)

    def show_plots(self, plots: Sequence[Plot]) -> None:
        before = len(self.drawing.marks)
        self._plots = plots
        if len(self.drawing.marks) != before:
            self._current = None  # With as many marks as before it is the same picture.
        self.redraw(self.description if self._current is None else self.accessibleDescription())

    def sizeHint(self) -> QSize:
        return QSize(_WIDEST, self.heightForWidth(_WIDEST))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self.theme.colors.surface)
        painter.end()
        super().paintEvent(event)
        if self.hasFocus():
            framed = None if self._current is None else self.area_of(self.drawing.marks[self._current])
            paint_focus(QPainter(self), framed or QRectF(self.rect()), self.theme.colors.accent)

    def event(self, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self._current = None
            self.setAccessibleDescription(self.description)
            self.update()
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        last = len(self.drawing.marks) - 1
        if step is None or last < 0:
            super().keyPressEvent(event)
            return
        first = 0 if step > 0 else last
        self._current = first if self._current is None else min(max(self._current + step, 0), last)
        mark = self.drawing.marks[self._current]
        area = self.area_of(mark)
        self.setAccessibleDescription(mark.text)
        self.part_reached.emit(area.toAlignedRect())
        show_tip(self.mapToGlobal(area.bottomLeft().toPoint() + QPoint(24, -8)), mark.text, self)
        self.update()
