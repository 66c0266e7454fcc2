"""Colours, spacing, fonts and icons of all windows, and what is painted with them: cards, rows, focus rings.

Native controls keep the system's own drawing; no style sheet replaces it. The colours are for everything else: message
bubbles, code, badges, charts. On platforms without an appearance of their own (Qt's Fusion style on Linux), they also
fill the palette of the controls.
"""

from functools import cache
from importlib import resources
from math import ceil

from PySide6.QtCore import SIGNAL, QByteArray, QObject, QPointF, QRect, QRectF, QSize, QSizeF, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QColor,
    QFont,
    QFontDatabase,
    QFontInfo,
    QGuiApplication,
    QIcon,
    QPainter,
    QPalette,
    QPen,
    QPixmap,
    QPixmapCache,
    QTextCharFormat,
)
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QAbstractButton, QApplication, QStyle, QWidget

# The spacing follows a grid of 4 device-independent pixels.
TIGHT = 4
SMALL = 8
MEDIUM = 12
LARGE = 20
RADIUS = 10
SIDEBAR_WIDTH = 240
PANEL_WIDTH = 296
TEXT_WIDTH = 720  # the widest a line of prose gets
# Fusion draws the outline of a control in the window's colour, made `darker(140)`, and partly `lighter(110)` again. In
# the dark, none would be seen. So these controls, which paint nothing else in the window's colour, get `other` there,
# made lighter by as much (1.4 / 1.1 is 1.27).
_OUTLINED = "QCheckBox", "QRadioButton", "QLineEdit", "QAbstractSpinBox", "QPlainTextEdit", "QAbstractItemView"
_TO_OUTLINE = 127
ALIGNMENTS = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}
# Size of the transcript's text, in points, and between which sizes the controls follow it: with larger ones a window of
# 900 x 560 would hold too little.
DEFAULT_TEXT = 13
_SMALLEST_CONTROLS = 11
_LARGEST_CONTROLS = 18
_ICON_SIZES = (16, 32, 64, 128, 256, 512)

ROW_RADIUS = 7
RING = 2
"""Width of a focus ring, in pixels."""


class _Tones:
    """A descriptor of `Colors` with a light and a dark tone; reading it gives the tone of that appearance."""

    def __init__(self, light: str, dark: str) -> None:
        self._tones = QColor(light), QColor(dark)

    def __get__(self, colors: "Colors", _owner: object) -> QColor:
        return self._tones[colors.dark]


