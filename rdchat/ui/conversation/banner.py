"""Slim banners above the transcript, with actions and a button that closes them."""

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QToolButton, QVBoxLayout, QWidget

from rdchat.ui.look.icons import line_icon, line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import PlainLabel, set_tip
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
        title = ThemedLabel(theme, text, bold=bool(detail))
        title.setWordWrap(True)
        self.words = QVBoxLayout()  # the text; more can be put below it
        self.words.setSpacing(2)
        self.words.addWidget(title)
        if detail:
            more = ThemedLabel(theme, detail, "muted", -1)
            more.setWordWrap(True)
            more.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            self.words.addWidget(more)
        self._close = QToolButton()
        self._close.setAutoRaise(True)
        set_tip(self._close, "Close")
        self._close.setAccessibleName("Close this notice")
        self._close.clicked.connect(self.dismissed)
        self._close.clicked.connect(self.closed)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(MEDIUM, SMALL, SMALL, SMALL)
        self._row.setSpacing(SMALL)
        self._row.addWidget(self._picture)
        self._row.addLayout(self.words, 1)
        self._row.addWidget(self._close)
        theme.changed.connect(self._draw_icons)
        self._draw_icons()

    def add_action(self, text: str, act: Callable[[], object]) -> QPushButton:
        """Add a button; pressing it also closes the banner."""
        button = QPushButton(text)
        button.clicked.connect(self.closed)
        button.clicked.connect(lambda _checked: act())
        self._row.insertWidget(self._row.count() - 1, button)
        return button

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._theme.colors.border)
        painter.setBrush(self._theme.colors.raised)
        painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), 8, 8)

    def _draw_icons(self) -> None:
        colors = self._theme.colors
        self._picture.setPixmap(line_pixmap(self._icon, getattr(colors, self._color), 18, self.devicePixelRatioF()))
        self._close.setIcon(line_icon("close", colors.muted, 14))
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
            timer = QTimer(banner, interval=lasts_ms, singleShot=True)
            timer.timeout.connect(banner.closed)
            timer.start()

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
