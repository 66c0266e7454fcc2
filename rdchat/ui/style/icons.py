"""The app's icon, and line icons in any colour."""

from importlib import resources
from math import ceil

from PySide6.QtCore import SIGNAL, QByteArray, QObject, QPointF, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QAction, QColor, QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QAbstractButton

from rdchat.ui.style.theme import Theme

# strokes on a 20 x 20 grid
_STROKES = {
    "sidebar": '<rect x="2.5" y="3.5" width="15" height="13" rx="2.5"/><path d="M7.5 3.5v13M4.6 6.5h1M4.6 9h1"/>',
    "panel": '<rect x="2.5" y="3.5" width="15" height="13" rx="2.5"/><path d="M12.5 3.5v13M14.4 6.5h1M14.4 9h1"/>',
    "new": '<path d="M16.5 10.5v4a2 2 0 0 1-2 2h-9a2 2 0 0 1-2-2v-9a2 2 0 0 1 2-2h4"/>'
    '<path d="M8 12l.6-2.6 6.6-6.6a1.4 1.4 0 0 1 2 2l-6.6 6.6z"/>',
    "search": '<circle cx="9" cy="9" r="5"/><path d="M13 13l4 4"/>',
    "options": '<path d="M3 6h7M15 6h2M3 14h2M10 14h7"/>'
    '<circle cx="12.5" cy="6" r="2"/><circle cx="7.5" cy="14" r="2"/>',
    "send": '<path d="M10 16V4.5M5 9l5-5 5 5"/>',
    "stop": '<rect x="5.5" y="5.5" width="9" height="9" rx="1.5" fill="currentColor"/>',
    "attach": '<path d="M15.9 9.3l-6.1 6.1a3.7 3.7 0 0 1-5.2-5.2l6.4-6.4a2.4 2.4 0 0 1 3.4 3.4l-6.4 6.4a1.2 1.2 0'
    ' 0 1-1.7-1.7l5.6-5.6"/>',
    "file": '<path d="M11.5 2.8H6.2a1.3 1.3 0 0 0-1.3 1.3v11.8a1.3 1.3 0 0 0 1.3 1.3h7.6a1.3 1.3 0 0 0 1.3-1.3V6.4z'
    'M11.5 2.8v3.6h3.6"/>',
    "close": '<path d="M5.5 5.5l9 9M14.5 5.5l-9 9"/>',
    "warning": '<path d="M10 3.5l7.5 13h-15zM10 8.2v4M10 14.2v.3"/>',
    "info": '<circle cx="10" cy="10" r="7"/><path d="M10 9v4.5M10 6.4v.3"/>',
    "compare": '<rect x="2.5" y="4" width="6" height="12" rx="1.5"/>'
    '<rect x="11.5" y="4" width="6" height="12" rx="1.5"/>',
    "copy": '<rect x="7" y="7" width="9.5" height="9.5" rx="2"/>'
    '<path d="M13 4.5v-.2a1.8 1.8 0 0 0-1.8-1.8H5.3a1.8 1.8 0 0 0-1.8 1.8v5.9A1.8 1.8 0 0 0 5.3 12h.2"/>',
    "check": '<path d="M4.5 10.5l3.7 3.8 7.3-8.6"/>',
    "edit": '<path d="M4 16l.8-3.4 8.6-8.6a1.8 1.8 0 0 1 2.6 2.6l-8.6 8.6zM12 5.5l2.5 2.5"/>',
    "regenerate": '<path d="M16 10a6 6 0 1 1-1.9-4.4M16.2 3v3.4h-3.4"/>',
    "previous": '<path d="M12 5l-5 5 5 5"/>',
    "next": '<path d="M8 5l5 5-5 5"/>',
    "unfold": '<path d="M5 8l5 5 5-5"/>',
    "latest": '<path d="M10 4v11.5M5 10.8l5 5 5-5"/>',
    "download": '<path d="M10 3v9.5M6 9l4 4 4-4M4 16.5h12"/>',
    "save": '<path d="M10 3v8.5M6.5 8.3l3.5 3.5 3.5-3.5"/>'
    '<path d="M3.5 12.5v3a1.5 1.5 0 0 0 1.5 1.5h10a1.5 1.5 0 0 0 1.5-1.5v-3"/>',
    "wrap": '<path d="M3 4.5h14M3 10h10.8a2.7 2.7 0 0 1 0 5.5H10M12 13.3l-2.2 2.2 2.2 2.2M3 15.5h3.5"/>',
    "no_wrap": '<path d="M3 5h14M3 10h13.5M13.8 7.3l2.7 2.7-2.7 2.7M3 15h9"/>',
    "pause": '<path d="M7 5v10M13 5v10"/>',
    "waiting": '<circle cx="10" cy="10" r="7"/><path d="M10 6v4.2l2.8 1.8"/>',
    "folder": '<path d="M2.8 15V5.2a1.2 1.2 0 0 1 1.2-1.2h3.6l1.8 2H16a1.2 1.2 0 0 1 1.2 1.2V15a1.2 1.2 0 0 1-1.2 1.2H4'
    'A1.2 1.2 0 0 1 2.8 15z"/>',
    "archive": '<rect x="2.5" y="4" width="15" height="3.6" rx="1"/>'
    '<path d="M4 7.6v7.2A1.2 1.2 0 0 0 5.2 16h9.6a1.2 1.2 0 0 0 1.2-1.2V7.6M8 10.6h4"/>',
    "bin": '<path d="M3.5 5.5h13M8 5.5V4a1 1 0 0 1 1-1h2a1 1 0 0 1 1 1v1.5M5 5.5l.8 10.3A1.2 1.2 0 0 0 7 17h6'
    'a1.2 1.2 0 0 0 1.2-1.2L15 5.5M8.4 8.5v5.5M11.6 8.5v5.5"/>',
    "filter": '<path d="M3.5 6h13M6 10h8M8.5 14h3"/>',
    "more": '<path d="M5 10h.01M10 10h.01M15 10h.01" stroke-width="2.2"/>',
    "tokens": '<rect x="2.5" y="4.5" width="8.5" height="4.5" rx="1.5"/><rect x="13" y="4.5" width="4.5" height="4.5"'
    ' rx="1.5"/><rect x="2.5" y="11" width="4.5" height="4.5" rx="1.5"/><rect x="9" y="11" width="8.5" height="4.5"'
    ' rx="1.5"/>',
    "model": '<rect x="5" y="5" width="10" height="10" rx="2"/><rect x="8" y="8" width="4" height="4" rx=".8"/>'
    '<path d="M7.5 2.5v2.5M12.5 2.5v2.5M7.5 15v2.5M12.5 15v2.5M2.5 7.5h2.5M2.5 12.5h2.5M15 7.5h2.5M15 12.5h2.5"/>',
}
_ICON_SIZES = (16, 32, 64, 128, 256, 512)


