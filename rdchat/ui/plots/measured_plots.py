"""The plots of what was measured: `SpeedBars` and `HeatMap` of a benchmark, `CurvesPlot` of a training.

A benchmark's baseline is plain decoding at one precision and temperature. Every speed-up divides a run's speed by that
of plain decoding in the same turn: the same prompt and trial. A shape is the beam width and length of a draft.

Each plot draws itself from the top down: `Drawing.height` is what is drawn so far, where the next part begins. Lengths
are pixels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

from PySide6.QtCore import QRectF

from rdchat.inference.api import MLX_LM, Mode, draft_size
from rdchat.inference.benchmark.result import BenchResult, CellReport, Figure, speed_ratio
from rdchat.ui.plots.drawing import DASHED, Drawing, Plot, ink_on, shade, speed_color
from rdchat.ui.style import percent, ratio
from rdchat.wording import counted

Bars = tuple[tuple[str, Figure], ...]
"""The name and the speed-up over plain decoding of each bar."""

TITLE = "Speed-up over plain decoding"
LINES = ("Median of each setting.", "The thin line spans the middle half of the values.")
MAP_LINES = ("Rows: beams. Columns: tokens per beam.", "Plain decoding is 1x.")
# Of the bars: heights of a row, of the bar in it, of the title of a group, and of the axis below.
_ROW = 28.0
_BAR = 16.0
_GROUP = 26.0
_AXIS = 26.0
# Distances between the axis's ticks, as speed-ups, and the least ones in pixels: between two ticks, and from a tick to
# the label at 1.
_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_TICK_ROOM = 40.0
_PLAIN_ROOM = 48.0
# Of the heat map. The inset is half the distance between cells.
_CELL_HEIGHT = 44.0
_WIDEST_CELL = 92.0
_COLUMN_NAMES = 24.0
_INSET = 1.5
# Of the curves: the frame's height, the room of the two axes and the number of ticks, and the curves' names beside it.
_HEIGHT = 150.0
_CURVES_AXIS = 22.0
_LEFT = 44.0
_TICKS = 4
_NAME_WIDTH = 86.0
_NAME_HEIGHT = 12.0


@dataclass(frozen=True, slots=True)
class SpeedBars:
    """Speed-ups as horizontal bars, in a group for each baseline; a line at 1 is plain decoding.

    Slower settings end before that line and are orange, faster ones cross it and are blue.

    Attributes:
        groups: Name and bars of each baseline.
    """

    groups: tuple[tuple[str, Bars], ...]

    def draw_plot(self, drawing: Drawing) -> None:
        drawing.heading(TITLE, *LINES)
        figures = [figure for _, rows in self.groups for _, figure in rows]
        fastest = max([1.0, *(max(figure.high, figure.median) for figure in figures)])
        names = [drawing.width_of(label) for _, rows in self.groups for label, _ in rows]
        left = min(max(names, default=0.0), drawing.width * 0.4) + 12
        # Pixels of a speed-up of 1.
        unit = max(drawing.width - left - drawing.width_of(ratio(fastest), bold=True) - 12, 1.0) / fastest
        top = drawing.height
        bottom = top + len(self.groups) * _GROUP + len(figures) * _ROW
        _draw_axis(drawing, left, unit, fastest, (top, bottom))
        rows: list[tuple[QRectF, str, Figure]] = []
        for dtype, bars in self.groups:
            drawing.write_text(QRectF(0, drawing.height, drawing.width, _GROUP), dtype, bold=True)
            drawing.height += _GROUP
            for label, figure in bars:
                row = QRectF(0, drawing.height, drawing.width, _ROW)
                rows.append((row, label, figure))
                _draw_bar(drawing, row, left, unit, figure)
                spread = f"Half of the {figure.n} values are between {figure.low:.2f} and {figure.high:.2f}."
                median = f"{label}, {dtype}: {ratio(figure.median)} plain decoding."
                drawing.add_tooltip(row, f"{median} {spread if figure.n > 1 else 'One value.'}")
                drawing.height += _ROW
        # The line at 1 is above all bars, and the texts are above the line.
        drawing.line([(left + unit, top), (left + unit, bottom)], "text", 1.2, DASHED)
        for row, label, figure in rows:
            drawing.write_text(QRectF(0, row.y(), left - 12, _ROW), label, align="right")
            value = ratio(figure.median)
            end = left + unit * max(figure.median, figure.high)
            box = QRectF(end + 5, row.center().y() - 9, drawing.width_of(value, bold=True) + 6, 18)
            drawing.area(box, "surface")
            drawing.write_text(box, value, bold=True, align="center")
        drawing.height += _AXIS
        text = " ".join(mark.text for mark in drawing.marks[len(drawing.marks) - len(rows) :])
        drawing.descriptions.append(f"{TITLE}. {text or 'Nothing was measured.'}")


def _draw_axis(drawing: Drawing, left: float, unit: float, fastest: float, ends: tuple[float, float]) -> None:
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


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Speed-up of the drafter head by beam width (rows) and beam length (columns), for one precision.

    The best cell is framed.

    Attributes:
        widths: Beam widths that were measured, ascending.
        lengths: Beam lengths that were measured, ascending.
        values: Median speed-up at (width, length); pairs not measured are missing.
    """

    dtype: str
    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    values: Mapping[tuple[int, int], float]

    @property
    def best(self) -> tuple[int, int] | None:
        """The fastest pair, the smallest of equals; None if nothing was measured."""
        return max(sorted(self.values), key=lambda pair: self.values[pair], default=None)

    def draw_plot(self, drawing: Drawing) -> None:
        title = f"Speed-up by beam, {self.dtype}"
        drawing.heading(title, *MAP_LINES)
        left = ceil(max((drawing.width_of(_beams(width)) for width in self.widths), default=0.0) + 12)
        wide = floor(min((drawing.width - left) / max(len(self.lengths), 1), _WIDEST_CELL))
        for column, length in enumerate(self.lengths):
            box = QRectF(left + column * wide, drawing.height, wide, _COLUMN_NAMES)
            drawing.write_text(box, draft_size(length), "muted", align="center")
        drawing.height += _COLUMN_NAMES
        first = len(drawing.marks)
        for width in self.widths:
            drawing.write_text(QRectF(0, drawing.height, left - 8, _CELL_HEIGHT), _beams(width), "muted", align="right")
            for column, length in enumerate(self.lengths):
                cell = QRectF(left + column * wide, drawing.height, wide, _CELL_HEIGHT)
                self._draw_cell(drawing, (width, length), cell)
            drawing.height += _CELL_HEIGHT
        best = self.best
        best_text = f"Best: {draft_size(*best)}, {ratio(self.values[best])}." if best else "Nothing was measured."
        cells = " ".join(mark.text for mark in drawing.marks[first:])
        drawing.descriptions.append(f"{title}. Plain decoding is 1x. {best_text} {cells}")

    def _draw_cell(self, drawing: Drawing, pair: tuple[int, int], cell: QRectF) -> None:
        value = self.values.get(pair)
        best = pair == self.best
        inside = cell.adjusted(_INSET, _INSET, -_INSET, -_INSET)
        if value is None:
            drawing.add_tooltip(cell, f"{draft_size(*pair)}: not measured.")
            drawing.area(inside, color="border", dashes=DASHED)
            drawing.write_text(inside, "\N{EN DASH}", "muted", align="center")
            return
        drawing.add_tooltip(cell, f"{draft_size(*pair)}: {ratio(value)}.{' This is the best.' if best else ''}")
        fastest = max((max(speed, 1 / speed) for speed in self.values.values() if speed > 0), default=1.0)
        ground = speed_color(drawing.colors, value, fastest)
        drawing.area(inside, ground)
        box = QRectF(inside.x(), inside.y() + 4, inside.width(), inside.height() - 22) if best else inside
        drawing.write_text(box, ratio(value), ink_on(ground), bold=best, align="center")
        if best:
            below = QRectF(inside.x(), inside.y() + 22, inside.width(), inside.height() - 27)
            drawing.write_text(below, "best", ink_on(ground), more=-2, align="center")
            drawing.area(inside.adjusted(0.5, 0.5, -0.5, -0.5), color="text", width=2.5)


