"""The charts of the speed panel: bars for whole numbers, the speed over time, and the parts of a reply's time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF

from rdchat.inference.api.reply_statistics import Spent
from rdchat.ui.plots.drawing import Drawing
from rdchat.ui.plots.plot_view import Chart
from rdchat.ui.style.formatting import share as share_text
from rdchat.ui.style.labels import STAGES, set_tip
from rdchat.ui.style.theme import Theme, control_font

# Distances in a bar chart, in pixels.
_BAR_HEIGHT = 72.0
_WIDEST = 48.0
_GAP = 16.0
_LINE = 13.0
_LABEL_SIZE = -3
# The share of the speeds that a line does not cut off, and the factor of the height above them.
_USUAL = 0.95
_HEADROOM = 1.15
_SPARKLINE_HEIGHT = 40.0
_TIME_BAR_HEIGHT = 14.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart.

    Attributes:
        label: The text below it.
        share: Its height, from 0 to 1.
        value: The text above it.
        description: The text for the tooltip and for screen readers.
    """

    label: str
    share: float
    value: str
    description: str


class BarChart(Chart):
    """Draws a bar for each whole number, with its value above it; a share of 1 fills the height."""

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__(theme, name)
        self._definition = definition
        self.bars: tuple[Bar, ...] = ()
        self.setFont(control_font(tabular=True))
        set_tip(self, definition)

    def show_bars(self, bars: Sequence[Bar]) -> None:
        if tuple(bars) != self.bars:
            self.bars = tuple(bars)
            self.redraw("; ".join(bar.description for bar in bars))

    def draw(self, drawing: Drawing) -> None:
        base = _BAR_HEIGHT - _LINE
        drawing.line([(0, base), (drawing.width, base)])
        drawing.height = _BAR_HEIGHT
        if not self.bars:
            return
        step = min(drawing.width / len(self.bars), _WIDEST)
        gap = min(_GAP, step / 3)
        every = self._labels_every(drawing, step)
        for index, bar in enumerate(self.bars):
            left = index * step
            height = bar.share * (base - _LINE - 2)
            drawing.area(QRectF(left + gap / 2, base - height, step - gap, height), "accent", opacity=0.75)
            if index % every == 0:
                wide = drawing.width_of(bar.label, more=_LABEL_SIZE) + 2
                x = max(min(left + (step - wide) / 2, drawing.width - wide), 0.0)
                drawing.write_text(QRectF(x, base, wide, _LINE), bar.label, "muted", more=_LABEL_SIZE, align="center")
            if every == 1:
                above = QRectF(left, base - height - _LINE - 1, step, _LINE)
                drawing.write_text(above, bar.value, more=_LABEL_SIZE, align="center")
            drawing.add_tooltip(QRectF(left, 0, step, _BAR_HEIGHT), f"{bar.description}. {self._definition}")

    def _labels_every(self, drawing: Drawing, step: float) -> int:
        """Return how many bars share a label, so that labels do not overlap."""
        widest = max(drawing.width_of(max(bar.label, bar.value, key=len)) for bar in self.bars)
        return max(1, -int(-(widest + 2) // step)) if step else 1


class Sparkline(Chart):
    """Draws the speeds of a reply as a line from zero up; the newest is at the right."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Writing speed over time")
        set_tip(self, "Speed during this reply. Each point is a quarter of a second. A dash marks a peak cut off.")
        self.speeds: tuple[float, ...] = ()

    def show_speeds(self, speeds: tuple[float, ...]) -> None:
        if speeds != self.speeds:
            self.speeds = speeds
            self.update()

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _SPARKLINE_HEIGHT
        base = _SPARKLINE_HEIGHT - 1.5
        rates = self.speeds
        # One peak does not flatten the line.
        top = sorted(rates)[int(_USUAL * (len(rates) - 1))] if len(rates) > 1 else 0.0
        if top <= 0:
            return
        drawing.line([(0, base), (drawing.width, base)])
        right = drawing.width - 4.0
        newest = len(rates) - 1
        # The line grows from the right, so that its end does not move.
        step = right / (max(len(rates), 24) - 1)
        scale = (base - 4) / (top * _HEADROOM)
        line = [
            (right - (newest - index) * step, base - min(rate, top * _HEADROOM) * scale)
            for index, rate in enumerate(rates)
        ]
        x, y = line[-1]
        left = line[0][0]
        drawing.polygon([*line, (x, base), (left, base)], "accent", 0.14)
        for peak, rate in zip(line, rates, strict=True):
            if rate > top * _HEADROOM:
                drawing.line([(peak[0] - 2, 1.0), (peak[0] + 2, 1.0)], "accent", 1.5)
        drawing.line(line, "accent", 1.5)
        drawing.area(QRectF(x - 2, y - 2, 4, 4), "accent")


class TimeBar(Chart):
    """Draws the shares of a reply's time side by side, in the order of `Spent`."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Where the time of the reply went")
        self.shares: dict[Spent, float] = {}

    def show_times(self, milliseconds: Mapping[Spent, float]) -> None:
        total = sum(milliseconds.values())
        self.shares = {spent: milliseconds[spent] / total for spent in Spent if milliseconds.get(spent)}
        self.redraw("; ".join(f"{STAGES[spent][0]}: {share_text(share)}" for spent, share in self.shares.items()))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _TIME_BAR_HEIGHT
        drawing.area(QRectF(0, 0, drawing.width, _TIME_BAR_HEIGHT), "border")
        left = 0.0
        for spent, share in self.shares.items():
            box = QRectF(left, 0, share * drawing.width, _TIME_BAR_HEIGHT)
            drawing.area(box, spent.name.lower())
            if left and box.width() > 2:
                drawing.area(QRectF(left, 0, 1, _TIME_BAR_HEIGHT), "window")
            name, definition = STAGES[spent]
            drawing.add_tooltip(box, f"{name}, {share_text(share)}: {definition}")
            left = box.right()
