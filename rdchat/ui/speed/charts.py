"""The charts of the speed panel: bars for whole numbers, the speed over time, and where the time went."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtGui import QColor

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.shown_ledger import Spent
from rdchat.ui.look.definitions import stage_words
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme, control_font
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart

_BAR_HEIGHT, _WIDEST, _GAP, _LINE = 72.0, 48.0, 16.0, 13.0  # of a bar chart, in pixels
_SMALLER = -3  # its font
_SAMPLES = 120
_SAMPLE_MS = 250.0  # decoding time of a sample: a single token would make the line jump
_SPARKLINE_HEIGHT = 40.0
_TIME_BAR_HEIGHT = 14.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart."""

    label: str  # below it
    share: float  # its height, from 0 to 1
    value: str  # above it
    words: str  # the whole of it, for the tooltip and for screen readers


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
            self.redraw("; ".join(bar.words for bar in bars))

    def draw(self, drawing: Drawing) -> None:
        base = _BAR_HEIGHT - _LINE
        drawing.line([(0, base), (drawing.width, base)])
        drawing.height = _BAR_HEIGHT
        if not self.bars:
            return
        step = min(drawing.width / len(self.bars), _WIDEST)
        gap = min(_GAP, step / 3)
        every = self._labels_every(drawing, step)
        fill = translucent(self.theme.colors.accent, 190)
        for place, bar in enumerate(self.bars):
            left, height = place * step, bar.share * (base - _LINE - 2)
            drawing.area(Box(left + gap / 2, base - height, step - gap, height), fill)
            if place % every == 0:
                drawing.text(Box(left, base, step, _LINE), bar.label, "muted", more=_SMALLER, align="center")
            if every == 1:
                above = Box(left, base - height - _LINE - 1, step, _LINE)
                drawing.text(above, bar.value, more=_SMALLER, align="center")
            drawing.mark(Box(left, 0, step, _BAR_HEIGHT), f"{bar.words}. {self._definition}")

    def _labels_every(self, drawing: Drawing, step: float) -> int:
        """Return how many bars share a label, so that labels do not overlap."""
        widest = max(drawing.width_of(max(bar.label, bar.value, key=len)) for bar in self.bars)
        return max(1, -int(-(widest + 2) // step)) if step else 1


class Sparkline(Chart):
    """Draws the speeds of the last moments as a line from zero up; the newest is at the right."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Decoding speed over time")
        set_tip(self, "Decode speed during this reply, from zero up; each point is a quarter of a second.")
        self.clear()

    def clear(self) -> None:
        self.rates: deque[float] = deque(maxlen=_SAMPLES)
        self._tokens, self._decode_ms = 0, 0.0
        self.update()

    def add(self, statistics: Statistics) -> None:
        """Add a sample once enough decoding time has passed; counters that fall back begin a new reply."""
        if statistics.generated_tokens < self._tokens or statistics.decode_ms < self._decode_ms:
            self.clear()
        if self._tokens == 0 and statistics.generated_tokens:
            self._tokens = 1  # the first token belongs to prefill
        elapsed = statistics.decode_ms - self._decode_ms
        if elapsed >= _SAMPLE_MS:
            self.rates.append((statistics.generated_tokens - self._tokens) / elapsed * 1000)
            self._tokens, self._decode_ms = statistics.generated_tokens, statistics.decode_ms
            self.update()

    def draw(self, drawing: Drawing) -> None:
        drawing.height, base = _SPARKLINE_HEIGHT, _SPARKLINE_HEIGHT - 1.5
        drawing.line([(0, base), (drawing.width, base)])
        rates, top = self.rates, max(self.rates, default=0.0)
        if top <= 0 or len(rates) < 2:
            return
        right, newest = drawing.width - 4.0, len(rates) - 1
        step = right / (max(len(rates), 24) - 1)  # the line grows from the right, so that its end keeps its place
        scale = (base - 4) / (top * 1.1)
        line = [(right - (newest - place) * step, base - rate * scale) for place, rate in enumerate(rates)]
        accent = self.theme.colors.accent
        (x, y), left = line[-1], line[0][0]
        drawing.polygon([*line, (x, base), (left, base)], translucent(accent, 36))
        drawing.line(line, accent.name(), 1.5)
        drawing.area(Box(x - 2, y - 2, 4, 4), accent.name())


class TimeBar(Chart):
    """Draws the shares of a reply's time side by side, in the order of `Spent`."""

    corner = 4.0

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Where the time of this reply went")
        self.shares: dict[Spent, float] = {}

    def show_times(self, milliseconds: Mapping[Spent, float]) -> None:
        whole = sum(milliseconds.values())
        self.shares = {spent: milliseconds[spent] / whole for spent in Spent if milliseconds.get(spent)}
        self.redraw("; ".join(f"{spent}: {share:.0%}" for spent, share in self.shares.items()))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _TIME_BAR_HEIGHT
        drawing.area(Box(0, 0, drawing.width, _TIME_BAR_HEIGHT), "border")
        left = 0.0
        for spent, share in self.shares.items():
            box = Box(left, 0, share * drawing.width, _TIME_BAR_HEIGHT)
            drawing.area(box, time_color(self.theme, spent))
            if left and box.width > 2:
                drawing.area(Box(left, 0, 1, _TIME_BAR_HEIGHT), self.theme.colors.window.name())
            drawing.mark(box, f"{spent}, {share:.0%}: {stage_words(spent)}")
            left = box.right


class Swatch(Chart):
    """A small square in the colour of a share of the time bar."""

    SIZE = 10
    corner = 2.0

    def __init__(self, theme: Theme, spent: Spent) -> None:
        super().__init__(theme, spent)
        self._spent = spent
        self.setFixedSize(self.SIZE, self.SIZE)

    def draw(self, drawing: Drawing) -> None:
        drawing.area(Box(0, 0, self.SIZE, self.SIZE), time_color(self.theme, self._spent))


def time_color(theme: Theme, spent: Spent) -> str:
    """Return the colour of what time is spent on, in the present appearance."""
    color: QColor = getattr(theme.colors, spent.name.lower())
    return color.name()


def translucent(color: QColor, opacity: int) -> str:
    """Return a colour with an opacity, of 255, as Qt writes it."""
    color = QColor(color)
    color.setAlpha(opacity)
    return color.name(QColor.NameFormat.HexArgb)
