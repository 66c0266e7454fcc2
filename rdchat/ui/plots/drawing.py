"""A picture painted with Qt: lines, areas and texts from the top down, in pixels, and parts with a tooltip.

Plots are saved as PNG or PDF files too, without a display.
"""

from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import NamedTuple, Protocol

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

from rdchat.errors import InvalidSettingError
from rdchat.files.atomic_file import atomic_file
from rdchat.ui.style.theme import ALIGNMENTS, LIGHT, Colors

PICTURE_TYPES = (".png", ".pdf")
_WIDTH = 672.0
_MARGIN = 24.0
_PNG_SCALE = 2
_TITLE_HEIGHT = 22.0
_LINE_HEIGHT = 18.0
# Distance between pictures.
_GAP = 28.0
# Range that gets the strongest colours, at least, so that noise around 1 does not.
_MIN_RANGE = 1.25
# Lengths of dash and gap, in widths of the line.
DASHED = (4.0, 2.0)


class Mark(NamedTuple):
    """A part of a picture with a tooltip."""

    box: QRectF
    text: str


class Drawing:
    """A picture that plots add to. Colours are names of `Colors`, or colours as Qt reads them.

    Args:
        width: Plots fill it.
        colors: The colours of the appearance.
        font: The font of all texts; sizes are chosen here.
        painter: Paints the picture. None: the picture is only measured.

    Attributes:
        height: Height so far; the next plot begins here.
        marks: Parts with a tooltip.
        SIZE: Font size of values and labels, in pixels.
        descriptions: A description of each plot for screen readers.
    """

    SIZE = 13

    def __init__(self, width: float, colors: Colors, font: QFont, painter: QPainter | None = None) -> None:
        self.width = width
        self.height = 0.0
        self.colors = colors
        self.marks: list[Mark] = []
        self.descriptions: list[str] = []
        self._font = font
        self._painter = painter
        if painter is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)

    def width_of(self, text: str, *, more: int = 0, bold: bool = False) -> float:
        """Return the width of a text; see `text`."""
        return QFontMetricsF(self._sized(more, bold)).horizontalAdvance(text)

    def heading(self, title: str, *lines: str) -> None:
        """Begin a plot with a title and smaller lines below it; `height` is then the top of the plot."""
        top = self.height + (_GAP if self.descriptions else 0)
        self.write_text(QRectF(0, top, self.width, _TITLE_HEIGHT), title, more=2, bold=True)
        top += _TITLE_HEIGHT
        for line in lines:
            self.write_text(QRectF(0, top, self.width, _LINE_HEIGHT), line, "muted", more=-1)
            top += _LINE_HEIGHT
        self.height = top + 8

    def write_text(
        self, box: QRectF, text: str, color: str = "text", *, more: int = 0, bold: bool = False, align: str = "left"
    ) -> None:
        """Write one line, cut with an ellipsis where it does not fit.

        Args:
            box: The text is centred vertically in it.
            text: One line.
            color: The colour.
            more: Added to the font size `SIZE`, in pixels.
            bold: Whether the text is bold.
            align: `left`, `center` or `right`.
        """
        if self._painter is not None:
            font = self._sized(more, bold)
            elided = QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width() + 1)
            self._painter.setFont(font)
            self._painter.setPen(self._color(color))
            self._painter.drawText(box, ALIGNMENTS[align] | Qt.AlignmentFlag.AlignVCenter, elided)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str = "border",
        width: float = 1.0,
        dashes: Sequence[float] = (),
    ) -> None:
        """Draw a line through points; `dashes` are lengths of dash and gap, in widths of the line."""
        if self._painter is not None:
            self._set_pen(color, width, dashes)
            self._painter.drawPolyline(_polygon(points))

    def area(
        self,
        box: QRectF,
        fill: str = "",
        color: str = "",
        width: float = 1.0,
        dashes: Sequence[float] = (),
        *,
        opacity: float = 1.0,
        radius: float = 0.0,
    ) -> None:
        """Draw a rectangle, filled or framed or both, perhaps with round corners."""
        if self._painter is not None:
            self._set_pen(color, width, dashes)
            self._set_brush(fill, opacity)
            self._painter.drawRoundedRect(box, radius, radius)

    def polygon(self, points: Sequence[tuple[float, float]], fill: str, opacity: float = 1.0) -> None:
        """Fill the area between points."""
        if self._painter is not None:
            self._set_pen("", 1.0, ())
            self._set_brush(fill, opacity)
            self._painter.drawPolygon(_polygon(points))

    def fade(self, opacity: float) -> None:
        """Draw what follows with an opacity from 0 to 1."""
        if self._painter is not None:
            self._painter.setOpacity(opacity)

    def add_tooltip(self, box: QRectF, text: str) -> None:
        """Give a part of the picture a tooltip."""
        self.marks.append(Mark(box, text))

    def _set_pen(self, color: str, width: float, dashes: Sequence[float]) -> None:
        assert self._painter is not None, "a picture that is only measured needs no pen"
        pen = QPen(self._color(color), width)
        if dashes:
            pen.setDashPattern(dashes)
            pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        self._painter.setPen(pen if color else Qt.PenStyle.NoPen)

    def _set_brush(self, fill: str, opacity: float) -> None:
        assert self._painter is not None, "a picture that is only measured needs no brush"
        color = self._color(fill)
        color.setAlphaF(opacity)
        self._painter.setBrush(color if fill else Qt.BrushStyle.NoBrush)

    def _color(self, name: str) -> QColor:
        return QColor(getattr(self.colors, name, name))

    def _sized(self, more: int, bold: bool) -> QFont:
        font = QFont(self._font)
        font.setPixelSize(self.SIZE + more)
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
        return font


class Plot(Protocol):
    """Adds itself below the earlier plots of a drawing."""

    def draw_plot(self, drawing: Drawing) -> None: ...


def speed_color(colors: Colors, speed_up: float, fastest: float) -> str:
    """Return the colour of a speed-up: neutral at 1, orange below, blue above, stronger the further it is from 1.

    Args:
        colors: The colours of the appearance.
        speed_up: Above 0.
        fastest: The speed-up, or slow-down as its inverse, that gets the strongest colour.
    """
    return shade(colors, log2(speed_up) / log2(max(fastest, _MIN_RANGE)))


def shade(colors: Colors, share: float) -> str:
    """Return the colour from -1, the slowest, to 1, the fastest."""
    end = colors.faster if share > 0 else colors.slower
    share = min(abs(share), 1.0)
    pairs = zip(colors.neutral.getRgb()[:3], end.getRgb()[:3], strict=True)  # type: ignore[index]  # it is a tuple
    return QColor(*(round(one + (other - one) * share) for one, other in pairs)).name()


def ink_on(ground: str) -> str:
    """Return black or white, whichever has the higher contrast: one of them always has at least 4.5 to 1."""
    return "#000000" if luminance(ground) > 0.179 else "#ffffff"


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2, from 0 to 1."""
    shares = (share / 255 for share in (QColor(color).red(), QColor(color).green(), QColor(color).blue()))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _polygon(points: Sequence[tuple[float, float]]) -> QPolygonF:
    return QPolygonF([QPointF(x, y) for x, y in points])


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
        plot.draw_plot(drawing)
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
