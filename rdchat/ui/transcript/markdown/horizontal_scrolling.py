"""Scrolls the parts of a document that are wider than the column, each by itself.

The document lays them out at their full width. What scrolls is where they are drawn, and what a place under the
pointer means: Qt's text edit gets a horizontal offset while it draws one of them or handles an event there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QTextCursor, QWheelEvent
from PySide6.QtWidgets import QAbstractSlider, QTextEdit, QWidget

from rdchat.ui.look.theme import SMALL, Theme

BAR_HEIGHT = 10
_SHORTEST = 28  # of the thumb
_STEP = 40  # of an arrow key
_MOST = 100  # parts with a bar of their own; those beyond it are cut off at the edge, and can be copied
_MARGIN = 24  # what stays visible on either side of a word that is gone to


class ScrollBar(QAbstractSlider):
    """A thin scroll bar. Its value is by how many pixels the content is moved to the left."""

    def __init__(self, name: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._held: float | None = None  # where in the thumb the pointer holds it
        self.setOrientation(Qt.Orientation.Horizontal)
        self.setSingleStep(_STEP)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setAccessibleName(name)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def show_part(self, shown: int, whole: int) -> None:
        """Show how many pixels of how many are seen."""
        self.setPageStep(max(1, shown))
        self.setRange(0, max(0, whole - shown))

    def _thumb(self) -> QRectF:
        whole = self.pageStep() + self.maximum()
        length = max(_SHORTEST, self.width() * self.pageStep() / whole)
        start = (self.width() - length) * self.value() / max(1, self.maximum())
        return QRectF(start, 2, length, self.height() - 4)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is not Qt.MouseButton.LeftButton:
            event.ignore()
            return
        thumb, x = self._thumb(), event.position().x()
        self._held = x - thumb.left() if thumb.left() <= x <= thumb.right() else thumb.width() / 2
        self._drag(x)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._held is not None:
            self._drag(event.position().x())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._held = None

    def _drag(self, x: float) -> None:
        room = self.width() - self._thumb().width()
        if room > 0 and self._held is not None:
            self.setValue(round((x - self._held) / room * self.maximum()))

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        color = QColor(colors.accent if self.hasFocus() else colors.muted)
        color.setAlpha(255 if self.hasFocus() else 200 if self.underMouse() or self._held is not None else 110)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        radius = (self.height() - 4) / 2
        painter.drawRoundedRect(self._thumb(), radius, radius)


@dataclass(frozen=True, slots=True)
class WidePart:
    """A part of the document."""

    name: str  # of its bar
    area: QRect  # where it is drawn, in the viewport
    width: int
    bar: int  # the top of its bar, in the viewport


class HorizontalScrolling:
    """Scrolls the wide parts of one text edit; each is known by its first block."""

    def __init__(self, edit: QTextEdit, theme: Theme) -> None:
        self._edit, self._theme = edit, theme
        self._parts: dict[int, WidePart] = {}
        self._bars: dict[int, ScrollBar] = {}
        self._shifting = False
        edit.horizontalScrollBar().rangeChanged.connect(self._stay)
        edit.selectionChanged.connect(self._draw_shifted)

    def place(self, parts: dict[int, WidePart], first: int = 0) -> None:
        """Take the parts that may be wider than their area; other parts before the block `first` stay."""
        kept = {key: part for key, part in self._parts.items() if key < first and key not in parts}
        self._parts = kept | {key: part for key, part in parts.items() if part.width > part.area.width()}
        for key in [key for key in self._bars if key not in self._parts]:
            gone = self._bars.pop(key)
            gone.hide()
            gone.deleteLater()
        for key, part in self._parts.items():
            known = self._bars.get(key)
            if (known and key not in parts) or (known is None and len(self._bars) >= _MOST):
                continue
            bar = known or self._make(key, part)
            bar.show_part(part.area.width(), part.width)
            area = part.area
            bar.setGeometry(area.left() + SMALL, part.bar, area.width() - 2 * SMALL, BAR_HEIGHT)

    def _make(self, key: int, part: WidePart) -> ScrollBar:
        bar = self._bars[key] = ScrollBar(part.name, self._theme, self._edit.viewport())
        bar.valueChanged.connect(lambda: self._redraw(key))
        bar.show()
        return bar

    def offset_at(self, point: QPoint) -> int:
        """Return how far to the left that is moved which is drawn at a place of the viewport."""
        return next((self._offset(key) for key, part in self._parts.items() if part.area.contains(point)), 0)

    def _offset(self, key: int) -> int:
        bar = self._bars.get(key)
        return bar.value() if bar else 0

    def _redraw(self, key: int) -> None:
        self._edit.viewport().update(self._parts[key].area)

    def _draw_shifted(self) -> None:
        """Draw anew what is moved: Qt asks for what changed where it would be without being moved."""
        for key in self._parts:
            if self._offset(key):
                self._redraw(key)

    def _stay(self) -> None:
        """Keep the text edit from scrolling as a whole."""
        if not self._shifting:
            self._edit.horizontalScrollBar().setRange(0, 0)

    @contextmanager
    def shifted(self, offset: int) -> Iterator[None]:
        """Let the text edit take its contents to be moved to the left by `offset`."""
        bar = self._edit.horizontalScrollBar()
        if not offset or self._shifting:
            yield
            return
        self._shifting = True
        blocked = bar.blockSignals(True)
        bar.setRange(0, offset)
        bar.setValue(offset)
        try:
            yield
        finally:
            bar.setRange(0, 0)
            bar.blockSignals(blocked)
            self._shifting = False

    def paint(self, event: QPaintEvent, draw: Callable[[QPaintEvent], None]) -> None:
        """Draw what an event asks for with Qt's `draw`, in strips: the moved parts, and what stands between them."""
        moved = [(part.area, self._offset(key)) for key, part in self._parts.items() if self._offset(key)]
        moved = sorted(
            ((area, by) for area, by in moved if area.intersects(event.rect())), key=lambda each: each[0].y()
        )
        if not moved:
            draw(event)
            return
        rect, top = event.rect(), event.rect().top()
        for area, by in moved:
            if area.top() > top:
                draw(QPaintEvent(QRect(rect.left(), top, rect.width(), area.top() - top)))
            beside = QRect(0, area.top(), area.left(), area.height()) & rect
            if not beside.isEmpty():
                draw(QPaintEvent(beside))
            with self.shifted(by):
                draw(QPaintEvent(area & rect))
            top = area.bottom() + 1
        if top <= rect.bottom():
            draw(QPaintEvent(QRect(rect.left(), top, rect.width(), rect.bottom() + 1 - top)))

    def reveal(self, cursor: QTextCursor) -> QRect:
        """Scroll the part that a place of the text is in, so that it is seen; return where it is drawn then."""
        return self.bring_into_view(self._edit.cursorRect(cursor))

    def bring_into_view(self, rect: QRect) -> QRect:
        """Scroll a part for what stands at `rect` while nothing is moved; return where that is drawn then."""
        for key, part in self._parts.items():
            bar = self._bars.get(key)
            if bar and part.area.top() <= rect.center().y() <= part.area.bottom():
                bar.setValue(min(bar.value(), rect.left() - part.area.left() - _MARGIN))
                bar.setValue(max(bar.value(), rect.right() - part.area.right() + _MARGIN))
                return rect.translated(-bar.value(), 0)
        return rect

    def drag(self, point: QPointF) -> None:
        """Scroll the part at the pointer's height while a selection is dragged beyond its edge."""
        for key, part in self._parts.items():
            bar = self._bars.get(key)
            if bar and part.area.top() <= point.y() <= part.area.bottom():
                bar.setValue(bar.value() + round(max(0.0, point.x() - part.area.right())))
                bar.setValue(bar.value() - round(max(0.0, part.area.left() - point.x())))

    def wheel(self, event: QWheelEvent) -> bool:
        """Scroll what is under the pointer if the wheel turns sideways; whether there is such a part."""
        by = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta() / 2
        if abs(by.x()) <= abs(by.y()):
            return False
        place = event.position().toPoint()
        for key, part in self._parts.items():
            bar = self._bars.get(key)
            if bar and part.area.contains(place):
                bar.setValue(bar.value() - by.x())
                return True
        return False