class Colors:
    """The colours of one appearance; the contrast of text on its background is at least 4.5:1.

    Args:
        dark: Whether the appearance is dark.
        contrast: Whether it is for high contrast: secondary text gets the colour of text, and lines and the selection
            get that of secondary text and of lines.

    Attributes:
        surface: Background of the transcript.
        raised: Background of the person's messages and of cards.
        code: Background of code blocks.
        muted: Secondary text.
        selection: The selected row of the sidebar.
        hit: Background of a search hit.
        current_hit: Background of the current search hit.
        name: Functions, classes and tags in code.
        neutral: The pale end of the colours of curves.

    The other colours are named by what they mark; the comments below say where.
    """

    def __init__(self, dark: bool, *, contrast: bool = False) -> None:
        self.dark = dark
        if contrast:
            # An instance's own colours take precedence.
            self.__dict__.update(border=self.muted, muted=self.text, selection=self.border)

    window = _Tones("#f5f5f7", "#1e1e20")
    surface = _Tones("#ffffff", "#242426")
    raised = _Tones("#eef1f6", "#323236")
    code = _Tones("#f6f7f9", "#1b1b1d")
    border = _Tones("#dcdce0", "#3c3c40")
    text = _Tones("#1d1d1f", "#f2f2f4")
    muted = _Tones("#65656b", "#a3a3aa")
    selection = _Tones("#e1e4ea", "#38393f")
    accent = _Tones("#0063ce", "#4ba3ff")
    on_accent = _Tones("#ffffff", "#00264d")
    danger = _Tones("#c01c28", "#ff7b72")
    warning = _Tones("#8a5a00", "#e3b341")
    success = _Tones("#1f7a3a", "#56d37a")
    hit = _Tones("#ffe89a", "#5c4d00")
    current_hit = _Tones("#ffc04d", "#8a5a00")

    # Highlighted code, at least 4.5:1 on `code`
    keyword = _Tones("#9b2393", "#ff7ab2")
    name = _Tones("#0b5ea8", "#6bc7f6")
    builtin = _Tones("#6c36a9", "#d0a8ff")
    string = _Tones("#b3261e", "#ff8170")
    number = _Tones("#1c00cf", "#d9c97c")
    comment = _Tones("#5d6c79", "#8e98a4")
    inserted = _Tones("#1f7a3a", "#56d37a")
    deleted = _Tones("#b3261e", "#ff8170")

    # Speed-ups: blue and orange, which people with any colour blindness tell apart
    slower = _Tones("#c65d00", "#ff9a3d")
    neutral = _Tones("#f2f2f4", "#3a3a3f")
    faster = _Tones("#1667b7", "#5aaeff")

    # Text of drafted tokens by drafter, at least 4.5:1 on `surface` and `window`, after Okabe and Ito's palette,
    # which people with any colour blindness tell apart
    speculative = _Tones("#0066a6", "#5cbcf0")
    drafter = _Tones("#b04a00", "#f0a830")
    lookup = _Tones("#007355", "#3fcf9f")
    replies = _Tones("#9c2f7c", "#e79ac9")
    phrases = _Tones("#5549b8", "#aaa2f7")
    shape = _Tones("#6b5b00", "#d9c34a")

    # Stages of a reply, at least 3:1 on `window`; `other` is also the outline of controls
    seeing = _Tones("#b3336f", "#f08bb8")
    reading = _Tones("#0f8273", "#45c4b0")
    drafting = _Tones("#c65d00", "#ff9a3d")
    checking = _Tones("#8250c4", "#b394f0")
    writing = _Tones("#1667b7", "#5aaeff")
    other = _Tones("#7b7b83", "#8f8f98")


LIGHT = Colors(dark=False)
DARK = Colors(dark=True)
_CONTRAST = Colors(dark=False, contrast=True), Colors(dark=True, contrast=True)


