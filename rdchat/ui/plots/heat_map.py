"""Speed-up of the drafter head over beam width x beam length, as a table of coloured cells. No Qt here."""

from dataclasses import dataclass
from math import ceil, floor

from rdchat.inference.benchmark.charts import HeatMap
from rdchat.ui.look.formatting import ratio
from rdchat.ui.plots.drawing import Box, Drawing, ink_on

_CELL_HEIGHT, _WIDEST_CELL = 44.0, 92.0
_NAMES, _LEGEND, _LEGEND_WIDTH, _LEGEND_STEPS = 24.0, 44.0, 240.0, 60
_INSET = 1.5  # between cells


@dataclass(frozen=True, slots=True)
class HeatMapPlot:
    """Rows are beam widths, columns beam lengths. Each cell says its value; the best one is framed and says so too."""

    map: HeatMap

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands below the title."""
        return "Rows: beam width W. Columns: beam length L.", f"{self.map.reference} is 1x."

    def draw(self, drawing: Drawing) -> None:
        """See `Plot`."""
        heat_map, title = self.map, f"Speed-up by beam, {self.map.dtype}"
        drawing.heading(title, *self.lines)
        left = ceil(max((drawing.width_of(f"W {width}") for width in heat_map.widths), default=0.0) + 12)
        wide = floor(min((drawing.width - left) / max(len(heat_map.lengths), 1), _WIDEST_CELL))
        for column, length in enumerate(heat_map.lengths):
            place = Box(left + column * wide, drawing.height, wide, _NAMES)
            drawing.text(place, f"L {length}", "muted", align="center")
        drawing.height += _NAMES
        first = len(drawing.marks)
        for width in heat_map.widths:
            drawing.text(Box(0, drawing.height, left - 8, _CELL_HEIGHT), f"W {width}", "muted", align="right")
            for column, length in enumerate(heat_map.lengths):
                cell = Box(left + column * wide, drawing.height, wide, _CELL_HEIGHT)
                self._draw_cell(drawing, (width, length), cell)
            drawing.height += _CELL_HEIGHT
        self._draw_legend(drawing, left)
        best = heat_map.best
        found = f"Best: {_pair(best)}, {ratio(heat_map.values[best])}." if best else "Nothing was measured."
        cells = " ".join(mark.words for mark in drawing.marks[first:])
        drawing.words.append(f"{title}. {heat_map.reference} is 1x. {found} {cells}")

    def _draw_cell(self, drawing: Drawing, pair: tuple[int, int], cell: Box) -> None:
        value, best, inside = self.map.values.get(pair), pair == self.map.best, cell.inset(_INSET)
        if value is None:
            drawing.mark(cell, f"{_pair(pair)}: not measured.")
            drawing.area(inside, color="border", dashed=True)
            drawing.text(inside, "\N{EN DASH}", "muted", align="center")
            return
        drawing.mark(cell, f"{_pair(pair)}: {ratio(value)}.{' This is the best.' if best else ''}")
        fastest = max((max(speed, 1 / speed) for speed in self.map.values.values() if speed > 0), default=1.0)
        ground = drawing.palette.of_speed(value, fastest)
        drawing.area(inside, ground)
        place = Box(inside.x, inside.y + 4, inside.width, inside.height - 22) if best else inside
        drawing.text(place, ratio(value), ink_on(ground), bold=best, align="center")
        if best:
            below = Box(inside.x, inside.y + 22, inside.width, inside.height - 27)
            drawing.text(below, "best", ink_on(ground), more=-2, align="center")
            drawing.area(inside.inset(0.5), color="text", width=2.5)

    def _draw_legend(self, drawing: Drawing, left: float) -> None:
        bar = Box(left + _INSET, drawing.height + 12, min(_LEGEND_WIDTH, drawing.width - left), 10)
        step = bar.width / _LEGEND_STEPS
        for number in range(_LEGEND_STEPS):
            color = drawing.palette.between(2 * (number + 0.5) / _LEGEND_STEPS - 1)
            drawing.area(Box(bar.x + number * step, bar.y, step + 0.5, bar.height), color)
        drawing.area(bar, color="border")
        for words, align in (("slower", "left"), ("1x", "center"), ("faster", "right")):
            drawing.text(Box(bar.x, bar.y + 13, bar.width, 18), words, "muted", more=-2, align=align)
        drawing.height += _LEGEND


def _pair(pair: tuple[int, int]) -> str:
    return f"W {pair[0]}, L {pair[1]}"
