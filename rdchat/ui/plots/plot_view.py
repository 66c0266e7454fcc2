"""A picture in a window: as wide as there is room, with a tooltip for each part, also by keyboard."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from rdchat.ui.look.focus import paint_focus
from rdchat.ui.look.plain_text import show_tip
from rdchat.ui.look.theme import LARGE, Theme
from rdchat.ui.plots.drawing import Drawing, Palette, Plot
from rdchat.ui.plots.painting import measure_in, paint
from rdchat.ui.plots.pictures import drawn

_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}
_WIDEST = 760


class PlotView(QWidget):
    """Shows plots. The arrow keys go from part to part; what each says is its tooltip and accessible description."""

    part_reached = Signal(QRect)  # by the keys; it may be out of view

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._plots: Sequence[Plot] = ()
        self._current: int | None = None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumWidth(280)
        self.setMaximumWidth(_WIDEST)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def drawing(self) -> Drawing:
        """What is shown, at the present width."""
        return self._drawing(self.width())

    @property
    def words(self) -> str:
        return " ".join(self.drawing.words)

    def show_plots(self, plots: Sequence[Plot]) -> None:
        before, self._plots = len(self.drawing.marks), plots
        if len(self.drawing.marks) != before:
            self._current = None  # else new figures of the same picture, and the keys go on from where they are
        if self._current is None:
            self.setAccessibleDescription(self.words)
        self.updateGeometry()
        self.update()

    def mark_area(self, number: int) -> QRectF:
        """Return where a part is."""
        return QRectF(*self.drawing.marks[number].box).translated(LARGE, LARGE)

    def sizeHint(self) -> QSize:
        return QSize(_WIDEST, round(self._drawing(_WIDEST).height + 2 * LARGE))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.colors.surface)
        painter.translate(LARGE, LARGE)
        paint(painter, self.drawing, self.font().family())
        painter.resetTransform()
        if self.hasFocus():
            framed = QRectF(self.rect()) if self._current is None else self.mark_area(self._current)
            paint_focus(painter, framed, self._theme)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            marks = enumerate(self.drawing.marks)
            number = next((number for number, _ in marks if self.mark_area(number).contains(event.pos())), None)
            if number is None:
                QToolTip.hideText()
            else:
                words = self.drawing.marks[number].words
                show_tip(event.globalPos(), words, self, self.mark_area(number).toRect())
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step, last = _STEPS.get(Qt.Key(event.key())), len(self.drawing.marks) - 1
        if step is None or last < 0:
            super().keyPressEvent(event)
            return
        first = 0 if step > 0 else last
        self._current = first if self._current is None else min(max(self._current + step, 0), last)
        self._say(self._current)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._current = None
        self.setAccessibleDescription(self.words)
        self.update()

    def _say(self, number: int) -> None:
        words, area = self.drawing.marks[number].words, self.mark_area(number)
        self.setAccessibleDescription(words)
        self.part_reached.emit(area.toAlignedRect())
        show_tip(self.mapToGlobal(area.bottomLeft().toPoint() + QPoint(24, -8)), words, self)
        self.update()

    def _drawing(self, width: int) -> Drawing:
        return drawn(self._plots, width - 2 * LARGE, palette_of(self._theme), measure_in(self.font().family()))


def palette_of(theme: Theme) -> Palette:
    """Return the colours of plots in the present appearance."""
    colors, plot = theme.colors, theme.plot
    used = (colors.surface, colors.text, colors.muted, colors.border, plot.slower, plot.neutral, plot.faster)
    return Palette(*(color.name() for color in used))
