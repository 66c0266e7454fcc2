"""Slim banners above the transcript, with actions and a button that closes them."""

from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme

UNDO_MS = 10_000


class Banner(QWidget):
    """One banner.

    Args:
        theme: The appearance to follow.
        text: What happened.
        detail: More of it, in secondary text.
        icon: Name of a line icon.
        color: Name of the icon's colour.
    """

    closed = Signal()
    dismissed = Signal()  # by its own button; `closed` follows

    def __init__(self, theme: Theme, text: str, detail: str = "", icon: str = "info", color: str = "accent") -> None:
        super().__init__()
        self._theme, self._icon, self._color = theme, icon, color
        self.setAccessibleName(f"{text} {detail}".strip())
        self._picture = PlainLabel()
        self.words = column(ThemedLabel(theme, text, bold=bool(detail), wraps=True), spacing=2)  # more can be put below
        if detail:
            self.words.addWidget(ThemedLabel(theme, detail, "muted", -1, wraps=True, selectable=True))
        close = IconButton("close", "Close", theme)
        close.setAccessibleName("Close this notice")
        close.clicked.connect(self.dismissed)
        close.clicked.connect(self.closed)
        margins = (MEDIUM, SMALL, SMALL, SMALL)
        self._line = row(self._picture, (self.words, 1), close, within=self, margins=margins)
        theme.changed.connect(self._draw_icon)
        self._draw_icon()

    def add_action(self, text: str, act: Callable[[], object]) -> QPushButton:
        """Add a button; pressing it also closes the banner."""
        button = QPushButton(text)
        button.clicked.connect(self.closed)
        button.clicked.connect(lambda _checked: act())
        self._line.insertWidget(self._line.count() - 1, button)
        return button

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._theme.colors.border)
        painter.setBrush(self._theme.colors.raised)
        painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), 8, 8)

    def _draw_icon(self) -> None:
        color = getattr(self._theme.colors, self._color)
        self._picture.setPixmap(line_pixmap(self._icon, color, 18, self.devicePixelRatioF()))
        self.update()


class BannerArea(QWidget):
    """A column of banners, the newest below. One replaces the earlier one of its key."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(MEDIUM, SMALL, MEDIUM, TIGHT)
        self._layout.setSpacing(TIGHT)
        self._keyed: dict[str, Banner] = {}
        self.hide()

    def show_banner(self, banner: Banner, key: str, lasts_ms: int | None = None) -> None:
        """Show a banner until it is closed, or for some time."""
        self.close_banner(key)
        self._keyed[key] = banner
        banner.closed.connect(self._remove_closed)
        self._layout.addWidget(banner)
        banner.show()
        self.show()
        if lasts_ms is not None:
            QTimer.singleShot(lasts_ms, banner, banner.closed.emit)

    def close_banner(self, key: str) -> None:
        banner = self._keyed.pop(key, None)
        if banner is not None:
            self._layout.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
            self.setVisible(bool(self._keyed))

    def banner(self, key: str) -> Banner | None:
        return self._keyed.get(key)

    def _remove_closed(self) -> None:
        closed = self.sender()  # a lambda that holds its own sender crashes PySide when the two are deleted
        for key in [key for key, banner in self._keyed.items() if banner is closed]:
            self.close_banner(key)
