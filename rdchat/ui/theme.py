"""Colours, spacing and fonts, in one place. Native controls keep the system's own drawing; no style sheet replaces it.

Colours here are only for what the system has no control for: message bubbles, code, badges, charts.
"""

from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication

# spacing, in device-independent pixels: a 4 px grid
TIGHT, SMALL, MEDIUM, LARGE, HUGE = 4, 8, 12, 20, 32
RADIUS = 10
SIDEBAR_WIDTH, PANEL_WIDTH, TEXT_WIDTH = 240, 280, 720  # TEXT_WIDTH: the widest a line of prose gets


@dataclass(frozen=True, slots=True)
class Colors:
    """One appearance's colours; contrast of text on its ground is at least 4.5:1."""

    window: QColor
    surface: QColor  # transcript ground
    raised: QColor  # the person's messages, cards
    code: QColor  # code block ground
    border: QColor
    text: QColor
    muted: QColor  # secondary text
    accent: QColor
    on_accent: QColor
    danger: QColor
    warning: QColor
    success: QColor


LIGHT = Colors(
    window=QColor("#f5f5f7"), surface=QColor("#ffffff"), raised=QColor("#eef1f6"), code=QColor("#f6f7f9"),
    border=QColor("#dcdce0"), text=QColor("#1d1d1f"), muted=QColor("#65656b"), accent=QColor("#0063ce"),
    on_accent=QColor("#ffffff"), danger=QColor("#c01c28"), warning=QColor("#8a5a00"), success=QColor("#1f7a3a"),
)  # fmt: skip
DARK = Colors(
    window=QColor("#1e1e20"), surface=QColor("#242426"), raised=QColor("#323236"), code=QColor("#1b1b1d"),
    border=QColor("#3c3c40"), text=QColor("#f2f2f4"), muted=QColor("#a3a3aa"), accent=QColor("#4ba3ff"),
    on_accent=QColor("#00264d"), danger=QColor("#ff7b72"), warning=QColor("#e3b341"), success=QColor("#56d37a"),
)  # fmt: skip


class Theme(QObject):
    """The appearance in force. Widgets take it in their constructor and repaint on `changed`."""

    changed = Signal()

    def __init__(self, app: QGuiApplication, text_size: int = 13) -> None:
        super().__init__(app)
        self._hints = app.styleHints()
        self._text_size = text_size
        self._hints.colorSchemeChanged.connect(self.changed)

    @property
    def dark(self) -> bool:
        return self._hints.colorScheme() is Qt.ColorScheme.Dark

    @property
    def colors(self) -> Colors:
        return DARK if self.dark else LIGHT

    def set_scheme(self, scheme: Qt.ColorScheme) -> None:
        """Force light or dark, or follow the system with `Unknown`."""
        self._hints.setColorScheme(scheme)

    @property
    def text_size(self) -> int:
        """Transcript text, in points."""
        return self._text_size

    def set_text_size(self, points: int) -> None:
        if points != self._text_size:
            self._text_size = points
            self.changed.emit()

    def body_font(self) -> QFont:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        font.setPointSize(self._text_size)
        return font

    def code_font(self) -> QFont:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPointSize(self._text_size - 1)
        return font
