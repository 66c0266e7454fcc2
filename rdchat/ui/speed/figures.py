"""The figures of a reply and its model, by section: how the value of each is written in all windows.

`FIGURES` is the table of them: from the name of a figure to the function that returns its text. The module also has
the charts of the speed panel: bars, the speed over time, and the shares of a reply's time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from PySide6.QtCore import QRectF

from rdchat.chat.conversation import Drafting
from rdchat.inference.api import UNKNOWN_LENGTH, FinishReason, ModelInfo, Spent, Statistics, spent_ms
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.plots.drawing import Chart, Drawing
from rdchat.ui.style import (
    ENDS,
    NONE,
    STAGES,
    Theme,
    control_font,
    count,
    decimal,
    dtype_text,
    duration,
    memory,
    percent,
    rate,
    set_tip,
    share,
    speedup,
)
from rdchat.wording import counted, parameter_text

# The acceptance of fewer drafted tokens would be chance.
_FEW_DRAFTED = 20
# Fewer prompt tokens are read in one call, whose rate would be mostly the cost of the call.
_FEW_READ = 8
# Positions whose acceptance has room in a line; the chart has all.
_LISTED = 4
# Distances in a bar chart, in pixels.
_BAR_HEIGHT = 96.0
_TITLE = 24.0
_WIDEST = 48.0
_GAP = 16.0
_LINE = 13.0
_LABEL_SIZE = -3
# Of the line of speeds: it is as high as this quantile of them times the headroom; higher peaks are cut off.
_USUAL = 0.95
_HEADROOM = 1.15
_SPARKLINE_HEIGHT = 40.0
_TIME_BAR_HEIGHT = 14.0


class FigureSource(NamedTuple):
    """A reply, its model and the engine's state.

    Attributes:
        statistics: Statistics of the reply.
        finish: Why the reply ended; None while it is written.
        how: The reply's drafting mode, and the remote server that wrote it, if any.
        model: The loaded model.
        state: The engine's state.
    """

    statistics: Statistics = Statistics()
    finish: FinishReason | None = None
    how: Drafting = Drafting(None)
    model: ModelInfo | None = None
    state: EngineState = EngineState.NO_MODEL

    @property
    def context(self) -> tuple[int, int]:
        """Tokens in the context, and the limit of the model; 0 where it is unknown."""
        limit = self.model.context_length if self.model else 0
        return self.statistics.context_tokens, limit if limit < UNKNOWN_LENGTH else 0


type _Text = Callable[[FigureSource], str]
"""Returns the text of a figure; a dash where nothing was measured."""


def _of_reply(text: Callable[[Statistics], str]) -> _Text:
    return lambda source: text(source.statistics)


def _of_model(text: Callable[[ModelInfo], str]) -> _Text:
    return lambda source: text(source.model) if source.model else NONE


def _per_step(statistics: Statistics, total: int) -> str:
    """Return a total divided by the number of steps, in a reply with drafts."""
    drafted = statistics.drafted_rounds and statistics.target_calls
    return decimal(total / statistics.target_calls) if drafted else NONE


def _drafted_steps(statistics: Statistics) -> str:
    drafted = statistics.drafted_rounds
    return f"{drafted:,} of {statistics.target_calls:,}" if drafted else NONE


def _plain_speed(statistics: Statistics) -> str:
    """Return the speed without drafting, as a range if its error can be seen; a dash where nothing can be compared."""
    plain = statistics.plain_tps
    if plain is None or statistics.speedup_range is None:
        return NONE
    low = rate(plain * (1 - statistics.speedup_error))
    high = rate(plain * (1 + statistics.speedup_error))
    return f"{low if low == high else f'{low} to {high}'} tokens/s"


def _speedup(statistics: Statistics) -> str:
    """Return the speed-up: words where it is about 1, else the ratio; a dash where nothing can be compared."""
    if statistics.speedup is None or statistics.speedup_range is None:
        return NONE
    if statistics.as_fast:
        return "about the same speed"
    return speedup(statistics.speedup, *statistics.speedup_range)


def _reading_speed(statistics: Statistics) -> str:
    """Return how fast the prompt was read, without the tokens that the cache had already."""
    read = statistics.prompt_tokens - statistics.cached_prompt_tokens
    speed = statistics.prefill_tps
    return NONE if speed is None or read < _FEW_READ else f"{rate(speed)} tokens/s"


def _context(source: FigureSource) -> str:
    used, limit = source.context
    if not limit:
        return counted(used, "token") if used else NONE
    return f"{used:,} of {limit:,}" if used else f"Up to {limit:,}"


def acceptance_by_position(statistics: Statistics) -> Sequence[float]:
    """Return the acceptance at each position of the drafts; empty where the acceptance itself is not shown."""
    return statistics.acceptance_by_position if statistics.drafted >= _FEW_DRAFTED else ()


def _acceptance_by_position(statistics: Statistics) -> str:
    shares = [f"{share * 100:.0f}" for share in acceptance_by_position(statistics)]
    return ", ".join(shares[:_LISTED]) + "…" * (len(shares) > _LISTED) or NONE


DETAILS: Mapping[str, Mapping[str, _Text]] = {
    "Drafts": {
        "Prompt lookup, this chat": _of_reply(lambda s: count(s.from_chat)),
        "Prompt lookup, earlier replies": _of_reply(lambda s: count(s.from_replies)),
        "Common phrases": _of_reply(lambda s: count(s.from_phrases)),
        "Drafter or draft model": _of_reply(
            lambda s: count(s.accepted - s.from_chat - s.from_replies - s.from_phrases)
        ),
        "Steps with a draft": _of_reply(_drafted_steps),
        "Drafted per step": _of_reply(lambda s: _per_step(s, s.drafted)),
        "Checked per step": _of_reply(lambda s: decimal(s.checked_per_step)),
        "Kept per step": _of_reply(lambda s: _per_step(s, s.accepted)),
        "Waits per step": _of_reply(lambda s: _per_step(s, s.host_syncs) if s.host_syncs else NONE),
        "Dropped drafts": _of_reply(lambda s: count(s.dropped_drafts)),
    },
    "Reply": {
        "Tokens written": _of_reply(lambda s: count(s.generated_tokens)),
        "Prompt tokens": _of_reply(lambda s: count(s.prompt_tokens)),
        "From memory": _of_reply(lambda s: count(s.cached_prompt_tokens)),
        "From disk": _of_reply(lambda s: count(s.disk_prompt_tokens)),
        "Reading speed": _of_reply(_reading_speed),
        "Time to first token": _of_reply(lambda s: duration(s.ttft_ms)),
        "Writing time": _of_reply(lambda s: duration(s.decode_ms)),
        "Ended": lambda source: ENDS[source.finish][0] if source.finish else NONE,
    },
    "Memory": {
        "Context": _context,
        "Weights": _of_model(lambda m: memory(m.weights_bytes)),
        "Peak memory": _of_reply(lambda s: memory(s.peak_memory_bytes)),
        "Earlier replies for lookup": _of_reply(lambda s: memory(s.earlier_bytes)),
    },
    "Model": {
        "Precision": _of_model(lambda m: dtype_text(m.dtype) or NONE),
        "Runs on": _of_model(lambda m: m.device),
        "Parameters": _of_model(lambda m: parameter_text(m.parameters) if m.parameters else NONE),
        "Kind of drafter": lambda source: source.how.kind.label if source.how.kind else NONE,
    },
}
"""The figures of the panel's details, by group."""
FIGURES: Mapping[str, _Text] = {
    "Speed": _of_reply(lambda s: NONE if s.decode_tps is None else f"{rate(s.decode_tps)} tokens/s"),
    "Without drafting": _of_reply(_plain_speed),
    "Speed-up": _of_reply(_speedup),
    "Acceptance": _of_reply(lambda s: NONE if s.drafted < _FEW_DRAFTED else percent(s.acceptance_rate)),
    "Tokens per step": _of_reply(lambda s: decimal(s.tokens_per_target_call)),
    **{name: text for group in DETAILS.values() for name, text in group.items()},
    # In the panel these are a row of times and a chart.
    "Reading time": _of_reply(lambda s: duration(spent_ms(s).get(Spent.READING, 0.0))),
    "Acceptance by position, %": _of_reply(_acceptance_by_position),
}


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
    """Draws its name and bars side by side, each with its value above it; a share of 1 fills the height.

    Where the bars are too narrow for their labels, only every second (third, ...) label is drawn, and no value. Without
    bars it is hidden.
    """

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__(theme, name)
        self._definition = definition
        self.bars: tuple[Bar, ...] = ()
        self.setFont(control_font(tabular=True))
        set_tip(self, definition)
        self.hide()

    def show_bars(self, bars: Sequence[Bar]) -> None:
        if tuple(bars) != self.bars:
            self.bars = tuple(bars)
            self.setVisible(bool(bars))
            self.redraw("; ".join(bar.description for bar in bars))

    def draw(self, drawing: Drawing) -> None:
        base = _BAR_HEIGHT - _LINE
        drawing.height = _BAR_HEIGHT
        if not self.bars:
            return
        drawing.write_text(QRectF(0, 0, drawing.width, _TITLE), self.accessibleName(), "muted", more=-1)
        drawing.line([(0, base), (drawing.width, base)])
        step = min(drawing.width / len(self.bars), _WIDEST)
        gap = min(_GAP, step / 3)
        every = self._bars_per_label(drawing, step)
        for index, bar in enumerate(self.bars):
            left = index * step
            height = bar.share * (base - _TITLE - _LINE - 2)
            drawing.area(QRectF(left + gap / 2, base - height, step - gap, height), "accent", opacity=0.75)
            if index % every == 0:
                wide = drawing.width_of(bar.label, more=_LABEL_SIZE) + 2
                x = max(min(left + (step - wide) / 2, drawing.width - wide), 0.0)
                drawing.write_text(QRectF(x, base, wide, _LINE), bar.label, "muted", more=_LABEL_SIZE, align="center")
            if every == 1:
                above = QRectF(left, base - height - _LINE - 1, step, _LINE)
                drawing.write_text(above, bar.value, more=_LABEL_SIZE, align="center")
            drawing.add_tooltip(QRectF(left, 0, step, _BAR_HEIGHT), f"{bar.description}. {self._definition}")

    def _bars_per_label(self, drawing: Drawing, step: float) -> int:
        """Return n, where each n-th bar has a label, so that labels do not overlap; `step` is the width of a bar."""
        widest = max(drawing.width_of(max(bar.label, bar.value, key=len)) for bar in self.bars)
        return max(1, ceil((widest + 2) / step)) if step else 1


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
        # Not the highest speed: one peak would flatten the line.
        top = sorted(rates)[int(_USUAL * (len(rates) - 1))] if len(rates) > 1 else 0.0
        if top <= 0:
            return
        drawing.line([(0, base), (drawing.width, base)])
        right = drawing.width - 4.0
        newest = len(rates) - 1
        # A short line grows from the right, so that its end does not move; 24 points fill the width.
        step = right / (max(len(rates), 24) - 1)
        scale = (base - 4) / (top * _HEADROOM)
        line = [
            (right - (newest - index) * step, base - min(rate, top * _HEADROOM) * scale)
            for index, rate in enumerate(rates)
        ]
        x, y = line[-1]
        left = line[0][0]
        drawing.polygon([*line, (x, base), (left, base)], "accent", 0.14)
        # A dash at the top marks a peak that is cut off.
        for point, speed in zip(line, rates, strict=True):
            if speed > top * _HEADROOM:
                drawing.line([(point[0] - 2, 1.0), (point[0] + 2, 1.0)], "accent", 1.5)
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
        self.redraw("; ".join(f"{STAGES[spent][0]}: {share(part)}" for spent, part in self.shares.items()))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _TIME_BAR_HEIGHT
        drawing.area(QRectF(0, 0, drawing.width, _TIME_BAR_HEIGHT), "border")
        left = 0.0
        for spent, part in self.shares.items():
            box = QRectF(left, 0, part * drawing.width, _TIME_BAR_HEIGHT)
            drawing.area(box, spent.name.lower())
            if left and box.width() > 2:
                drawing.area(QRectF(left, 0, 1, _TIME_BAR_HEIGHT), "window")
            name, definition = STAGES[spent]
            drawing.add_tooltip(box, f"{name}, {share(part)}: {definition}")
            left = box.right()