class Theme(QObject):
    """The present appearance. Widgets take it in their constructor and repaint on `changed`.

    Attributes:
        colors: Its colours.
        text_size: Transcript text, in points; see `set_text_size`.
    """

    changed = Signal()

    def __init__(self, app: QGuiApplication, text_size: int = DEFAULT_TEXT) -> None:
        super().__init__(app)
        self._app = app
        self._hints = app.styleHints()
        self._forced = Qt.ColorScheme.Unknown
        self.text_size = DEFAULT_TEXT
        self._choose_colors()
        self.set_text_size(text_size)
        self._hints.colorSchemeChanged.connect(self._refresh)
        self._hints.accessibility().contrastPreferenceChanged.connect(self._refresh)

    def _choose_colors(self) -> None:
        """Set `colors`, and the palette of the controls with them."""
        # Not every platform obeys `setColorScheme` (bare X11 does not), so the forced scheme counts here too.
        scheme = self._hints.colorScheme() if self._forced is Qt.ColorScheme.Unknown else self._forced
        is_strong = self._hints.accessibility().contrastPreference() is Qt.ContrastPreference.HighContrast
        # Each pair has the light colours first; False and True are its indices.
        self.colors = (_CONTRAST if is_strong else (LIGHT, DARK))[scheme is Qt.ColorScheme.Dark]
        self._fill_palette()

    def set_scheme(self, scheme: Qt.ColorScheme) -> None:
        """Force light or dark, or follow the system with `Unknown`."""
        if scheme is self._forced:
            return
        self._forced = scheme
        self._hints.setColorScheme(scheme)
        self._refresh()

    def set_text_size(self, points: int) -> None:
        """Set the size of the transcript's text; controls become larger or smaller with it, within limits."""
        if points == self.text_size:
            return
        self.text_size = points
        before = control_font().pointSizeF()
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        share = min(max(points, _SMALLEST_CONTROLS), _LARGEST_CONTROLS) / DEFAULT_TEXT
        font.setPointSizeF(_points(font) * share)
        # Widgets with a font of their own do not get the application's, or only parts of it.
        has_own = Qt.WidgetAttribute.WA_SetFont
        own = [(each, each.font()) for each in QApplication.allWidgets() if each.testAttribute(has_own)]
        self._app.setFont(font)
        for widget, its_font in own:
            its_font.setPointSizeF(_points(its_font) + _points(font) - before)
            widget.setFont(its_font)
        self.changed.emit()

    def body_font(self) -> QFont:
        return self._font(QFontDatabase.SystemFont.GeneralFont, self.text_size)

    def code_font(self) -> QFont:
        return self._font(QFontDatabase.SystemFont.FixedFont, self.text_size - 1)

    def _font(self, family: QFontDatabase.SystemFont, size: int) -> QFont:
        font = QFontDatabase.systemFont(family)
        # A point is a pixel on a Mac and 1.33 of them elsewhere: the same setting looks the same on both.
        font.setPointSizeF(size * 72 / self._app.primaryScreen().logicalDotsPerInch())
        return font

    def _refresh(self) -> None:
        self._choose_colors()
        self.changed.emit()

    def _fill_palette(self) -> None:
        # A Mac's own palette follows its appearance and accent colour.
        if QGuiApplication.platformName() != "cocoa":
            self._app.setPalette(_palette(self.colors))
            # `setPalette` has removed the palettes of these controls, so they are set again.
            if isinstance(self._app, QApplication):
                outlined = _palette(self.colors)
                outlined.setColor(QPalette.ColorRole.Window, self.colors.other.lighter(_TO_OUTLINE))
                for name in _OUTLINED:
                    QApplication.setPalette(outlined, name)  # type: ignore[arg-type]  # bytes are refused


def scaled(pixels: int) -> int:
    """Return a length for the present size of controls; `pixels` is for their usual size."""
    usual = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    return round(pixels * _points(QGuiApplication.font()) / _points(usual))


def _points(font: QFont) -> float:
    """Return a font's size in points."""
    # This is -1 where the system gives the size in pixels; only then QFontInfo is asked, which takes 0.5 ms.
    points = font.pointSizeF()
    return points if points > 0 else QFontInfo(font).pointSizeF()


def control_font(points_more: float = 0, bold: bool = False, tabular: bool = False) -> QFont:
    """Return the present font of controls, a little larger or smaller; `tabular` gives figures one width."""
    font = QGuiApplication.font()
    font.setPointSizeF(_points(font) + points_more)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    if tabular:
        font.setFeature(QFont.Tag("tnum"), 1)
    return font


def _palette(colors: Colors) -> QPalette:
    """Return a palette for all controls with our colours."""
    role = QPalette.ColorRole
    palette = QPalette(colors.raised, colors.window)  # Qt derives bevels from the button and window colours
    for name, color in {
        role.Window: colors.window,
        role.Base: colors.surface,
        role.AlternateBase: colors.raised,
        role.ToolTipBase: colors.raised,
        role.WindowText: colors.text,
        role.Text: colors.text,
        role.ButtonText: colors.text,
        role.ToolTipText: colors.text,
        role.PlaceholderText: colors.muted,
        role.BrightText: colors.danger,
        role.Highlight: colors.accent,
        role.Accent: colors.accent,
        role.Link: colors.accent,
        role.LinkVisited: colors.accent,
        role.HighlightedText: colors.on_accent,
    }.items():
        palette.setColor(name, color)
    faint = QColor(colors.muted)
    faint.setAlpha(150)
    for name in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, faint)
    return palette


