"""Scrolls the parts of a document that are wider than the column, each by itself.

The document lays them out at their full width. Qt's text edit gets a horizontal offset while it draws one of them or
handles an event there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QScrollBar, QTextEdit, QWidget

from rdchat.ui.style.layouts import discard
from rdchat.ui.style.theme import SMALL, Theme

BAR_HEIGHT = 10
_KEY_STEP = 40
# Parts beyond these are cut off at the edge, and can be copied.
_MAX_SCROLL_BARS = 100
_HIT_MARGIN = 24
_STYLE = """
QScrollBar { background: transparent; border: none; }
QScrollBar::handle { background: #6e%s; border-radius: 3px; margin: 2px 0; min-width: 28px; }
QScrollBar::handle:hover { background: #c8%s; }
QScrollBar::handle:focus { background: %s; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
"""


@dataclass(frozen=True, slots=True)
class WidePart:
    """A part of the document that may be wider than the column.

    Attributes:
        name: The name of its bar, for screen readers.
        area: The rectangle in the viewport where it is drawn.
        width: Its full width.
        bar: The top of its bar, in the viewport.
        mirrored: Whether it begins at the right.
    """

    name: str
    area: QRect
    width: int
    bar: int
    mirrored: bool = False


class ScrollBar(QScrollBar):
    """A thin scroll bar. Its value is by how many pixels the content is moved to the left."""

    def __init__(self, part: WidePart, theme: Theme, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._theme = theme
        self.setSingleStep(_KEY_STEP)
        # The right arrow key moves to the right.
        self.setInvertedControls(False)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setAccessibleName(part.name)
        self._recolor()
        theme.changed.connect(self._recolor)
        self.setMaximum(0)
        self.show_part(part)
        self.show()

    def show_part(self, part: WidePart) -> None:
        """Scroll this part from now on."""
        self.part = part
        area = part.area
        self.setPageStep(max(1, area.width()))
        # One that grows stays at its beginning.
        begins = part.mirrored and self.value() == self.maximum()
        self.setRange(0, max(0, part.width - area.width()))
        if begins:
            self.setValue(self.maximum())
        self.setGeometry(area.left() + SMALL, part.bar, area.width() - 2 * SMALL, BAR_HEIGHT)

    def _recolor(self) -> None:
        muted = self._theme.colors.muted.name()[1:]
        self.setStyleSheet(_STYLE % (muted, muted, self._theme.colors.accent.name()))


class HorizontalScrolling:
    """Scrolls the wide parts of one text edit; each is known by its first block."""

    def __init__(self, edit: QTextEdit, theme: Theme) -> None:
        self._edit = edit
        self._theme = theme
        self._bars: dict[int, ScrollBar] = {}
        self._shifting = False
        edit.horizontalScrollBar().rangeChanged.connect(self._stay)
        edit.selectionChanged.connect(self._draw_shifted)

    def set_parts(self, parts: dict[int, WidePart], first: int) -> None:
        """Give the parts that are wider than their area a bar; other parts before the block `first` stay."""
        wide = {key: part for key, part in parts.items() if part.width > part.area.width()}
        for key in [key for key in self._bars if key not in wide and (key >= first or key in parts)]:
            discard(self._bars.pop(key))
        for key, part in wide.items():
            if key in self._bars:
                self._bars[key].show_part(part)
            elif len(self._bars) < _MAX_SCROLL_BARS:
                bar = self._bars[key] = ScrollBar(part, self._theme, self._edit.viewport())
                bar.valueChanged.connect(lambda _value, bar=bar: self._edit.viewport().update(bar.part.area))

    def offset_at(self, point: QPoint) -> int:
        """Return the scroll offset at a point of the viewport."""
        return next((bar.value() for bar in self._bars.values() if bar.part.area.contains(point)), 0)

    def _at_height(self, y: float) -> ScrollBar | None:
        """Return the bar of the part at a height of the viewport."""
        return next((bar for bar in self._bars.values() if bar.part.area.top() <= y <= bar.part.area.bottom()), None)

    def _draw_shifted(self) -> None:
        """Repaint scrolled parts: Qt only repaints where the selection would be without the offset."""
        for bar in self._bars.values():
            if bar.value():
                self._edit.viewport().update(bar.part.area)

    def _stay(self) -> None:
        """Keep the text edit from scrolling as a whole."""
        if not self._shifting:
            self._edit.horizontalScrollBar().setRange(0, 0)

    @contextmanager
    def shifted(self, offset: int) -> Iterator[None]:
        """Make the text edit draw its contents, and handle events, moved to the left by `offset`."""
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
        """Paint in strips with Qt's `draw`: the scrolled parts, and the rest between them."""
        bars = [bar for bar in self._bars.values() if bar.value() and bar.part.area.intersects(event.rect())]
        moved = sorted(((bar.part.area, bar.value()) for bar in bars), key=lambda each: each[0].y())
        if not moved:
            draw(event)
            return
        rect = event.rect()
        top = event.rect().top()
        for area, by in moved:
            if area.top() > top:
                draw(QPaintEvent(QRect(rect.left(), top, rect.width(), area.top() - top)))
            margin = QRect(0, area.top(), area.left(), area.height()) & rect
            if not margin.isEmpty():
                draw(QPaintEvent(margin))
            with self.shifted(by):
                draw(QPaintEvent(area & rect))
            top = area.bottom() + 1
        if top <= rect.bottom():
            draw(QPaintEvent(QRect(rect.left(), top, rect.width(), rect.bottom() + 1 - top)))

    def bring_into_view(self, rect: QRect) -> QRect:
        """Scroll a part until `rect`, given without any offset, is visible; return where it is drawn then."""
        bar = self._at_height(rect.center().y())
        if bar is None:
            return rect
        bar.setValue(min(bar.value(), rect.left() - bar.part.area.left() - _HIT_MARGIN))
        bar.setValue(max(bar.value(), rect.right() - bar.part.area.right() + _HIT_MARGIN))
        return rect.translated(-bar.value(), 0)

    def drag(self, point: QPointF) -> None:
        """Scroll the part at the pointer's height while a selection is dragged beyond its edge."""
        if bar := self._at_height(point.y()):
            bar.setValue(bar.value() + round(max(0.0, point.x() - bar.part.area.right())))
            bar.setValue(bar.value() - round(max(0.0, bar.part.area.left() - point.x())))

    def wheel(self, event: QWheelEvent) -> bool:
        """Scroll the part under the pointer if the wheel turns horizontally; return whether there is one."""
        by = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta() / 2
        bar = self._at_height(event.position().y())
        if bar is None or abs(by.x()) <= abs(by.y()) or not bar.part.area.contains(event.position().toPoint()):
            return False
        bar.setValue(bar.value() - by.x())
        return True
