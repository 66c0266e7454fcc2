"""Colours, spacing and fonts. Native controls keep the system's own drawing; no style sheet replaces it.

The colours are for what the system has no control for: message bubbles, code, badges, charts. On platforms without an
appearance of their own (Qt's Fusion style on Linux), they also fill the palette of the controls.
"""

from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

# spacing, in device-independent pixels: a 4 px grid
TIGHT, SMALL, MEDIUM, LARGE = 4, 8, 12, 20
RADIUS = 10
SIDEBAR_WIDTH, PANEL_WIDTH, TEXT_WIDTH = 240, 296, 720  # TEXT_WIDTH: the widest a line of prose gets
_TO_RING = 127  # percent: Fusion takes a colour darkened by 140 and lightened by 110 percent
SMALLEST_TEXT, DEFAULT_TEXT, LARGEST_TEXT = 9, 13, 28  # transcript text, in points


@dataclass(frozen=True, slots=True)
class Colors:
    """The colours of one appearance; the contrast of text on its background is at least 4.5:1."""

    window: QColor
    surface: QColor  # background of the transcript
    raised: QColor  # the person's messages, cards
    code: QColor  # background of code blocks
    border: QColor
    text: QColor
    muted: QColor  # secondary text
    selection: QColor  # selected row of the sidebar
    accent: QColor
    on_accent: QColor
    danger: QColor
    warning: QColor
    success: QColor
    hit: QColor  # background of a search hit
    current_hit: QColor  # background of the current search hit


