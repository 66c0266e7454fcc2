"""Pictures as files: PNG at twice the size, SVG, or PDF."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QIODevice, QMarginsF, QRect, QRectF, QSaveFile, QSizeF
from PySide6.QtGui import (
    QFontDatabase,
    QGuiApplication,
    QImage,
    QImageWriter,
    QPageSize,
    QPaintDevice,
    QPainter,
    QPdfWriter,
)
from PySide6.QtSvg import QSvgGenerator

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.benchmark.pictures import Pictures
from rdchat.ui.look.theme import LIGHT, LIGHT_PLOT
from rdchat.ui.plots.heat_map import HeatMapPlot
from rdchat.ui.plots.plot import Column, Plot, PlotStyle
from rdchat.ui.plots.speed_bars import SpeedBarsPlot

PICTURE_TYPES = (".png", ".svg", ".pdf")
_WIDTH, _MARGIN, _PNG_SCALE = 720.0, 24.0, 2


def plot_of(pictures: Pictures) -> Plot:
    """Return everything that a benchmark has to draw, as one picture."""
    maps = [HeatMapPlot(heat_map) for heat_map in pictures.maps]
    return Column([SpeedBarsPlot(pictures.bars), *maps] if pictures.bars.groups or not maps else maps)


def check_picture_name(path: Path) -> None:
    """Refuse a name whose ending is not that of a picture.

    Raises:
        InvalidSettingError: If it is not one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png, .svg or .pdf.")


def save_picture(plot: Plot, path: Path) -> None:
    """Draw a picture into a file, in light colours, as on paper. The file is whole or as it was before.

    Needs a QGuiApplication.

    Raises:
        InvalidSettingError: If the name does not end in .png, .svg or .pdf.
        StorageError: If the file cannot be written.
    """
    check_picture_name(path)
    style = PlotStyle(LIGHT, LIGHT_PLOT, QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family())
    size = QSizeF(_WIDTH, plot.height(style) + 2 * _MARGIN)
    file = QSaveFile(str(path))
    written = file.open(QIODevice.OpenModeFlag.WriteOnly)
    if written:
        draw = {".png": _draw_png, ".svg": _draw_svg, ".pdf": _draw_pdf}[path.suffix.lower()]
        draw(plot, file, size, style)
        written = file.commit()
    if not written:
        reason = file.errorString()
        raise StorageError(f"The picture {path} cannot be written: {reason}.", "Choose another place.")


def save_without_window(pictures: Pictures, paths: Sequence[Path]) -> None:
    """Draw pictures into files where there is no window, nor a display to open one on.

    Raises:
        RdchatError: As `save_picture` does.
    """
    app = QGuiApplication.instance() or QGuiApplication(["rdchat", "-platform", "offscreen"])  # fonts need one
    for path in paths:
        save_picture(plot_of(pictures), path)
    del app


def _draw_png(plot: Plot, file: QSaveFile, size: QSizeF, style: PlotStyle) -> None:
    image = QImage((size * _PNG_SCALE).toSize(), QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(_PNG_SCALE)
    _paint(plot, image, size, style)
    QImageWriter(file, b"png").write(image)


def _draw_svg(plot: Plot, file: QSaveFile, size: QSizeF, style: PlotStyle) -> None:
    generator = QSvgGenerator()
    generator.setOutputDevice(file)
    generator.setResolution(96)  # units are CSS pixels
    generator.setSize(size.toSize())
    generator.setViewBox(QRect(0, 0, generator.size().width(), generator.size().height()))
    generator.setTitle("rdchat benchmark")
    generator.setDescription(plot.words)
    _paint(plot, generator, size, style)


def _draw_pdf(plot: Plot, file: QSaveFile, size: QSizeF, style: PlotStyle) -> None:
    writer = QPdfWriter(file)
    writer.setResolution(72)  # units are points
    writer.setPageSize(QPageSize(size, QPageSize.Unit.Point))
    writer.setPageMargins(QMarginsF())
    writer.setTitle("rdchat benchmark")
    _paint(plot, writer, size, style)


def _paint(plot: Plot, device: QPaintDevice, size: QSizeF, style: PlotStyle) -> None:
    painter = QPainter(device)
    page = QRectF(0, 0, size.width(), size.height())
    painter.fillRect(page, style.colors.surface)
    plot.paint(painter, page.adjusted(_MARGIN, _MARGIN, -_MARGIN, -_MARGIN), style)
    painter.end()  # before the file is closed: what follows must not be lost
