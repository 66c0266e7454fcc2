"""Paints cards, backgrounds of rows and focus rings."""

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QStyle, QWidget

from rdchat.ui.look.theme import Colors

RADIUS = 7
RING = 2  # width, in pixels


def paint_card(
    widget: QWidget, area: QRect | QRectF, fill: QColor, line: QPen | QColor | None = None, radius: float = 10
) -> None:
    """Fill an area of a widget, with round corners and perhaps a line around it."""
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(line or Qt.PenStyle.NoPen)
    painter.setBrush(fill)
    painter.drawRoundedRect(area, radius, radius)


def paint_row_ground(painter: QPainter, area: QRect, state: QStyle.StateFlag, colors: Colors) -> None:
    """Paint the background of a row that is selected, under the mouse or focused by the keyboard."""
    flag = QStyle.StateFlag
    painter.setPen(Qt.PenStyle.NoPen)
    if state & flag.State_Selected:
        painter.setBrush(colors.selection)
        painter.drawRoundedRect(area, RADIUS, RADIUS)
    elif state & flag.State_MouseOver:
        painter.setBrush(colors.raised)
        painter.drawRoundedRect(area, RADIUS, RADIUS)
    if state & flag.State_HasFocus and state & flag.State_KeyboardFocusChange:
        painter.setPen(colors.accent)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(area, RADIUS, RADIUS)


def paint_focus(painter: QPainter, area: QRectF, color: QColor) -> None:
    """Draw the focus ring just inside `area`."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(color, RING))
    painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), 4, 4)
