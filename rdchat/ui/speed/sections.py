"""The sections of the speed panel, their rows of figures, and the line of the app's status.

`verdict` returns the line on what a reply's figures mean: whether drafting made it faster. It claims only what was
measured, and gives no verdict, good or bad, while other work keeps the computer busy.
"""

from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.inference.api import Spent, Statistics, spent_ms
from rdchat.services.app_status import AppStatus
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.speed.figures import FIGURES, SECTIONS, Bar, BarChart, FigureSource, Sparkline, TimeBar
from rdchat.ui.style import (
    DEFINITIONS,
    STAGES,
    TIGHT,
    ElidedLabel,
    SectionHead,
    Theme,
    ThemedLabel,
    ThinBar,
    column,
    control_font,
    formatting,
    keep_room,
    push_button,
    row,
    set_tip,
    show_share,
)
from rdchat.wording import counted

# Parameters below which a model's steps are so short that a draft often costs more than it saves.
_SMALL_MODEL = 1_000_000_000
# From this speed-up on, at the lower end of its range, a gain is not called little.
_LARGE_GAIN = 1.2
# States whose progress a bar shows.
_WAITS = (EngineState.LOADING, EngineState.PREFILL, EngineState.SHORTENING)
# Shorter times of a stage are shown as a dash.
_MIN_MS = 0.5
# Definitions of the total of the times, and of the charts of drafts; `_POSITIONS` is a heading.
_TOTAL = "From the request to the last token: the sum of the rows above."
_LENGTHS = (
    "Steps with a draft by the number of drafted tokens they kept. The model itself adds one more token in each step."
)
_POSITIONS = "Acceptance by position, %"


class Verdict(NamedTuple):
    """What the figures of a reply mean.

    Attributes:
        text: The line.
        color: Colour of the speed-up: `success` for a gain, `warning` for a loss, else `text` or `muted`.
    """

    text: str
    color: str = "text"


def verdict(figures: Statistics, *, now: bool, training: bool = False, writing: bool, parameters: int) -> Verdict:
    """Return what the figures mean. The first case that applies counts:

    1. The reply is too short to be compared (not `settled`); one that has ended counts only if it has drafts.
    2. It was written without drafts: in a mode other than Auto, or (not `now`) by Auto before Auto had measured.
    3. A training or other work keeps the computer busy: no verdict.
    4. A speed-up was measured: `_compared`.
    5. There is none: `_not_compared` says why.

    Args:
        figures: The figures of a reply.
        now: Whether the reply is being written or was written just now, so that the other arguments concern it.
        training: Whether a training runs.
        writing: Whether the reply is being written.
        parameters: The number of parameters of the loaded model; 0 if it is unknown.
    """
    if not figures.settled and (writing or figures.rounds):
        return Verdict("Comparing with plain decoding…" if writing else "Too short to compare")
    if not figures.rounds and (figures.choice is None or (figures.choice.speedup is None and not now)):
        return Verdict("Written without drafting")
    if training or figures.was_hindered:
        busy = f"the computer {'is' if writing else 'was'} busy with other work"
        return Verdict(f"No verdict: {'a training is running' if training else busy}", "muted")
    if figures.speedup_range is not None:
        return _compared(figures, *figures.speedup_range)
    return Verdict(_not_compared(figures, now, parameters))


def _not_compared(figures: Statistics, now: bool, parameters: int) -> str:
    """Return why there is no speed-up.

    In this order: there is a plain speed, but its error is too large; Auto has measured, and drafted nothing; nothing
    was measured. `now` and `parameters` are those of `verdict`.
    """
    if figures.rounds and figures.plain_step_ms:
        return "No verdict: the speed of the computer changed"
    if figures.choice is not None and figures.choice.speedup is not None and not figures.rounds:
        is_loss = figures.choice.speedup < 1 and 0 < parameters < _SMALL_MODEL
        return "Too small to gain: measured" if is_loss else "Fine: nothing was worth drafting"
    return "Not compared yet: rdchat measures while it is idle" if now else "Not compared with plain decoding"


