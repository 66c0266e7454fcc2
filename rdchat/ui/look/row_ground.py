"""Paints the background of a row of a list."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyle

from rdchat.ui.look.theme import Colors

RADIUS = 7


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
