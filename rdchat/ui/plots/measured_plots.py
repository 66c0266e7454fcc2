"""The plots of what was measured: `SpeedBars` of a benchmark, `CurvesPlot` of a training.

A speed-up divides the speed of a run by that of plain decoding in the same turn: the same prompt and trial, at the same
precision and temperature.

Each plot draws itself from the top down: `Drawing.height` is what is drawn so far, where the next part begins. Lengths
are pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor

from rdchat.inference.api import MLX_LM, BenchResult, Figure, speed_ratio
from rdchat.ui.plots.drawing import DASHED, Drawing
from rdchat.ui.style import Colors, percent, ratio

Bars = tuple[tuple[str, Figure], ...]
"""The name and the speed-up over plain decoding of each bar."""

TITLE = "Speed-up over plain decoding"
LINES = ("Median of each setting.", "The thin line spans the middle half of the values.")
# Of the bars: heights of a row, of the bar in it, and of the axis below.
_ROW = 28.0
_BAR = 16.0
_AXIS = 26.0
# Distances between the axis's ticks, as speed-ups, and the least ones in pixels: between two ticks, and from a tick to
# the label at 1.
_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_TICK_ROOM = 40.0
_PLAIN_ROOM = 48.0
# Of the curves: the frame's height, the room of the two axes and the number of ticks, and the curves' names beside it.
_HEIGHT = 150.0
_CURVES_AXIS = 22.0
_LEFT = 44.0
_TICKS = 4
_NAME_WIDTH = 86.0
_NAME_HEIGHT = 12.0


@dataclass(frozen=True, slots=True)
class SpeedBars:
    """Speed-ups as horizontal bars; a line at 1 is plain decoding.

    Slower settings end before that line and are orange, faster ones cross it and are blue.
    """

    bars: Bars

    def draw_plot(self, drawing: Drawing) -> None:
        drawing.heading(TITLE, *LINES)
        fastest = max([1.0, *(max(figure.high, figure.median) for _, figure in self.bars)])
        widest = max((drawing.width_of(label) for label, _ in self.bars), default=0.0)
        left = min(widest, drawing.width * 0.4) + 12
        # Pixels of a speed-up of 1.
        unit = max(drawing.width - left - drawing.width_of(ratio(fastest), bold=True) - 12, 1.0) / fastest
        top = drawing.height
        bottom = top + len(self.bars) * _ROW
        rows = [
            (QRectF(0, top + number * _ROW, drawing.width, _ROW), label, figure)
            for number, (label, figure) in enumerate(self.bars)
        ]
        texts: list[str] = []
        _draw_axis(drawing, left, unit, fastest, (top, bottom))
        for row, label, figure in rows:
            _draw_bar(drawing, row, left, unit, figure)
            spread = f"Half of the {figure.n} values are between {figure.low:.2f} and {figure.high:.2f}."
            median = f"{label}: {ratio(figure.median)} plain decoding."
            texts.append(f"{median} {spread if figure.n > 1 else 'One value.'}")
            drawing.add_tooltip(row, texts[-1])
        # The line at 1 is above all bars, and the texts are above the line.
        drawing.line([(left + unit, top), (left + unit, bottom)], "text", 1.2, DASHED)
        for row, label, figure in rows:
            drawing.write_text(QRectF(0, row.y(), left - 12, _ROW), label, align="right")
            value = ratio(figure.median)
            end = left + unit * max(figure.median, figure.high)
            box = QRectF(end + 5, row.center().y() - 9, drawing.width_of(value, bold=True) + 6, 18)
            drawing.area(box, "surface")
            drawing.write_text(box, value, bold=True, align="center")
        drawing.height = bottom + _AXIS
        drawing.descriptions.append(f"{TITLE}. {' '.join(texts) or 'Nothing was measured.'}")


def _draw_axis(drawing: Drawing, left: float, unit: float, fastest: float, ends: tuple[float, float]) -> None:
    """Draw ticks at 0, at each step and at 1, from the first to the second of `ends`; none too near the label at 1.

    `left` is the place of 0, and `unit` the pixels of a speed-up of 1.
    """
    top, bottom = ends
    step = next((step for step in _STEPS if step * unit >= _TICK_ROOM), _STEPS[-1])
    for tick in sorted({number * step for number in range(int(fastest / step) + 1)} | {1.0}):
        if tick == 1 or abs(tick - 1) * unit >= _PLAIN_ROOM:
            x = left + tick * unit
            drawing.line([(x, top), (x, bottom)])
            text = "1x plain" if tick == 1 else f"{tick:g}x"
            drawing.write_text(QRectF(x - 40, bottom + 4, 80, _AXIS - 6), text, "muted", more=-2, align="center")


def _draw_bar(drawing: Drawing, row: QRectF, left: float, unit: float, figure: Figure) -> None:
    bar = QRectF(left, row.center().y() - _BAR / 2, figure.median * unit, _BAR)
    drawing.area(bar, "faster" if figure.median >= 1 else "slower")
    low = left + figure.low * unit
    high = left + figure.high * unit
    whisker = [((low, row.center().y()), (high, row.center().y()))]
    whisker += [((x, row.center().y() - 4), (x, row.center().y() + 4)) for x in (low, high)]
    for color, width in (("surface", 3.6), ("text", 1.2)):  # Visible on bar and ground alike.
        for line in whisker if figure.n > 1 else ():
            drawing.line(line, color, width)


def speed_bars(result: BenchResult) -> SpeedBars:
    """Return the plot of a benchmark: a bar for each setting and one for stock mlx-lm, the fastest first.

    There is a bar of mlx-lm for each precision and temperature. Its runs are compared with plain decoding in the same
    turn (the first of `runs_of_turn`), and its name is that of plain decoding there, with other words for the mode.
    """
    bars = [(report.name, figure) for report in result.reports if (figure := report.figures["ratio_to_plain"])]
    for index, plain in enumerate(result.plain_reports):
        runs = [run for run in result.runs if (run.cell, run.baseline) == (MLX_LM, index)]
        if figure := Figure.from_values(speed_ratio(run, result.runs_of_turn(run)[0]) for run in runs):
            bars.append((plain.name.replace(plain.cell.label, "mlx-lm, not drafting"), figure))
    return SpeedBars(tuple(sorted(bars, key=lambda bar: -bar[1].median)))


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
        """See `Plot`."""
        drawing.heading(self.title, *([self.line] if self.line else ()))
        curves = [curve for curve in self.curves if curve.points]
        has_names = len(curves) > 1
        right = drawing.width - (_NAME_WIDTH if has_names else 4.0)
        frame = QRectF(_LEFT, drawing.height + 4, right - _LEFT, _HEIGHT - 4)
        highest = max((value for curve in curves for _, value in curve.points), default=0.0)
        # The end of the vertical axis: a round value above all.
        top = min(max(ceil(highest * 5) / 5, 0.2), 1.0) if self.shares else float(max(ceil(highest), 1))
        self._draw_axes(drawing, frame, top)
        dots = [
            [(frame.x() + x * frame.width(), frame.y() + frame.height() * (1 - y / top)) for x, y in curve.points]
            for curve in curves
        ]
        for index, own in enumerate(dots):
            color = _curve_color(drawing.colors, index)
            drawing.line(own, color, 1.4 if index else 2.2)
            drawing.area(QRectF(own[-1][0] - 2, own[-1][1] - 2, 4, 4), color)
        if has_names:
            names = sorted((own[-1][1], curve.name) for own, curve in zip(dots, curves, strict=True))
            _write_names(drawing, right, names)
        if curves:
            self._add_tooltips(drawing, frame, curves, [x for x, _ in dots[0]])
        last = "; ".join(f"{curve.name} {self._value(curve.points[-1][1])}" for curve in curves)
        drawing.descriptions.append(f"{self.title}. {last or 'Nothing was measured yet'}.")
        drawing.height += _HEIGHT + _CURVES_AXIS

    def _add_tooltips(self, drawing: Drawing, frame: QRectF, curves: list[Curve], xs: list[float]) -> None:
        """Add a tooltip for each point of the first curve, which stand at `xs`: all that was measured there.

        It is shown in a strip of the frame, from the middle between two points to the next one.
        """
        edges = [frame.x(), *((one + other) / 2 for one, other in pairwise(xs)), frame.right()]
        for (left, right), (moment, _) in zip(pairwise(edges), curves[0].points, strict=True):
            here = [f"{each.name} {self._value(y)}" for each in curves for at, y in each.points if at == moment]
            strip = QRectF(left, frame.y(), max(right - left, 1.0), frame.height())
            drawing.add_tooltip(strip, f"{percent(moment)} of the training: {', '.join(here)}.")

    def _draw_axes(self, drawing: Drawing, frame: QRectF, top: float) -> None:
        for number in range(_TICKS + 1):
            y = frame.y() + frame.height() * (1 - number / _TICKS)
            drawing.line([(frame.x(), y), (frame.right(), y)])
            box = QRectF(0, y - 9, _LEFT - 8, 18)
            drawing.write_text(box, self._value(top * number / _TICKS), "muted", more=-2, align="right")
        for x, text, align in ((frame.x(), "start", "left"), (frame.right() - 60, "end", "right")):
            drawing.write_text(
                QRectF(x, frame.y() + frame.height() + 3, 60, _CURVES_AXIS - 4), text, "muted", more=-2, align=align
            )

    def _value(self, value: float) -> str:
        return percent(value) if self.shares else f"{value:.1f}"


def _write_names(drawing: Drawing, left: float, names: list[tuple[float, str]]) -> None:
    """Write the names of curves, from the top down: each at the height of its curve's end, or below the one above."""
    below = 0.0
    for end, name in names:
        below = max(end - 8, below)
        drawing.write_text(QRectF(left + 8, below, _NAME_WIDTH - 8, 16), name, "muted", more=-2)
        below += _NAME_HEIGHT


def _curve_color(colors: Colors, index: int) -> str:
    """Return the colour of a curve; the first one is the strongest."""
    share = max(1 - 0.2 * index, 0.35)
    pairs = zip(colors.neutral.getRgb()[:3], colors.faster.getRgb()[:3], strict=True)  # type: ignore[index]  # a tuple
    return QColor(*(round(one + (other - one) * share) for one, other in pairs)).name()
