"""Speed-up of the drafter head over beam width x beam length, as a table of coloured cells."""

from math import ceil, floor

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QLinearGradient, QPainter, QPen

from rdchat.inference.benchmark.pictures import HeatMap
from rdchat.ui.look.formatting import ratio
from rdchat.ui.plots.plot import (
    Mark,
    PlotStyle,
    heading_height,
    ink_on,
    paint_heading,
    paint_text,
)

_CELL_HEIGHT, _WIDEST_CELL = 44.0, 92.0
_NAMES, _LEGEND, _LEGEND_WIDTH = 24.0, 44.0, 240.0
_INSET = 1.5  # between cells
_BEST_LINE = 2.5


class HeatMapPlot:
    """Rows are beam widths, columns beam lengths. Each cell says its value; the best one is framed and says so too."""

    def __init__(self, heat_map: HeatMap) -> None:
        self._map = heat_map
        speeds = heat_map.values.values()
        self._fastest = max((max(speed, 1 / speed) for speed in speeds if speed > 0), default=1.0)
        best = heat_map.best
        self._title = f"Speed-up by beam, {heat_map.dtype}"
        self._reference = heat_map.reference
        self._lines = ("Rows: beam width W. Columns: beam length L.", f"{self._reference} is 1x.")
        self._best_words = f"Best: {_pair(best)}, {ratio(heat_map.values[best])}." if best else "Nothing was measured."

    @property
    def words(self) -> str:
        cells = " ".join(self._cell_words(pair) for pair in self._pairs())
        return f"{self._title}. {self._reference} is 1x. {self._best_words} {cells}"

    def height(self, style: PlotStyle) -> float:
        cells = len(self._map.widths) * _CELL_HEIGHT
        return heading_height(len(self._lines)) + _NAMES + cells + _LEGEND

    def marks(self, area: QRectF, style: PlotStyle) -> list[Mark]:
        return [Mark(self.cell(pair, area, style), self._cell_words(pair)) for pair in self._pairs()]

    def paint(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        paint_heading(painter, area, style, self._title, self._lines)
        self._paint_names(painter, area, style)
        for pair in self._pairs():
            self._paint_cell(painter, pair, self.cell(pair, area, style), style)
        self._paint_legend(painter, area, style)

    def cell(self, pair: tuple[int, int], area: QRectF, style: PlotStyle) -> QRectF:
        """Return where the cell of (beam width, beam length) is."""
        left, top = self._corner(area, style)
        wide = floor(min((area.right() - left) / max(len(self._map.lengths), 1), _WIDEST_CELL))
        column, row = self._map.lengths.index(pair[1]), self._map.widths.index(pair[0])
        return QRectF(left + column * wide, top + row * _CELL_HEIGHT, wide, _CELL_HEIGHT)

    def _pairs(self) -> list[tuple[int, int]]:
        return [(width, length) for width in self._map.widths for length in self._map.lengths]

    def _cell_words(self, pair: tuple[int, int]) -> str:
        value = self._map.values.get(pair)
        if value is None:
            return f"{_pair(pair)}: not measured."
        best = " This is the best." if pair == self._map.best else ""
        return f"{_pair(pair)}: {ratio(value)}.{best}"

    def _corner(self, area: QRectF, style: PlotStyle) -> tuple[float, float]:
        names = max((style.width_of(f"W {width}") for width in self._map.widths), default=0.0)
        return ceil(area.left() + names + 12), area.top() + heading_height(len(self._lines)) + _NAMES

    def _paint_names(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        left, top = self._corner(area, style)
        if not self._pairs():
            return
        for width in self._map.widths:
            cell = self.cell((width, self._map.lengths[0]), area, style)
            place = QRectF(area.left(), cell.top(), left - area.left() - 8, cell.height())
            paint_text(painter, place, style, f"W {width}", color="muted", align=Qt.AlignmentFlag.AlignRight)
        for length in self._map.lengths:
            cell = self.cell((self._map.widths[0], length), area, style)
            place = QRectF(cell.left(), top - _NAMES, cell.width(), _NAMES)
            paint_text(painter, place, style, f"L {length}", color="muted", align=Qt.AlignmentFlag.AlignHCenter)

    def _paint_cell(self, painter: QPainter, pair: tuple[int, int], cell: QRectF, style: PlotStyle) -> None:
        inside = cell.adjusted(_INSET, _INSET, -_INSET, -_INSET)
        value = self._map.values.get(pair)
        if value is None:
            painter.setPen(QPen(style.colors.border, 1, Qt.PenStyle.DashLine))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(inside)
            paint_text(painter, inside, style, "\N{EN DASH}", color="muted", align=Qt.AlignmentFlag.AlignHCenter)
            return
        ground = style.ground_of(value, self._fastest)
        best = pair == self._map.best
        painter.fillRect(inside, ground)
        painter.setPen(ink_on(ground))
        painter.setFont(style.font(bold=best))
        if not best:
            painter.drawText(inside, Qt.AlignmentFlag.AlignCenter, ratio(value))
            return
        upper, lower = inside.adjusted(0, 4, 0, -18), inside.adjusted(0, 22, 0, -5)
        painter.drawText(upper, Qt.AlignmentFlag.AlignCenter, ratio(value))
        painter.setFont(style.font(-2))
        painter.drawText(lower, Qt.AlignmentFlag.AlignCenter, "best")
        painter.setPen(QPen(style.colors.text, _BEST_LINE))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(inside.adjusted(0.5, 0.5, -0.5, -0.5))

    def _paint_legend(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        left, _ = self._corner(area, style)
        bar = QRectF(left + _INSET, area.bottom() - _LEGEND + 12, min(_LEGEND_WIDTH, area.right() - left), 10)
        ends = QLinearGradient(QPointF(bar.left(), 0), QPointF(bar.right(), 0))
        for share, color in ((0, style.plot.slower), (0.5, style.plot.neutral), (1, style.plot.faster)):
            ends.setColorAt(share, color)
        painter.fillRect(bar, ends)
        painter.setPen(QPen(style.colors.border, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(bar)
        place = QRectF(bar.left(), bar.bottom() + 3, bar.width(), 18)
        for words, align in (
            ("slower", Qt.AlignmentFlag.AlignLeft),
            ("1x", Qt.AlignmentFlag.AlignHCenter),
            ("faster", Qt.AlignmentFlag.AlignRight),
        ):
            paint_text(painter, place, style, words, color="muted", more=-2, align=align)


def _pair(pair: tuple[int, int]) -> str:
    return f"W {pair[0]}, L {pair[1]}"