def _compared(figures: Statistics, low: float, high: float) -> Verdict:
    """Return the verdict on a speed-up between two values: a gain if both are above 1, a loss if both are below.

    Between a gain and a loss, it is as fast if the range is narrow (`as_fast`); a wide range allows no verdict.
    """
    if figures.others_share is None:
        return Verdict("No verdict: it is not known how busy the computer was")
    if high < 1:
        return Verdict("Slower: its drafts cost more time than they saved", "warning")
    if low <= 1:
        alike = "Fine: as fast as without drafting"
        return Verdict(alike if figures.as_fast else "No verdict: it may be faster or slower")
    return Verdict(f"Fine: drafting makes it {'' if low >= _LARGE_GAIN else 'a little '}faster", "success")


class FigureRow(QWidget):
    """A figure with its name: the name at the left and the value at the right, or a large value above the name.

    Args:
        theme: The appearance to follow.
        name: The name of the figure, a key of `FIGURES` if `show_figure` is called.
        definition: The tooltip; empty for that of `DEFINITIONS`.
        color: Colour of the name.
        large: Whether the value is large and above the name.
    """

    def __init__(
        self, theme: Theme, name: str, definition: str = "", color: str = "muted", *, large: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.value = ThemedLabel(theme, points_more=6 if large else 0, bold=large, tabular=True)
        # The name is cut where there is no room for both.
        label = ElidedLabel(theme, name, color, -1 if large else 0)
        if large:
            column(self.value, label, within=self, spacing=0)
        else:
            self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
            self.parts = row((label, 1), self.value, within=self)
        set_tip(self, definition or DEFINITIONS[name])
        self.show_value(formatting.NONE)

    def show_value(self, text: str, more: str = "") -> None:
        """Show a value; `more` follows it for screen readers."""
        if text != self.value.text() or more:
            self.value.show_text(text, "muted" if text == formatting.NONE else "text")
            self.value.setAccessibleName(f"{self.name}: {text}{more}")

    def show_figure(self, source: FigureSource) -> None:
        """Show the figure's value for a reply; it is hidden if a remote server does not report it."""
        text = FIGURES[self.name](source)
        self.show_value(text)
        self.setVisible(not source.how.server or text != formatting.NONE)


class Section(QWidget):
    """A heading with rows below it, which a click on the heading folds and unfolds."""

    # The person has folded or unfolded the section; it carries its name, and whether it is folded.
    folded = Signal(str, bool)

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.name = name
        self.theme = theme
        self.head = SectionHead(name)
        self._body = QWidget()
        self._rows = column(within=self._body, spacing=TIGHT + 2)
        column(self.head, self._body, within=self, spacing=TIGHT + 2)
        self.head.toggled.connect(self._show_body)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))

    def insert_row[W: QWidget](self, row: W, index: int = -1) -> W:
        """Add a row at an index from the top; -1 is the end."""
        self._rows.insertWidget(index, row)
        return row

    def fold(self, folded: bool) -> None:
        """Fold or unfold it without emitting `folded`."""
        self.head.setChecked(not folded)

    def _show_body(self, visible: bool) -> None:
        self._body.setVisible(visible)