def paint_card(
    widget: QWidget, area: QRect | QRectF, fill: QColor, line: QPen | QColor | None = None, radius: float = RADIUS
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
    focused = state & flag.State_HasFocus and state & flag.State_KeyboardFocusChange
    ground = (
        colors.selection if state & flag.State_Selected else colors.raised if state & flag.State_MouseOver else None
    )
    painter.setPen(colors.accent if focused else Qt.PenStyle.NoPen)
    painter.setBrush(ground or Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(area, ROW_RADIUS, ROW_RADIUS)


def paint_focus(painter: QPainter, area: QRectF, color: QColor, radius: float = 4) -> None:
    """Draw the focus ring just inside `area`."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(color, RING))
    painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), radius, radius)


def set_role(widget: QWidget, role: QPalette.ColorRole, color: QColor) -> None:
    """Change one colour of a widget's palette."""
    palette = widget.palette()
    palette.setColor(role, color)
    widget.setPalette(palette)


def text_look(color: QColor | None = None, ground: QColor | None = None) -> QTextCharFormat:
    """Return the format of text in a colour, on a ground."""
    look = QTextCharFormat()
    if color is not None:
        look.setForeground(color)
    if ground is not None:
        look.setBackground(ground)
    return look


def line_icon(name: str, color: QColor, size: int = 18) -> QIcon:
    """Return an icon for pixel ratios up to 3, fainter for disabled controls."""
    icon = QIcon()
    for mode, opacity in ((QIcon.Mode.Normal, 1.0), (QIcon.Mode.Disabled, 0.4)):
        for ratio in (1, 2, 3):
            icon.addPixmap(line_pixmap(name, color, size, ratio, opacity), mode)
    return icon


def show_icon(item: QAction | QAbstractButton, name: str, theme: Theme, color: str = "muted", size: int = 18) -> None:
    """Give an item a line icon in a colour of `Colors`, which follows the theme for as long as the item lives."""

    def draw() -> None:
        item.setIcon(line_icon(name, getattr(theme.colors, color), size))

    QObject.connect(theme, SIGNAL("changed()"), item, draw)
    draw()


def line_pixmap(name: str, color: QColor, size: int, ratio: float, opacity: float = 1.0) -> QPixmap:
    """Draw an icon of `resources/icons`, an SVG of lines in `currentColor`, in a colour."""
    svg = _resource(f"icons/{name}.svg").replace(b"currentColor", color.name().encode())
    return draw_svg(svg, QSizeF(size, size), ratio, opacity)


def app_icon() -> QIcon:
    """Return the application's icon."""
    icon = QIcon()
    for size in _ICON_SIZES:
        icon.addPixmap(app_pixmap(size))
    return icon


def app_pixmap(size: int, ratio: float = 1) -> QPixmap:
    """Draw the application's icon in one size."""
    return draw_svg(_resource("icon.svg"), QSizeF(size, size), ratio)


@cache
def _resource(path: str) -> bytes:
    return resources.files("rdchat.ui").joinpath("resources", path).read_bytes()


def draw_svg(svg: bytes, size: QSizeF, ratio: float, opacity: float = 1.0, room: int = 0) -> QPixmap:
    """Draw a picture, or return it from the cache: drawing all buttons of a chat takes 0.1 s.

    Args:
        svg: The picture.
        size: Its size.
        ratio: Pixels of the screen for each one of the size.
        opacity: From 0 to 1.
        room: What is added at the right and below, for strokes that go over the edge.
    """
    key = f"{hash(svg)} {size.width():.1f} {size.height():.1f} {ratio} {opacity} {room}"
    pixmap = QPixmap(QSize(ceil(size.width() + room), ceil(size.height() + room)) * ratio)
    # `find` also puts the picture that it finds into `pixmap`.
    if QPixmapCache.find(key, pixmap):
        return pixmap
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setOpacity(opacity)
    QSvgRenderer(QByteArray(svg)).render(painter, QRectF(QPointF(), size))
    painter.end()
    QPixmapCache.insert(key, pixmap)
    return pixmap
