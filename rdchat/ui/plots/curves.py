"""Curves over a training: shares or figures as they were measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF

from rdchat.ui.look.formatting import percent
from rdchat.ui.plots.plot import Mark, PlotStyle, heading_height, paint_heading, paint_text

_HEIGHT, _AXIS, _LEFT = 150.0, 22.0, 44.0
_FAINTEST = 90  # of 255
_TICKS = 4
_NAME_WIDTH, _NAME_HEIGHT = 78.0, 12.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one curve: where in the training, from 0 to 1, and what was measured there."""

    name: str
    points: tuple[tuple[float, float], ...]


class CurvesPlot:
    """Curves in one frame, the first one strongest; the horizontal axis is the whole training.

    Args:
        title: Above it.
        line: Smaller, below the title.
        curves: What is drawn; one without points is left out.
        shares: Whether values are shares, from 0 to 1; else they are figures from 0 on.
    """

    def __init__(self, title: str, line: str, curves: Sequence[Curve], *, shares: bool) -> None:
        self._title, self._line, self._shares = title, line, shares
        self._curves = tuple(curve for curve in curves if curve.points)
        highest = max((value for curve in self._curves for _, value in curve.points), default=0.0)
        self._top = _top(highest, shares)

    @property
    def words(self) -> str:
        ends = [f"{curve.name} {self._value(curve.points[-1][1])}" for curve in self._curves]
        return f"{self._title}. {'; '.join(ends) or 'Nothing was measured yet'}."

    def height(self, style: PlotStyle) -> float:
        return heading_height(1) + _HEIGHT + _AXIS

    def marks(self, area: QRectF, style: PlotStyle) -> list[Mark]:
        """Return a strip for each moment of the first curve, with all that was measured there."""
        if not self._curves:
            return []
        frame = self._frame(area)
        xs = [frame.left() + x * frame.width() for x, _ in self._curves[0].points]
        edges = [frame.left(), *((one + other) / 2 for one, other in pairwise(xs)), frame.right()]
        return [
            Mark(QRectF(left, frame.top(), max(right - left, 1.0), frame.height()), self._words_at(x))
            for (left, right), (x, _) in zip(pairwise(edges), self._curves[0].points, strict=True)
        ]

    def paint(self, painter: QPainter, area: QRectF, style: PlotStyle) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        paint_heading(painter, area, style, self._title, [self._line])
        frame = self._frame(area)
        self._paint_axes(painter, frame, style)
        for place, curve in enumerate(self._curves):
            ink = QColor(style.plot.faster)
            ink.setAlpha(max(255 - 55 * place, _FAINTEST))
            painter.setPen(QPen(ink, 2.2 if place == 0 else 1.4))
            dots = [self._dot(point, frame) for point in curve.points]
            if len(dots) > 1:
                painter.drawPolyline(QPolygonF(dots))
            painter.setBrush(ink)
            painter.drawEllipse(dots[-1], 2.5, 2.5)
            painter.setBrush(Qt.BrushStyle.NoBrush)
        if len(self._curves) > 1:
            self._paint_names(painter, frame, style)

    def _paint_axes(self, painter: QPainter, frame: QRectF, style: PlotStyle) -> None:
        for number in range(_TICKS + 1):
            value = self._top * number / _TICKS
            y = frame.bottom() - frame.height() * number / _TICKS
            painter.setPen(QPen(style.colors.border, 1))
            painter.drawLine(QLineF(frame.left(), y, frame.right(), y))
            place = QRectF(frame.left() - _LEFT, y - 9, _LEFT - 8, 18)
            right = Qt.AlignmentFlag.AlignRight
            paint_text(painter, place, style, self._value(value), color="muted", more=-2, align=right)
        for share, words, align in (
            (0.0, "start", Qt.AlignmentFlag.AlignLeft),
            (1.0, "end", Qt.AlignmentFlag.AlignRight),
        ):
            x = frame.left() + share * (frame.width() - 60)
            place = QRectF(x, frame.bottom() + 3, 60, _AXIS - 4)
            paint_text(painter, place, style, words, color="muted", more=-2, align=align)

    def _paint_names(self, painter: QPainter, frame: QRectF, style: PlotStyle) -> None:
        """Write the name of each curve beside its end, as far as they do not touch."""
        taken: list[float] = []
        for curve in self._curves:
            end = self._dot(curve.points[-1], frame)
            if any(abs(end.y() - y) < _NAME_HEIGHT for y in taken):
                continue
            taken.append(end.y())
            after = end.x() + _NAME_WIDTH <= frame.right()
            left = end.x() + 8 if after else end.x() - _NAME_WIDTH
            align = Qt.AlignmentFlag.AlignLeft if after else Qt.AlignmentFlag.AlignRight
            area = QRectF(left, end.y() - (8 if after else 20), _NAME_WIDTH - 8, 16)
            paint_text(painter, area, style, curve.name, color="muted", more=-2, align=align)

    def _frame(self, area: QRectF) -> QRectF:
        return area.adjusted(_LEFT, heading_height(1) + 4, -4, -_AXIS)

    def _dot(self, point: tuple[float, float], frame: QRectF) -> QPointF:
        x, y = point
        return QPointF(frame.left() + x * frame.width(), frame.bottom() - y / self._top * frame.height())

    def _words_at(self, x: float) -> str:
        here = [(curve.name, value) for curve in self._curves for at, value in curve.points if at == x]
        values = ", ".join(f"{name} {self._value(value)}" for name, value in here)
        return f"{percent(x)} of the training: {values}."

    def _value(self, value: float) -> str:
        return percent(value) if self._shares else f"{value:.1f}"


def _top(highest: float, shares: bool) -> float:
    """Return the end of the axis: a round value above all."""
    if shares:
        return min(max(ceil(highest * 5) / 5, 0.2), 1.0)
    return float(max(ceil(highest), 1))
