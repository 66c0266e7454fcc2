"""The ring around what has the keyboard, for widgets that draw themselves."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from rdchat.ui.theme import Theme

RING = 2  # its width, in pixels


def paint_focus(painter: QPainter, area: QRectF, theme: Theme) -> None:
    """Draw the ring just inside `area`."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme.colors.accent, RING))
    painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), 4, 4)
