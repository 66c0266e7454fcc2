"""Saves plots as PNG or PDF files; works without a display."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QPointF, QRectF, QSizeF
from PySide6.QtGui import QFontDatabase, QGuiApplication, QImage, QImageWriter, QPageSize, QPainter, QPdfWriter

from rdchat.errors import InvalidSettingError
from rdchat.files.atomic_file import atomic_file
from rdchat.ui.plots.drawing import Drawing, Plot
from rdchat.ui.style.theme import LIGHT

PICTURE_TYPES = (".png", ".pdf")
_WIDTH, _MARGIN = 672.0, 24.0
_PNG_SCALE = 2


def check_picture_name(path: Path) -> None:
    """Refuse a file name that is not that of a picture.

    Raises:
        InvalidSettingError: If it does not end in one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png or .pdf.")


def save_picture(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots into a file, atomically, one below the other and in light colours as on paper.

    Raises:
        InvalidSettingError: If the name does not end in .png or .pdf.
        StorageError: If the file cannot be written.
    """
    check_picture_name(path)
    content = _picture(plots, path.suffix.lower())
    with atomic_file(path) as file:
        file.write_bytes(content)


def _picture(plots: Sequence[Plot], kind: str) -> bytes:
    app = QGuiApplication.instance() or QGuiApplication(["rdchat", "-platform", "offscreen"])  # Fonts need one.
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    drawing = _draw(plots, Drawing(_WIDTH, LIGHT, font))
    size = QSizeF(_WIDTH + 2 * _MARGIN, drawing.height + 2 * _MARGIN)
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    device = _image(size) if kind == ".png" else _page(buffer, size)
    painter = QPainter(device)
    painter.fillRect(QRectF(QPointF(), size), LIGHT.surface)
    painter.translate(_MARGIN, _MARGIN)
    _draw(plots, Drawing(_WIDTH, LIGHT, font, painter))
    painter.end()  # Before the content is taken, so that nothing is lost.
    if isinstance(device, QImage):
        QImageWriter(buffer, b"png").write(device)
    del app
    return bytes(content.data())


def _draw(plots: Sequence[Plot], drawing: Drawing) -> Drawing:
    for plot in plots:
        plot.draw(drawing)
    return drawing


def _image(size: QSizeF) -> QImage:
    image = QImage((size * _PNG_SCALE).toSize(), QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(_PNG_SCALE)
    return image


def _page(buffer: QBuffer, size: QSizeF) -> QPdfWriter:
    writer = QPdfWriter(buffer)
    writer.setResolution(72)  # Units are points.
    writer.setPageSize(QPageSize(size, QPageSize.Unit.Point))
    writer.setPageMargins(QMarginsF())
    writer.setTitle("rdchat benchmark")
    return writer