def line_icon(name: str, color: QColor, size: int = 18) -> QIcon:
    """Return an icon for pixel ratios up to 3, fainter for disabled controls."""
    icon = QIcon()
    for mode, opacity in ((QIcon.Mode.Normal, 1.0), (QIcon.Mode.Disabled, 0.4)):
        for ratio in (1, 2, 3):
            icon.addPixmap(_draw(_line_svg(name, color), size, ratio, opacity), mode)
    return icon


def show_icon(item: QAction | QAbstractButton, name: str, theme: Theme, color: str = "muted", size: int = 18) -> None:
    """Give an item a line icon in a colour of `Colors`, which follows the theme for as long as the item lives."""

    def draw() -> None:
        item.setIcon(line_icon(name, getattr(theme.colors, color), size))

    QObject.connect(theme, SIGNAL("changed()"), item, draw)
    draw()


def line_pixmap(name: str, color: QColor, size: int, ratio: float) -> QPixmap:
    return _draw(_line_svg(name, color), size, ratio)


def app_icon() -> QIcon:
    """Return the application's icon."""
    icon = QIcon()
    for size in _ICON_SIZES:
        icon.addPixmap(app_pixmap(size))
    return icon


def app_pixmap(size: int, ratio: float = 1) -> QPixmap:
    return _draw(resources.files("rdchat.ui").joinpath("resources/icon.svg").read_bytes(), size, ratio)


def _line_svg(name: str, color: QColor) -> bytes:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20" fill="none" stroke="currentColor" '
        f'stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round">{_STROKES[name]}</svg>'
    )
    return svg.replace("currentColor", color.name()).encode()


def _draw(svg: bytes, size: int, ratio: float, opacity: float = 1.0) -> QPixmap:
    return draw_svg(svg, QSizeF(size, size), ratio, opacity)


def draw_svg(svg: bytes, size: QSizeF, ratio: float, opacity: float = 1.0, room: int = 0) -> QPixmap:
    """Draw a picture, or return it from the cache: drawing all buttons of a chat takes 0.1 s.

    Args:
        svg: The picture.
        size: Its size.
        ratio: Pixels of the screen for each one of the size.
        opacity: From 0 to 1.
        room: What is added at the right and below, for strokes that go over the edge.
    """
    key = f"{hash(svg)} {size.width():.1f} {size.height():.1f} {ratio} {opacity}"
    pixmap = QPixmap(QSize(ceil(size.width() + room), ceil(size.height() + room)) * ratio)
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
