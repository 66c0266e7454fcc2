"""Saves plots as PNG, SVG or PDF files; works without a display."""

import re
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QPointF, QRectF, QSizeF
from PySide6.QtGui import QFont, QFontDatabase, QGuiApplication, QImage, QImageWriter, QPageSize, QPainter, QPdfWriter
from PySide6.QtSvg import QSvgGenerator

from rdchat.errors import InvalidSettingError
from rdchat.files.atomic_file import atomic_file
from rdchat.ui.look.theme import LIGHT
from rdchat.ui.plots.drawing import Drawing, Plot

PICTURE_TYPES = (".png", ".svg", ".pdf")
_WIDTH, _MARGIN = 672.0, 24.0
_PNG_SCALE = 2
_SVG_FONT = "Arial"  # an SVG file names one font: systems without it have another one of the same widths
_IN_A_PAGE = {"text": "currentColor", "muted": "currentColor", "border": "#88888844"}  # on light and dark pages


def check_picture_name(path: Path) -> None:
    """Refuse a file name that is not that of a picture.

    Raises:
        InvalidSettingError: If it does not end in one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png, .svg or .pdf.")


def save_picture(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots into a file, atomically, one below the other and in light colours as on paper.

    Raises:
        InvalidSettingError: If the name does not end in .png, .svg or .pdf.
        StorageError: If the file cannot be written.
    """
    check_picture_name(path)
    content = _picture(plots, path.suffix.lower(), _WIDTH, _MARGIN, "surface")
    with atomic_file(path) as file:
        file.write_bytes(content)


def inline_svg(plots: Sequence[Plot], width: float) -> str:
    """Return plots as an `svg` element of an HTML page, in the page's own colour of text."""
    text = re.sub(r'\sxmlns[:\w]*="[^"]*"', "", _picture(plots, ".svg", width).decode())
    for name, color in _IN_A_PAGE.items():
        text = text.replace(getattr(LIGHT, name).name(), color)
    return text[text.index("<svg") :]


def _picture(plots: Sequence[Plot], kind: str, width: float, margin: float = 0.0, ground: str = "") -> bytes:
    app = QGuiApplication.instance() or QGuiApplication(["rdchat", "-platform", "offscreen"])  # fonts need one
    font = QFont(_SVG_FONT) if kind == ".svg" else QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    drawing = _draw(plots, Drawing(width, LIGHT, font))
    size = QSizeF(width + 2 * margin, drawing.height + 2 * margin)
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    device = _device(kind, buffer, size, " ".join(drawing.words))
    painter = QPainter(device)
    if ground:
        painter.fillRect(QRectF(QPointF(), size), getattr(LIGHT, ground))
    painter.translate(margin, margin)
    _draw(plots, Drawing(width, LIGHT, font, painter))
    painter.end()  # before the content is taken: what follows must not be lost
    if isinstance(device, QImage):
        QImageWriter(buffer, b"png").write(device)
    del app
    return bytes(content.data())


def _draw(plots: Sequence[Plot], drawing: Drawing) -> Drawing:
    for plot in plots:
        plot.draw(drawing)
    return drawing


def _device(kind: str, buffer: QBuffer, size: QSizeF, words: str) -> QImage | QPdfWriter | QSvgGenerator:
    """Return what a picture is painted on; `words` describe it."""
    if kind == ".png":
        image = QImage((size * _PNG_SCALE).toSize(), QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(_PNG_SCALE)
        return image
    if kind == ".svg":
        generator = QSvgGenerator()
        generator.setOutputDevice(buffer)
        generator.setResolution(96)  # units are CSS pixels
        generator.setTitle("rdchat")
        generator.setDescription(words)
        generator.setSize(size.toSize())
        generator.setViewBox(QRectF(QPointF(), size))
        return generator
    writer = QPdfWriter(buffer)
    writer.setResolution(72)  # units are points
    writer.setPageSize(QPageSize(size, QPageSize.Unit.Point))
    writer.setPageMargins(QMarginsF())
    writer.setTitle("rdchat benchmark")
    return writer
