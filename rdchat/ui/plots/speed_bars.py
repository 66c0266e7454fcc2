"""Speed-up over plain decoding as bars, precision by precision."""

from dataclasses import dataclass

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from rdchat.inference.api.bench_results import Figure
from rdchat.inference.benchmark.pictures import SpeedBars
from rdchat.ui.look.formatting import ratio
from rdchat.ui.plots.plot import Mark, PlotStyle, heading_height, paint_heading, paint_text

_TITLE = "Speed-up over plain decoding"
_LINES = ("Median for each setting.", "The thin line spans the middle half of the values.")
_ROW, _BAR, _GROUP, _AXIS = 28.0, 16.0, 26.0, 26.0
_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_TICK_ROOM, _PLAIN_ROOM = 40.0, 48.0  # least distance of two ticks, and of a tick from the words at 1


@dataclass(frozen=True, slots=True)
class _Row:
    dtype: str
    label: str
    figure: Figure
    band: QRectF  # the whole width of the picture

    @property
    def words(self) -> str:
        figure = self.figure
        spread = f"Half of the {figure.n} values lie from {figure.low:.2f} to {figure.high:.2f}."
        found = f"{self.label}, {self.dtype}: {ratio(figure.median)} plain decoding."
        return f"{found} {spread if figure.n > 1 else 'One value.'}"


class SpeedBarsPlot:
    """Horizontal bars, which leave room for the names of settings; a line at 1 is plain decoding.

    What is slower than plain decoding ends before that line and is orange, what is faster crosses it and is blue.
    """

    def __init__(self, bars: SpeedBars) -> None:
        self._groups = bars.groups
        figures = [figure for _, rows in bars.groups for _, figure in rows]
        self._top = max([1.0, *(figure.high for figure in figures), *(figure.median for figure in figures)])

    @property
    def words(self) -> str:
        rows = self._rows(QRectF())
        return f"{_TITLE}. {' '.join(row.words for row in rows) or 'Nothing was measured.'}"

    def height(self, style: PlotStyle) -> float:
        rows = sum(len(rows) for _, rows in self._groups)
        return heading_height(len(_LINES)) + len(self._groups) * _GROUP + rows * _ROW + _AXIS

    def marks(self, area: QRectF, style: PlotStyle) -> list[Mark]:
        return [Mark(row.band, row.words) for row in self._rows(area)]

    def paint(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        paint_heading(painter, area, style, _TITLE, _LINES)
        rows = self._rows(area)
        bars = self.bar_area(area, style)
        self._paint_axis(painter, bars, style)
        for row in rows:
            self._paint_bar(painter, row, bars, style)
        x = self.x_of(1.0, bars)
        painter.setPen(QPen(style.colors.text, 1.2, Qt.PenStyle.DashLine))
        painter.drawLine(QLineF(x, bars.top(), x, bars.bottom()))
        for row in rows:
            self._paint_words(painter, row, bars, style)
        self._paint_group_names(painter, rows, style)

    def bar_area(self, area: QRectF, style: PlotStyle) -> QRectF:
        """Return where the bars are, between their names and the room for the last one's value."""
        names = [label for _, rows in self._groups for label, _ in rows]
        left = min(max((style.width_of(name) for name in names), default=0.0), area.width() * 0.4) + 12
        right = style.width_of(ratio(self._top), bold=True) + 12
        top = area.top() + heading_height(len(_LINES))
        return QRectF(area.left() + left, top, max(area.width() - left - right, 1.0), area.bottom() - _AXIS - top)

    def x_of(self, speed_up: float, bars: QRectF) -> float:
        return bars.left() + speed_up / self._top * bars.width()

    def _rows(self, area: QRectF) -> list[_Row]:
        rows, top = [], area.top() + heading_height(len(_LINES))
        for dtype, bars in self._groups:
            top += _GROUP
            for label, figure in bars:
                rows.append(_Row(dtype, label, figure, QRectF(area.left(), top, area.width(), _ROW)))
                top += _ROW
        return rows

    def _paint_axis(self, painter: QPainter, bars: QRectF, style: PlotStyle) -> None:
        unit = self.x_of(1.0, bars) - bars.left()
        step = next((step for step in _STEPS if step * unit >= _TICK_ROOM), _STEPS[-1])
        ticks = {number * step for number in range(int(self._top / step) + 1)} | {1.0}
        for tick in sorted(ticks):
            if tick != 1 and abs(tick - 1) * unit < _PLAIN_ROOM:
                continue
            x = self.x_of(tick, bars)
            painter.setPen(QPen(style.colors.border, 1))
            painter.drawLine(QLineF(x, bars.top(), x, bars.bottom()))
            words = "1x plain" if tick == 1 else f"{tick:g}x"
            place = QRectF(x - 40, bars.bottom() + 4, 80, _AXIS - 6)
            paint_text(painter, place, style, words, color="muted", more=-2, align=Qt.AlignmentFlag.AlignHCenter)

    def _paint_bar(self, painter: QPainter, row: _Row, bars: QRectF, style: PlotStyle) -> None:
        figure, band = row.figure, row.band
        middle, end = band.center().y(), self.x_of(figure.median, bars)
        color = style.plot.faster if figure.median >= 1 else style.plot.slower
        painter.fillRect(QRectF(bars.left(), middle - _BAR / 2, end - bars.left(), _BAR), color)
        low, high = self.x_of(figure.low, bars), self.x_of(figure.high, bars)
        whisker = [QLineF(low, middle, high, middle)]
        whisker += [QLineF(x, middle - 4, x, middle + 4) for x in (low, high)]
        for pen in (QPen(style.colors.surface, 3.6), QPen(style.colors.text, 1.2)):  # seen on bar and ground alike
            painter.setPen(pen)
            if figure.n > 1:
                painter.drawLines(whisker)

    def _paint_words(self, painter: QPainter, row: _Row, bars: QRectF, style: PlotStyle) -> None:
        band, end = row.band, self.x_of(max(row.figure.median, row.figure.high), bars)
        name = QRectF(band.left(), band.top(), bars.left() - band.left() - 12, band.height())
        paint_text(painter, name, style, row.label, align=Qt.AlignmentFlag.AlignRight)
        value = ratio(row.figure.median)
        place = QRectF(end + 5, band.center().y() - 9, style.width_of(value, bold=True) + 6, 18)
        painter.fillRect(place, style.colors.surface)  # where the line at 1 would run through it
        painter.setFont(style.font(bold=True))
        painter.setPen(style.colors.text)
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, value)

    def _paint_group_names(self, painter: QPainter, rows: list[_Row], style: PlotStyle) -> None:
        named = ""
        for row in rows:
            if row.dtype != named:
                named = row.dtype
                painter.setFont(style.font(bold=True))
                painter.setPen(style.colors.text)
                place = row.band.translated(0, -_GROUP)
                place.setHeight(_GROUP)
                painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, named)
