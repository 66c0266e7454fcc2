"""Curves in one frame: measurements over a training."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from PySide6.QtCore import QRectF

from rdchat.ui.plots.drawing import Drawing, shade
from rdchat.ui.style.formatting import percent

_HEIGHT = 150.0
_AXIS = 22.0
_LEFT = 44.0
_TICKS = 4
_NAME_WIDTH = 86.0
_NAME_HEIGHT = 12.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one curve: fraction of the training from 0 to 1, and the measured value."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class CurvesPlot:
    """Curves in one frame; one without points is left out.

    Attributes:
        line: A smaller line below the title.
        shares: Whether values are shares, from 0 to 1; else they are figures from 0 on.
    """

    title: str
    line: str
    curves: Sequence[Curve]
    shares: bool

    def draw_plot(self, drawing: Drawing) -> None:
        """See `Plot`. The tooltip at each point of the first curve lists all that was measured there."""
        drawing.heading(self.title, *([self.line] if self.line else ()))
        curves = [curve for curve in self.curves if curve.points]
        names = _NAME_WIDTH if len(curves) > 1 else 4.0
        frame = QRectF(_LEFT, drawing.height + 4, drawing.width - _LEFT - names, _HEIGHT - 4)
        top = self._top(max((value for curve in curves for _, value in curve.points), default=0.0))
        dots = [[_dot(point, frame, top) for point in curve.points] for curve in curves]
        self._draw_axes(drawing, frame, top)
        names_at: list[tuple[float, str]] = []
        for index, (curve, own) in enumerate(zip(curves, dots, strict=True)):
            color = shade(drawing.colors, max(1 - 0.2 * index, 0.35))  # The first one is the strongest.
            drawing.line(own, color, 1.4 if index else 2.2)
            drawing.area(QRectF(own[-1][0] - 2, own[-1][1] - 2, 4, 4), color)
            names_at.append((own[-1][1], curve.name))
        below = 0.0
        for y, name in sorted(names_at) if len(names_at) > 1 else ():
            below = max(y - 8, below)
            drawing.write_text(QRectF(frame.right() + 8, below, names - 8, 16), name, "muted", more=-2)
            below += _NAME_HEIGHT
        if curves:
            xs = [x for x, _ in dots[0]]
            edges = [frame.x(), *((one + other) / 2 for one, other in pairwise(xs)), frame.right()]
            for (left, right), (x, _) in zip(pairwise(edges), curves[0].points, strict=True):
                here = [f"{each.name} {self._value(y)}" for each in curves for at, y in each.points if at == x]
                strip = QRectF(left, frame.y(), max(right - left, 1.0), frame.height())
                drawing.add_tooltip(strip, f"{percent(x)} of the training: {', '.join(here)}.")
        ends = "; ".join(f"{curve.name} {self._value(curve.points[-1][1])}" for curve in curves)
        drawing.descriptions.append(f"{self.title}. {ends or 'Nothing was measured yet'}.")
        drawing.height += _HEIGHT + _AXIS

    def _draw_axes(self, drawing: Drawing, frame: QRectF, top: float) -> None:
        for number in range(_TICKS + 1):
            y = frame.y() + frame.height() * (1 - number / _TICKS)
            drawing.line([(frame.x(), y), (frame.right(), y)])
            box = QRectF(0, y - 9, _LEFT - 8, 18)
            drawing.write_text(box, self._value(top * number / _TICKS), "muted", more=-2, align="right")
        for x, text, align in ((frame.x(), "start", "left"), (frame.right() - 60, "end", "right")):
            drawing.write_text(
                QRectF(x, frame.y() + frame.height() + 3, 60, _AXIS - 4), text, "muted", more=-2, align=align
            )

    def _value(self, value: float) -> str:
        return percent(value) if self.shares else f"{value:.1f}"

    def _top(self, highest: float) -> float:
        """Return the end of the vertical axis: a round value above all."""
        return min(max(ceil(highest * 5) / 5, 0.2), 1.0) if self.shares else float(max(ceil(highest), 1))


def _dot(point: tuple[float, float], frame: QRectF, top: float) -> tuple[float, float]:
    x, y = point
    return frame.x() + x * frame.width(), frame.y() + frame.height() * (1 - y / top)
