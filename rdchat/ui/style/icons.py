"""The app's icon, and line icons in any colour."""

from functools import cache
from importlib import resources
from math import ceil

from PySide6.QtCore import SIGNAL, QByteArray, QObject, QPointF, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QAction, QColor, QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QAbstractButton

from rdchat.ui.style.theme import Theme

_ICON_SIZES = (16, 32, 64, 128, 256, 512)


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
    """Draw an icon of `resources/icons` in a colour."""
    svg = _resource(f"icons/{name}.svg").replace(b"currentColor", color.name().encode())
    return draw_svg(svg, QSizeF(size, size), ratio, opacity)


def app_icon() -> QIcon:
    """Return the application's icon."""
    icon = QIcon()
    for size in _ICON_SIZES:
        icon.addPixmap(app_pixmap(size))
    return icon


def app_pixmap(size: int, ratio: float = 1) -> QPixmap:
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
