"""Focus rings for the controls to which Qt's own style gives none: lists, fields of several lines, flat buttons."""

from PySide6.QtCore import QEvent, QObject, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QAbstractScrollArea,
    QApplication,
    QFrame,
    QPushButton,
    QTextBrowser,
    QWidget,
)
from shiboken6 import isValid

from rdchat import host
from rdchat.ui.style.theme import TIGHT, Theme, paint_focus


class _Ring(QWidget):
    """A ring over a widget, or around a text, which has no margin. Clicks pass through."""

    def __init__(self, widget: QWidget, theme: Theme) -> None:
        self._outside = isinstance(widget, QTextBrowser)
        super().__init__(widget.parentWidget() if self._outside else widget)
        self._widget = widget
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        widget.installEventFilter(self)
        self._follow()
        self.show()

    def _follow(self) -> None:
        around = self._widget.geometry().adjusted(-TIGHT, -TIGHT, TIGHT, TIGHT)
        self.setGeometry(around if self._outside else self._widget.rect())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.Resize, QEvent.Type.Move}:
            self._follow()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_focus(QPainter(self), QRectF(self.rect()), self._theme.colors.accent)


class FocusRings(QObject):
    """Gives each such control a ring while it has the focus, in all windows. A Mac's own style draws them."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._theme = theme
        self._ring: _Ring | None = None
        app = QApplication.instance()
        assert isinstance(app, QApplication), "widgets exist only in an application"
        if not host.MACOS:
            app.focusChanged.connect(self._show)

    def _show(self, _old: QWidget | None, now: QWidget | None) -> None:
        # The widget may have been deleted, and the ring with it.
        if self._ring is not None and isValid(self._ring):
            self._ring.hide()
            self._ring.deleteLater()
        self._ring = _Ring(now, self._theme) if now is not None and _needs_ring(now) else None


def _needs_ring(widget: QWidget) -> bool:
    if isinstance(widget, QTextBrowser):
        # A click into a text shows by itself where it was.
        return widget.window().testAttribute(Qt.WidgetAttribute.WA_KeyboardFocusChange)
    if isinstance(widget, QAbstractItemView) and widget.frameShape() is QFrame.Shape.NoFrame:
        # The current row of such a list shows the focus.
        return not widget.currentIndex().isValid()
    if isinstance(widget, QPushButton):
        return widget.isFlat()
    return isinstance(widget, QAbstractScrollArea) and widget.frameShape() is not QFrame.Shape.NoFrame