class SpeedSection(QWidget):
    """Names the reply of the figures, with the speed compared with plain decoding, acceptance and tokens per step."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.decode = ThemedLabel(theme, formatting.NONE, points_more=13, bold=True, tabular=True)
        self.owner = ElidedLabel(theme, "", "muted", -1)
        self.ratio = ThemedLabel(theme, "", points_more=5, bold=True, tabular=True)
        # In place of the ratio where the reply was as fast as without drafting.
        self.alike = ThemedLabel(theme, "about the\nsame speed", "muted", -1)
        self.alike.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.reason = ThemedLabel(theme, "", bold=True, wraps=True)
        self.plain = FigureRow(theme, "Without drafting")
        self.acceptance = FigureRow(theme, "Acceptance", large=True)
        self.per_step = FigureRow(theme, "Tokens per step", large=True)
        self.rows = [self.plain, self.acceptance, self.per_step]
        self.sparkline = Sparkline(theme)
        unit = ElidedLabel(theme, "tokens/s", "muted")
        self.unit = unit
        unit.setContentsMargins(0, 0, 0, 4)
        self.ratio.setContentsMargins(0, 0, 0, 2)
        head = row(self.decode, (unit, 1), self.ratio, self.alike, spacing=TIGHT + 2)
        for part in (self.decode, unit, self.ratio, self.alike):
            head.setAlignment(part, Qt.AlignmentFlag.AlignBottom)
            set_tip(part, DEFINITIONS["Speed"])
        tiles = row((self.acceptance, 1), (self.per_step, 1))
        self.figures = QWidget()
        figures = head, self.plain, TIGHT, tiles, self.sparkline
        column(*figures, within=self.figures, spacing=TIGHT)
        column(self.reason, self.owner, self.figures, within=self, spacing=TIGHT)

    def show_figures(self, source: FigureSource) -> None:
        """Show the figures of a reply."""
        statistics = source.statistics
        decode = formatting.rate(statistics.decode_tps)
        self.decode.show_text(decode, "muted" if statistics.decode_tps is None else "text")
        self.decode.setAccessibleName(f"Writing: {decode} tokens a second")
        for part in (self.decode, self.unit):
            part.setVisible(not source.how.server or statistics.decode_tps is not None)
        self._show_ratio(source)
        for figure in self.rows:
            figure.show_figure(source)
        self.sparkline.show_speeds(statistics.speeds)

    def show_verdict(self, meaning: Verdict) -> None:
        """Show what the figures mean, and the speed-up in the colour of that; an empty line is hidden."""
        self.reason.show_text(meaning.text, "warning" if meaning.color == "warning" else "text")
        self.ratio.set_color(meaning.color)

    def _show_ratio(self, source: FigureSource) -> None:
        """Show how many times as fast as without drafting, or that it is about the same within its error."""
        low, high = source.statistics.speedup_range or (0.0, 0.0)
        alike = source.statistics.as_fast
        self.ratio.setVisible(high > 0 and not alike)
        self.alike.setVisible(alike)
        tip = f"{DEFINITIONS['Speed-up']} It is between {formatting.ratio(low)} and {formatting.ratio(high)}."
        set_tip(self.ratio, tip)
        set_tip(self.alike, tip)
        times = FIGURES["Speed-up"](source)
        self.ratio.setText(times)
        # A range, such as `1.6 to 2.9x`, gets a smaller font: it must fit beside the speed in the narrowest panel.
        larger = 5 if len(times) < len("about 2x") else 1
        self.ratio.setFont(control_font(larger, bold=not source.statistics.was_hindered, tabular=True))
        self.ratio.setAccessibleName(f"{times.removesuffix('x')} times as fast as without drafting")


class TimeSection(Section):
    """Shows how the time of a reply was spent."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Time")
        self.bar = self.insert_row(TimeBar(theme))
        self.rows = {spent: self.insert_row(TimeRow(theme, *STAGES[spent], spent)) for spent in Spent}
        self.total = self.insert_row(TimeRow(theme, "Total", _TOTAL))
        tip = "Show more figures of the last reply, and every stage of all replies since rdchat was opened"
        self.ledger = self.insert_row(push_button("Details", tip))
        self.show_statistics(Statistics())

    def show_statistics(self, statistics: Statistics) -> None:
        milliseconds = spent_ms(statistics)
        total = sum(milliseconds.values())
        self.bar.show_times(milliseconds)
        for spent, figure in self.rows.items():
            time = milliseconds.get(spent, 0.0)
            figure.show_time(time, total)
            figure.setVisible(bool(time) or spent is not Spent.SEEING)
        self.total.show_time(total, total)


class TimeRow(FigureRow):
    """A time with its share of the reply's, and its colour in the bar; the total has no colour."""

    def __init__(self, theme: Theme, name: str, definition: str, spent: Spent | None = None) -> None:
        super().__init__(theme, name, definition, "text" if spent else "muted")
        self.share = ThemedLabel(theme, "", "muted", tabular=True)
        self.share.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.share.setMinimumWidth(self.share.fontMetrics().horizontalAdvance(formatting.share(1.0)))
        self.parts.addWidget(self.share)
        if spent:
            self.parts.insertWidget(0, ThemedLabel(theme, "■", spent.name.lower(), -3))

    def show_time(self, milliseconds: float, total: float) -> None:
        """Show a time and its share of the total; a time too short to be shown is a dash without a share."""
        share = formatting.share(milliseconds / total) if milliseconds >= _MIN_MS else ""
        self.share.setText(share)
        more = f", {share} of the reply" if share else ""
        self.show_value(formatting.duration(milliseconds if share else 0.0), more)


