"""Speed-up over plain decoding as bars, precision by precision. No Qt here."""

from dataclasses import dataclass

from rdchat.inference.benchmark.charts import Bars
from rdchat.inference.benchmark.result import Figure
from rdchat.ui.look.formatting import ratio
from rdchat.ui.plots.drawing import Box, Drawing

TITLE = "Speed-up over plain decoding"
LINES = ("Median for each setting.", "The thin line spans the middle half of the values.")
_ROW, _BAR, _GROUP, _AXIS = 28.0, 16.0, 26.0, 26.0
_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_TICK_ROOM, _PLAIN_ROOM = 40.0, 48.0  # least distance of two ticks, and of a tick from the words at 1


@dataclass(frozen=True, slots=True)
class SpeedBars:
    """Horizontal bars, which leave room for the names of settings; a line at 1 is plain decoding.

    What is slower than plain decoding ends before that line and is orange, what is faster crosses it and is blue.
    """

    groups: tuple[Bars, ...]

    def draw(self, drawing: Drawing) -> None:
        """See `Plot`."""
        drawing.heading(TITLE, *LINES)
        figures = [figure for _, rows in self.groups for _, figure in rows]
        fastest = max([1.0, *(max(figure.high, figure.median) for figure in figures)])
        names = [drawing.width_of(label) for _, rows in self.groups for label, _ in rows]
        left = min(max(names, default=0.0), drawing.width * 0.4) + 12
        unit = max(drawing.width - left - drawing.width_of(ratio(fastest), bold=True) - 12, 1.0) / fastest
        top = drawing.height
        bottom = top + len(self.groups) * _GROUP + len(figures) * _ROW
        _draw_axis(drawing, left, unit, fastest, (top, bottom))
        rows: list[tuple[Box, str, Figure]] = []
        for dtype, bars in self.groups:
            drawing.text(Box(0, drawing.height, drawing.width, _GROUP), dtype, bold=True)
            drawing.height += _GROUP
            for label, figure in bars:
                row = Box(0, drawing.height, drawing.width, _ROW)
                rows.append((row, label, figure))
                _draw_bar(drawing, row, left, unit, figure)
                drawing.mark(row, _words(dtype, label, figure))
                drawing.height += _ROW
        drawing.line([(left + unit, top), (left + unit, bottom)], "text", 1.2, dashed=True)
        for row, label, figure in rows:
            drawing.text(Box(0, row.y, left - 12, _ROW), label, align="right")
            value, end = ratio(figure.median), left + unit * max(figure.median, figure.high)
            place = Box(end + 5, row.middle - 9, drawing.width_of(value, bold=True) + 6, 18)
            drawing.area(place, "surface")  # where the line at 1 would run through it
            drawing.text(place, value, bold=True, align="center")
        drawing.height += _AXIS
        words = " ".join(mark.words for mark in drawing.marks[len(drawing.marks) - len(rows) :])
        drawing.words.append(f"{TITLE}. {words or 'Nothing was measured.'}")


def _draw_axis(drawing: Drawing, left: float, unit: float, fastest: float, ends: tuple[float, float]) -> None:
    top, bottom = ends
    step = next((step for step in _STEPS if step * unit >= _TICK_ROOM), _STEPS[-1])
    for tick in sorted({number * step for number in range(int(fastest / step) + 1)} | {1.0}):
        if tick == 1 or abs(tick - 1) * unit >= _PLAIN_ROOM:
            x = left + tick * unit
            drawing.line([(x, top), (x, bottom)])
            words = "1x plain" if tick == 1 else f"{tick:g}x"
            drawing.text(Box(x - 40, bottom + 4, 80, _AXIS - 6), words, "muted", more=-2, align="center")


def _draw_bar(drawing: Drawing, row: Box, left: float, unit: float, figure: Figure) -> None:
    bar = Box(left, row.middle - _BAR / 2, figure.median * unit, _BAR)
    drawing.area(bar, "faster" if figure.median >= 1 else "slower")
    low, high = left + figure.low * unit, left + figure.high * unit
    whisker = [((low, row.middle), (high, row.middle))]
    whisker += [((x, row.middle - 4), (x, row.middle + 4)) for x in (low, high)]
    for color, width in (("surface", 3.6), ("text", 1.2)):  # seen on bar and ground alike
        for line in whisker if figure.n > 1 else ():
            drawing.line(line, color, width)


def _words(dtype: str, label: str, figure: Figure) -> str:
    spread = f"Half of the {figure.n} values lie from {figure.low:.2f} to {figure.high:.2f}."
    found = f"{label}, {dtype}: {ratio(figure.median)} plain decoding."
    return f"{found} {spread if figure.n > 1 else 'One value.'}"