def _beams(width: int) -> str:
    return counted(width, "beam")


def plots_of(result: BenchResult) -> list[Plot]:
    """Return the plots of a benchmark, from the top down.

    For each precision, and for each temperature if there are several: a bar for stock mlx-lm, a bar for the fastest
    shape of each mode, and a map of the drafter head's beams if there are several.
    """
    plan = result.plan
    groups = list[tuple[str, Bars]]()
    maps = list[Plot]()
    several = len({cell.temperature for cell in plan.cells}) > 1
    branches = dict.fromkeys(cell.draft.lookup_branch for cell in plan.cells if cell.draft.mode is Mode.DRAFTER)
    precisions = {run.baseline: run.dtype for run in result.runs if run.dtype}
    for index, baseline in enumerate(plan.baselines):
        name = precisions.get(index, baseline.dtype.value)
        if several:
            name += f", temperature {baseline.temperature:g}" if baseline.temperature else ", greedy"
        reports = [report for report in result.reports if plan.baseline_of(report.cell) == index]
        if bars := _mlx_lm_bar(result, index) + _fastest(reports):
            groups.append((name, bars))
        for branch in branches:
            own = [report for report in reports if report.cell.draft.lookup_branch is branch]
            if heat_map := _heat_map(name if branch or len(branches) == 1 else f"{name}, without lookup", own):
                maps.append(heat_map)
    return [SpeedBars(tuple(groups)), *maps] if groups or not maps else maps