class FigureSection(Section):
    """A folded section with a row for each of its figures, which are built when it is first unfolded."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, name)
        self.rows: dict[str, FigureRow] = {}
        self._source = FigureSource()
        self.fold(True)

    def show_figures(self, source: FigureSource) -> None:
        """Show figures now, or once the section is unfolded."""
        self._source = source
        if self.rows:
            self._fill(source)

    def _show_body(self, visible: bool) -> None:
        if visible and not self.rows:
            self._build()
            self._fill(self._source)
        super()._show_body(visible)

    def _build(self) -> None:
        self.rows = {figure: self.insert_row(FigureRow(self.theme, figure)) for figure in SECTIONS[self.name]}

    def _fill(self, source: FigureSource) -> None:
        for figure in self.rows.values():
            figure.show_figure(source)


class DraftFigures(FigureSection):
    """The tokens that were drafted, checked and accepted; dashes and no charts if nothing was drafted."""

    def _build(self) -> None:
        super()._build()
        self._headings: dict[BarChart, ThemedLabel] = {}
        self.lengths = self._add_chart("Steps by tokens kept", _LENGTHS)
        self.positions = self._add_chart(_POSITIONS, DEFINITIONS[_POSITIONS])

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.insert_row(ThemedLabel(self.theme, name, "muted"))
        set_tip(heading, definition)
        heading.setContentsMargins(0, TIGHT, 0, 0)
        chart = self.insert_row(BarChart(self.theme, name, definition))
        self._headings[chart] = heading
        return chart

    def _fill(self, source: FigureSource) -> None:
        super()._fill(source)
        statistics = source.statistics
        self.lengths.show_bars(_length_bars(statistics) if statistics.drafted_rounds else ())
        self.positions.show_bars(
            [
                Bar(str(number), share, f"{share * 100:.0f}", f"Position {number}: {formatting.percent(share)} kept")
                for number, share in enumerate(statistics.acceptance_by_position, start=1)
            ]
        )
        for chart, heading in self._headings.items():
            chart.setVisible(bool(chart.bars))
            heading.setVisible(bool(chart.bars))


def _length_bars(statistics: Statistics) -> list[Bar]:
    """Return a bar for each number of drafted tokens that a step could keep, also for those that no step kept.

    Drafts of up to 3 tokens, of which at most 1 was kept (`lengths_of_drafts` is `(10, 30)`), give four bars, for 0, 1,
    2 and 3 kept tokens, with the values 10, 30, 0 and 0. `lengths_of_drafts` is as long as `accepted_lengths`, which
    ends at the most that was kept; `drafted_lengths` ends at the longest draft.
    """
    unreached = len(statistics.drafted_lengths) - len(statistics.accepted_lengths)
    counts = (*statistics.lengths_of_drafts, *(0 for _ in range(unreached)))
    total = sum(counts)
    highest = max(counts)
    if highest <= 0:
        # A remote server does not report the lengths.
        return []
    of_all = f"of {counted(total, 'step')}"
    return [
        Bar(
            str(length),
            rounds / highest,
            f"{rounds:,}",
            f"{length} kept: {rounds:,} {of_all}, {formatting.percent(rounds / total)}",
        )
        for length, rounds in enumerate(counts)
    ]


class MemorySection(FigureSection):
    """The context in use, and the memory of weights and reply."""

    def _build(self) -> None:
        super()._build()
        self.context_bar = self.insert_row(ThinBar("Context used"), 1)

    def _fill(self, source: FigureSource) -> None:
        super()._fill(source)
        used, limit = source.context
        self.context_bar.setValue(min(round(used / limit * 1000), 1000) if limit else 0)


class ModelSection(FigureSection):
    """The loaded model's name, precision, processor and size."""

    def _build(self) -> None:
        super()._build()
        self.model_name = self.insert_row(ElidedLabel(self.theme), 0)

    def _fill(self, source: FigureSource) -> None:
        super()._fill(source)
        none = "None" if source.state is EngineState.NO_MODEL else formatting.NONE
        self.model_name.setText(source.model.name if source.model else none)


class StatusLine(QWidget):
    """The app's status, with a bar during a wait."""

    def __init__(self, status: AppStatus, theme: Theme) -> None:
        super().__init__()
        self._status = status
        self.state = ElidedLabel(theme, "", "muted")
        self.state.setFont(control_font(tabular=True))
        self.progress = ThinBar("Progress", 4)
        keep_room(self.progress)
        column(self.state, self.progress, within=self, spacing=TIGHT)
        status.changed.connect(self._show_status)
        self._show_status()

    def _show_status(self) -> None:
        status = self._status.value
        self.state.setText(status.text)
        self.progress.setVisible(status.state in _WAITS)
        show_share(self.progress, status.share)
