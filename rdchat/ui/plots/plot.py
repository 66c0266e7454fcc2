"""What every picture can do, what it is drawn with, and several of them one below the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Protocol

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter

from rdchat.ui.look.theme import Colors, PlotColors

GAP = 28.0  # between pictures
_HEADING = 22.0
_SMALL_LINE = 18.0
_LEAST_RANGE = 1.25  # so that noise around 1 does not get the strongest colours


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """What a picture is drawn with. Sizes are in units of the painter, so that every device shows the same picture.

    Attributes:
        colors: Ground and text.
        plot: Colours of what is slower and faster than plain decoding.
        family: Family of the font.
        size: Its height in units, for values and labels.
    """

    colors: Colors
    plot: PlotColors
    family: str
    size: int = 13

    def font(self, more: int = 0, bold: bool = False) -> QFont:
        font = QFont(self.family)
        font.setPixelSize(self.size + more)
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
        return font

    def width_of(self, text: str, bold: bool = False) -> float:
        return QFontMetricsF(self.font(bold=bold)).horizontalAdvance(text)

    def ground_of(self, speed_up: float, fastest: float) -> QColor:
        """Return the colour of a speed-up: plain at 1, orange below, blue above, as strong as it is far from 1.

        Args:
            speed_up: Above 0.
            fastest: The speed-up, or slow-down as its inverse, that gets the strongest colour.
        """
        share = log2(speed_up) / log2(max(fastest, _LEAST_RANGE))
        end = self.plot.faster if share > 0 else self.plot.slower
        return _mixed(self.plot.neutral, end, min(abs(share), 1.0))


class Plot(Protocol):
    """A picture that fills a given width and says how high it then is."""

    def height(self, style: PlotStyle) -> float: ...

    def paint(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None: ...

    def marks(self, area: QRectF, style: PlotStyle) -> list["Mark"]:
        """Return the parts of the picture that have something to say."""

    @property
    def words(self) -> str:
        """What the picture shows, for who cannot see it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A part of a picture: where it is, and what a pointer on it is told."""

    area: QRectF
    words: str


class Column:
    """Pictures one below the other."""

    def __init__(self, plots: Sequence[Plot]) -> None:
        self._plots = tuple(plots)

    @property
    def words(self) -> str:
        return " ".join(plot.words for plot in self._plots)

    def height(self, style: PlotStyle) -> float:
        return sum(plot.height(style) for plot in self._plots) + GAP * max(len(self._plots) - 1, 0)

    def paint(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        for plot, part in self._parts(area, style):
            plot.paint(painter, part, style)

    def marks(self, area: QRectF, style: PlotStyle) -> list[Mark]:
        return [mark for plot, part in self._parts(area, style) for mark in plot.marks(part, style)]

    def _parts(self, area: QRectF, style: PlotStyle) -> list[tuple[Plot, QRectF]]:
        parts, top = [], area.top()
        for plot in self._plots:
            height = plot.height(style)
            parts.append((plot, QRectF(area.left(), top, area.width(), height)))
            top += height + GAP
        return parts


def heading_height(lines: int) -> float:
    """Return the height of a title with `lines` smaller lines below it."""
    return _HEADING + lines * _SMALL_LINE + 8


def paint_heading(painter: QPainter, area: QRectF, style: PlotStyle, title: str, lines: Sequence[str]) -> None:
    """Write a title and smaller lines at the top of `area`."""
    painter.setFont(style.font(2, bold=True))
    painter.setPen(style.colors.text)
    painter.drawText(QRectF(area.left(), area.top(), area.width(), _HEADING), Qt.AlignmentFlag.AlignVCenter, title)
    for number, line in enumerate(lines):
        place = QRectF(area.left(), area.top() + _HEADING + number * _SMALL_LINE, area.width(), _SMALL_LINE)
        paint_text(painter, place, style, line, color="muted", more=-1)


def paint_text(
    painter: QPainter,
    area: QRectF,
    style: PlotStyle,
    text: str,
    *,
    color: str = "text",
    more: int = 0,
    align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
) -> None:
    """Write one line, cut with an ellipsis where it does not fit; `color` names one of `Colors`."""
    font = style.font(more)
    painter.setFont(font)
    painter.setPen(getattr(style.colors, color))
    shown = QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, area.width() + 1)
    painter.drawText(area, align | Qt.AlignmentFlag.AlignVCenter, shown)


def ink_on(ground: QColor) -> QColor:
    """Return black or white, whichever stands out more: one of them always does by at least 4.5 to 1."""
    return QColor("#000000") if luminance(ground) > 0.179 else QColor("#ffffff")


def luminance(color: QColor) -> float:
    """Return the relative luminance of WCAG 2, from 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _parts(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _mixed(first: QColor, second: QColor, share: float) -> QColor:
    parts = (a + (b - a) * share for a, b in zip(_parts(first), _parts(second), strict=True))
    return QColor.fromRgbF(*parts)


def _parts(color: QColor) -> tuple[float, float, float]:
    return color.redF(), color.greenF(), color.blueF()
