"""Paints drawings with Qt, in a window or as PNG and PDF files."""

from collections.abc import Callable

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QGuiApplication,
    QImage,
    QImageWriter,
    QPageSize,
    QPainter,
    QPdfWriter,
    QPen,
    QPolygonF,
)

from rdchat.ui.plots.drawing import Drawing, Measure, Shape, Text

_PNG_SCALE = 2
_ALIGNMENTS = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}


def measure_in(font: QFont) -> Measure:
    """Return a function that measures texts in a font."""
    return lambda text, size, bold: QFontMetricsF(_sized(font, size, bold)).horizontalAdvance(text)


def paint(painter: QPainter, drawing: Drawing, font: QFont) -> None:
    """Paint a drawing; its units are the painter's, so that every device shows the same picture."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            painter.setFont(_sized(font, shape.size, shape.bold))
            painter.setPen(QColor(shape.color))
            painter.drawText(QRectF(*shape.box), _ALIGNMENTS[shape.align] | Qt.AlignmentFlag.AlignVCenter, shape.text)
        else:
            _paint_shape(painter, shape)


def as_file(kind: str, draw: Callable[[Measure], Drawing], margin: float) -> bytes:
    """Return a drawing as a `.png` or `.pdf` file; this works without a window or display too.

    Args:
        kind: `.png` or `.pdf`.
        draw: Makes the drawing, given a function that measures texts.
        margin: Around the drawing, in pixels.
    """
    app = QGuiApplication.instance() or QGuiApplication(["rdchat", "-platform", "offscreen"])  # fonts need one
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    drawing = draw(measure_in(font))
    size = QSizeF(drawing.width + 2 * margin, drawing.height + 2 * margin)
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    device: QImage | QPdfWriter
    if kind == ".png":
        device = QImage((size * _PNG_SCALE).toSize(), QImage.Format.Format_RGB32)
        device.setDevicePixelRatio(_PNG_SCALE)
    else:
        device = QPdfWriter(buffer)
        device.setResolution(72)  # units are points
        device.setPageSize(QPageSize(size, QPageSize.Unit.Point))
        device.setPageMargins(QMarginsF())
        device.setTitle("rdchat benchmark")
    painter = QPainter(device)
    painter.fillRect(QRectF(QPointF(), size), QColor(drawing.palette.surface))
    painter.translate(margin, margin)
    paint(painter, drawing, font)
    painter.end()  # before the content is taken: what follows must not be lost
    if isinstance(device, QImage):
        QImageWriter(buffer, b"png").write(device)
    del app
    return bytes(content.data())


def _paint_shape(painter: QPainter, shape: Shape) -> None:
    pen = QPen(QColor(shape.color), shape.width)
    if shape.dashes:
        pen.setDashPattern(shape.dashes)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    painter.setPen(pen if shape.color else Qt.PenStyle.NoPen)
    painter.setBrush(QColor(shape.fill) if shape.fill else Qt.BrushStyle.NoBrush)
    polygon = QPolygonF([QPointF(x, y) for x, y in shape.points])
    if shape.closed:
        painter.drawPolygon(polygon)
    else:
        painter.drawPolyline(polygon)


def _sized(font: QFont, size: int, bold: bool) -> QFont:
    font = QFont(font)
    font.setPixelSize(size)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return font
