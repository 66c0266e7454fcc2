"""Thin progress bars."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QProgressBar, QSizePolicy, QWidget

from rdchat.hub.downloads.download import Download
from rdchat.ui.look.theme import Theme

_HEIGHT = 4
_WHOLE = 10_000


class ThinBar(QProgressBar):
    """Progress as a bar without words, read out as any progress bar is.

    Args:
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._color = theme, "accent"
        self.setRange(0, _WHOLE)
        self.setTextVisible(False)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def show_part(self, fraction: float, color: str = "accent") -> None:
        """Fill this much of it with one of the theme's colours."""
        self._color = color
        self.setValue(round(min(max(fraction, 0.0), 1.0) * _WHOLE))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(80, _HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(20, _HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_bar(painter, QRectF(self.rect()), self.value() / _WHOLE, self._theme, self._color)


class BusyBar(QProgressBar):
    """A flat progress bar of the style's own, without words; it moves to and fro where the end is not known."""

    def __init__(self, name: str, height: int = 4) -> None:
        super().__init__()
        self.setTextVisible(False)
        self.setRange(0, 0)
        self.setFixedHeight(height)
        self.setAccessibleName(name)

    def show_share(self, share: float | None) -> None:
        """Show a share from 0 to 1; None where it is not known."""
        self.setRange(0, 0 if share is None else 1000)
        if share is not None:
            self.setValue(round(1000 * share))

    def show_download(self, download: Download | None) -> None:
        """Show how much of a download is here."""
        self.show_share(download.done_bytes / download.total_bytes if download and download.total_bytes else None)


def paint_bar(painter: QPainter, area: QRectF, fraction: float, theme: Theme, color: str) -> None:
    """Draw a bar with round ends, filled from the left."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    radius = area.height() / 2
    painter.setBrush(theme.colors.border)
    painter.drawRoundedRect(area, radius, radius)
    if fraction > 0:
        filled = QRectF(area)
        filled.setWidth(max(area.height(), area.width() * fraction))
        painter.setBrush(getattr(theme.colors, color))
        painter.drawRoundedRect(filled, radius, radius)