def _mlx_lm_bar(result: BenchResult, baseline: int) -> Bars:
    """Return a bar of stock mlx-lm: its speed over our plain decoding in the same turn; none if it did not run."""
    runs = [run for run in result.runs if (run.cell, run.baseline) == (MLX_LM, baseline)]
    figure = Figure.from_values(speed_ratio(run, result.runs_of_turn(run)[0]) for run in runs)
    return (("mlx-lm, not drafting", figure),) if figure else ()


def _fastest(reports: Sequence[CellReport]) -> Bars:
    """Return a bar for each mode: that of its fastest shape."""
    fastest: dict[Mode, tuple[str, Figure]] = {}
    for report in reports:
        mode = report.cell.draft.mode
        figure = report.figures["ratio_to_plain"]
        if figure and (mode not in fastest or figure.median > fastest[mode][1].median):
            fastest[mode] = report.cell.label, figure
    return tuple(fastest.values())


def _heat_map(name: str, reports: Sequence[CellReport]) -> HeatMap | None:
    drafts = ((report.cell.draft, report) for report in reports)
    beams = {(draft.beam_width, draft.beam_length): report for draft, report in drafts if draft.mode is Mode.DRAFTER}
    if len(beams) < 2:
        return None
    widths, lengths = (tuple(sorted({pair[side] for pair in beams})) for side in (0, 1))
    figures = ((pair, report.figures["ratio_to_plain"]) for pair, report in beams.items())
    values = {pair: figure.median for pair, figure in figures if figure}
    return HeatMap(name, widths, lengths, values) if values else None


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
        highest = max((value for curve in curves for _, value in curve.points), default=0.0)
        # The end of the vertical axis: a round value above all.
        top = min(max(ceil(highest * 5) / 5, 0.2), 1.0) if self.shares else float(max(ceil(highest), 1))
        dots = [
            [(frame.x() + x * frame.width(), frame.y() + frame.height() * (1 - y / top)) for x, y in curve.points]
            for curve in curves
        ]
        self._draw_axes(drawing, frame, top)
        names_at: list[tuple[float, str]] = []
        for index, (curve, own) in enumerate(zip(curves, dots, strict=True)):
            color = shade(drawing.colors, max(1 - 0.2 * index, 0.35))  # The first one is the strongest.
            drawing.line(own, color, 1.4 if index else 2.2)
            drawing.area(QRectF(own[-1][0] - 2, own[-1][1] - 2, 4, 4), color)
            names_at.append((own[-1][1], curve.name))
        # Each name is at the end of its curve, or below the name above it.
        below = 0.0
        for y, name in sorted(names_at) if len(names_at) > 1 else ():
            below = max(y - 8, below)
            drawing.write_text(QRectF(frame.right() + 8, below, names - 8, 16), name, "muted", more=-2)
            below += _NAME_HEIGHT
        # The tooltips: strips between the middles of two points of the first curve.
        if curves:
            xs = [x for x, _ in dots[0]]
            edges = [frame.x(), *((one + other) / 2 for one, other in pairwise(xs)), frame.right()]
            for (left, right), (x, _) in zip(pairwise(edges), curves[0].points, strict=True):
                here = [f"{each.name} {self._value(y)}" for each in curves for at, y in each.points if at == x]
                strip = QRectF(left, frame.y(), max(right - left, 1.0), frame.height())
                drawing.add_tooltip(strip, f"{percent(x)} of the training: {', '.join(here)}.")
        ends = "; ".join(f"{curve.name} {self._value(curve.points[-1][1])}" for curve in curves)
        drawing.descriptions.append(f"{self.title}. {ends or 'Nothing was measured yet'}.")
        drawing.height += _HEIGHT + _CURVES_AXIS

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
