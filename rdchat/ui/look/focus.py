"""Brings windows to the front, and draws the focus ring of custom widgets."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from rdchat.ui.look.theme import Theme

RING = 2  # width, in pixels


def show_in_front(window: QWidget) -> None:
    """Show a window over the others, even if it is minimised, and give it the keyboard."""
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
    window.show()
    window.raise_()
    window.activateWindow()


def announce(widget: QWidget) -> None:
    """Have a screen reader say the widget's accessible description."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, widget.accessibleDescription()))


def paint_focus(painter: QPainter, area: QRectF, theme: Theme) -> None:
    """Draw the focus ring just inside `area`."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme.colors.accent, RING))
    painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), 4, 4)
