"""Slim banners above the transcript, with actions and a button that closes them."""

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QPushButton, QWidget

from rdchat.ui.style.buttons import IconButton, push_button
from rdchat.ui.style.icons import line_pixmap
from rdchat.ui.style.labels import Card, PlainLabel, ThemedLabel
from rdchat.ui.style.layouts import column, discard, row
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme

UNDO_MS = 10_000
# More banners would take the chat's room.
_MAX_BANNERS = 2
# In pixels; at least so much is left to text, icon and close button beside other buttons.
_TEXT_WIDTH = 260


class Banner(Card):
    """One banner.

    Args:
        theme: The appearance to follow.
        text: The message.
        detail: Details of it, in secondary text.
        icon: Name of a line icon.
        color: Name of the icon's colour.
    """

    closed = Signal()
    # The person dismissed it by its own button; `closed` follows.
    dismissed = Signal()

    def __init__(self, theme: Theme, text: str, detail: str = "", icon: str = "info", color: str = "accent") -> None:
        super().__init__(theme)
        self._icon = icon
        self._color = color
        self.setAccessibleName(f"{text} {detail}".strip())
        self._picture = PlainLabel()
        self.progress = ThemedLabel(theme, "", "muted", -1)
        self.progress.hide()
        texts = column(ThemedLabel(theme, text, bold=bool(detail), wraps=True), spacing=2)
        if detail:
            texts.addWidget(ThemedLabel(theme, detail, "muted", -1, wraps=True, selectable=True))
        texts.addWidget(self.progress)
        self.buttons: list[QPushButton] = []
        self._box = row((texts, 1))
        close = IconButton("close", "Close", theme)
        close.setAccessibleName("Close this notice")
        close.clicked.connect(self.dismissed)
        close.clicked.connect(self.closed)
        row(self._picture, (self._box, 1), close, within=self, margins=(MEDIUM, SMALL, SMALL, SMALL))
        theme.changed.connect(self._draw_icon)
        self._draw_icon()

    def add_action(self, text: str, act: Callable[[], object], tip: str = "", *, closes: bool = True) -> QPushButton:
        """Add a button beside the text, or below it in a narrow banner; pressing it may also close the banner."""
        button = push_button(text, tip)
        button.setAccessibleDescription(tip)
        if closes:
            button.clicked.connect(self.closed)
        button.clicked.connect(lambda _checked: act())
        self._box.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self.buttons.append(button)
        return button

    def minimumSizeHint(self) -> QSize:
        # Otherwise buttons side by side would keep it wide.
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        is_wide = sum(button.sizeHint().width() + SMALL for button in self.buttons) + _TEXT_WIDTH <= self.width()
        self._box.setDirection(QBoxLayout.Direction.LeftToRight if is_wide else QBoxLayout.Direction.TopToBottom)

    def _draw_icon(self) -> None:
        color = getattr(self._theme.colors, self._color)
        self._picture.setPixmap(line_pixmap(self._icon, color, 18, self.devicePixelRatioF()))
        self.update()


class BannerArea(QWidget):
    """The two newest banners, the newest below; older ones wait. A banner replaces one of the same key."""

    def __init__(self) -> None:
        super().__init__()
        banners = QWidget()
        # The messages below have the same width.
        banners.setMaximumWidth(TEXT_WIDTH)
        self._layout = column(within=banners, spacing=TIGHT)
        row(None, (banners, 1000), None, within=self, spacing=0, margins=(LARGE, SMALL, LARGE, TIGHT))
        self._keyed: dict[str, Banner] = {}
        self.hide()

    def show_banner(self, banner: Banner, key: str, lasts_ms: int | None = None) -> None:
        """Show a banner until it is closed, or for some time."""
        self.close_banner(key)
        self._keyed[key] = banner
        banner.closed.connect(self._remove_closed)
        self._layout.addWidget(banner)
        self._show_newest()
        if lasts_ms is not None:
            QTimer.singleShot(lasts_ms, banner, banner.closed.emit)

    def close_banner(self, key: str) -> None:
        banner = self._keyed.pop(key, None)
        if banner is not None:
            discard(banner)
            self._show_newest()

    def _show_newest(self) -> None:
        banners = list(self._keyed.values())
        for index, banner in enumerate(reversed(banners)):
            banner.setVisible(index < _MAX_BANNERS)
        self.setVisible(bool(banners))

    def banner(self, key: str) -> Banner | None:
        return self._keyed.get(key)

    def _remove_closed(self) -> None:
        # A lambda or partial connected to the banner would crash PySide when the banner is deleted.
        closed = self.sender()
        for key in [key for key, banner in self._keyed.items() if banner is closed]:
            self.close_banner(key)
