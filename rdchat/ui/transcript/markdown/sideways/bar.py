"""The thin bar below what is wider than the column: it scrolls that alone, sideways."""

from PySide6.QtCore import QEvent, QRectF, Qt
from PySide6.QtGui import QColor, QFocusEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractSlider, QWidget

from rdchat.ui.look.theme import Theme

BAR_HEIGHT = 10
_SHORTEST = 28  # of the thumb
_STEP = 40  # of an arrow key


class SidewaysBar(QAbstractSlider):
    """Scrolls by dragging, clicking and keys. Its value is by how many pixels the content is moved to the left."""

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
        """Take how many pixels are shown of how many."""
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

    def event(self, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.HoverEnter, QEvent.Type.HoverLeave}:
            self.update()
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

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