LIGHT = Colors(
    window=QColor("#f5f5f7"), surface=QColor("#ffffff"), raised=QColor("#eef1f6"), code=QColor("#f6f7f9"),
    border=QColor("#dcdce0"), text=QColor("#1d1d1f"), muted=QColor("#65656b"), selection=QColor("#e1e4ea"),
    accent=QColor("#0063ce"), on_accent=QColor("#ffffff"), danger=QColor("#c01c28"), warning=QColor("#8a5a00"),
    success=QColor("#1f7a3a"), hit=QColor("#ffe89a"), current_hit=QColor("#ffc04d"),
)  # fmt: skip
DARK = Colors(
    window=QColor("#1e1e20"), surface=QColor("#242426"), raised=QColor("#323236"), code=QColor("#1b1b1d"),
    border=QColor("#3c3c40"), text=QColor("#f2f2f4"), muted=QColor("#a3a3aa"), selection=QColor("#38393f"),
    accent=QColor("#4ba3ff"), on_accent=QColor("#00264d"), danger=QColor("#ff7b72"), warning=QColor("#e3b341"),
    success=QColor("#56d37a"), hit=QColor("#5c4d00"), current_hit=QColor("#8a5a00"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SyntaxColors:
    """Colours of highlighted code, at least 4.5:1 on `Colors.code`."""

    keyword: QColor
    name: QColor  # functions, classes, tags
    builtin: QColor
    string: QColor
    number: QColor
    comment: QColor
    inserted: QColor
    deleted: QColor


LIGHT_SYNTAX = SyntaxColors(
    keyword=QColor("#9b2393"), name=QColor("#0b5ea8"), builtin=QColor("#6c36a9"), string=QColor("#b3261e"),
    number=QColor("#1c00cf"), comment=QColor("#5d6c79"), inserted=QColor("#1f7a3a"), deleted=QColor("#b3261e"),
)  # fmt: skip
DARK_SYNTAX = SyntaxColors(
    keyword=QColor("#ff7ab2"), name=QColor("#6bc7f6"), builtin=QColor("#d0a8ff"), string=QColor("#ff8170"),
    number=QColor("#d9c97c"), comment=QColor("#8e98a4"), inserted=QColor("#56d37a"), deleted=QColor("#ff8170"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlotColors:
    """Colours of speed-ups: blue and orange, which people with any colour blindness tell apart."""

    slower: QColor
    neutral: QColor  # as fast as plain decoding
    faster: QColor


LIGHT_PLOT = PlotColors(slower=QColor("#c65d00"), neutral=QColor("#f2f2f4"), faster=QColor("#1667b7"))
DARK_PLOT = PlotColors(slower=QColor("#ff9a3d"), neutral=QColor("#3a3a3f"), faster=QColor("#5aaeff"))


@dataclass(frozen=True, slots=True)
class DraftColors:
    """Text colours of drafted tokens by drafter, at least 4.5:1 on `Colors.surface` and `Colors.window`.

    They follow Okabe and Ito's palette, which people with any colour blindness tell apart.
    """

    speculative: QColor
    drafter: QColor
    lookup: QColor


LIGHT_DRAFTS = DraftColors(
    speculative=QColor("#0066a6"), drafter=QColor("#b04a00"), lookup=QColor("#007355")
)  # fmt: skip
DARK_DRAFTS = DraftColors(
    speculative=QColor("#5cbcf0"), drafter=QColor("#f0a830"), lookup=QColor("#3fcf9f")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeColors:
    """Colours of the stages of a reply, at least 3:1 on `Colors.window`, except for time that was not measured."""

    prompt: QColor
    draft: QColor
    together: QColor  # a draft and a target call that the device computes together
    target: QColor
    host: QColor
    not_measured: QColor


LIGHT_TIMES = TimeColors(
    prompt=QColor("#0f8273"), draft=QColor("#c65d00"), together=QColor("#8250c4"), target=QColor("#1667b7"),
    host=QColor("#7b7b83"), not_measured=QColor("#cfcfd5"),
)  # fmt: skip
DARK_TIMES = TimeColors(
    prompt=QColor("#45c4b0"), draft=QColor("#ff9a3d"), together=QColor("#b394f0"), target=QColor("#5aaeff"),
    host=QColor("#8f8f98"), not_measured=QColor("#4a4a50"),
)  # fmt: skip
_LIGHT = LIGHT, LIGHT_SYNTAX, LIGHT_PLOT, LIGHT_DRAFTS, LIGHT_TIMES
_DARK = DARK, DARK_SYNTAX, DARK_PLOT, DARK_DRAFTS, DARK_TIMES


class Theme(QObject):
    """The present appearance. Widgets take it in their constructor and repaint on `changed`.

    Attributes:
        dark: Whether the appearance is dark.
        colors, syntax, plot, drafts, times: Its colours.
    """

    changed = Signal()

    def __init__(self, app: QGuiApplication, text_size: int = DEFAULT_TEXT) -> None:
        super().__init__(app)
        self._app = app
        self._hints = app.styleHints()
        self._forced = Qt.ColorScheme.Unknown
        self._text_size = text_size
        self._choose_colors()
        self._hints.colorSchemeChanged.connect(self._refresh)

    def _choose_colors(self) -> None:
        # not every platform obeys a forced scheme (bare X11 does not), so it is kept here too
        scheme = self._hints.colorScheme() if self._forced is Qt.ColorScheme.Unknown else self._forced
        self.dark = scheme is Qt.ColorScheme.Dark
        chosen = _DARK if self.dark else _LIGHT
        self.colors, self.syntax, self.plot, self.drafts, self.times = chosen
        self._fill_palette()

    def set_scheme(self, scheme: Qt.ColorScheme) -> None:
        """Force light or dark, or follow the system with `Unknown`."""
        if scheme is self._forced:
            return
        self._forced = scheme
        self._hints.setColorScheme(scheme)
        self._refresh()

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
        font.setPointSizeF(self._points(self._text_size))
        return font

    def code_font(self) -> QFont:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPointSizeF(self._points(self._text_size - 1))
        return font

    def _points(self, size: int) -> float:
        # a point is a pixel on a Mac and 1.33 of them elsewhere: the same setting looks the same on both
        return size * 72 / self._app.primaryScreen().logicalDotsPerInch()

    def _refresh(self) -> None:
        self._choose_colors()
        self.changed.emit()

    def _fill_palette(self) -> None:
        if QGuiApplication.platformName() != "cocoa":  # a Mac's own palette follows its appearance and accent colour
            self._app.setPalette(_palette(self.colors))
            if isinstance(self._app, QApplication):  # a palette for all controls takes those of some away
                for name in ("QCheckBox", "QRadioButton"):
                    QApplication.setPalette(_check_palette(self.colors), name)  # type: ignore[arg-type]  # bytes are refused


def control_font(points_more: float = 0, bold: bool = False, tabular: bool = False) -> QFont:
    """Return the system's font for controls, a little larger or smaller; `tabular` gives figures one width."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    given = font.pointSizeF()  # -1 where the system names its size in pixels; QFontInfo takes 0.5 ms to tell
    font.setPointSizeF((given if given > 0 else QFontInfo(font).pointSizeF()) + points_more)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    if tabular:
        font.setFeature(QFont.Tag("tnum"), 1)
    return font


def _check_palette(colors: Colors) -> QPalette:
    """Return the palette of check boxes and radio buttons: Fusion draws their rings darker than the window colour."""
    palette = _palette(colors)
    for group, share in ((QPalette.ColorGroup.All, 0.1), (QPalette.ColorGroup.Disabled, 0.5)):
        ring = _mixed(colors.muted, colors.window, share)
        palette.setColor(group, QPalette.ColorRole.Window, ring.lighter(_TO_RING))
    return palette


def _mixed(one: QColor, other: QColor, share: float) -> QColor:
    """Return a colour between two; `share` is the part of the second."""
    parts = zip((one.redF(), one.greenF(), one.blueF()), (other.redF(), other.greenF(), other.blueF()), strict=True)
    return QColor.fromRgbF(*(mine + (its - mine) * share for mine, its in parts))


def _palette(colors: Colors) -> QPalette:
    role = QPalette.ColorRole
    palette = QPalette(colors.raised, colors.window)  # Qt derives bevels from the button and window colours
    for name, color in (
        (role.Window, colors.window),
        (role.WindowText, colors.text),
        (role.Base, colors.surface),
        (role.AlternateBase, colors.raised),
        (role.Text, colors.text),
        (role.ButtonText, colors.text),
        (role.BrightText, colors.danger),
        (role.PlaceholderText, colors.muted),
        (role.ToolTipBase, colors.raised),
        (role.ToolTipText, colors.text),
        (role.Highlight, colors.accent),
        (role.HighlightedText, colors.on_accent),
        (role.Accent, colors.accent),
        (role.Link, colors.accent),
        (role.LinkVisited, colors.accent),
    ):
        palette.setColor(name, color)
    faint = QColor(colors.muted)
    faint.setAlpha(150)
    for name in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, faint)
    return palette
