"""The parts of the speed panel: figures, folds, rows, and the line of the app's status.

`verdict` returns the line on what a reply's figures mean: whether drafting made it faster. It claims only what was
measured, and gives no verdict, good or bad, while other work keeps the computer busy.
"""

from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.inference.api import PATH_SEPARATOR, Mode, Spent, Statistics, grouped_entries, ledger_rows, spent_ms
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.app_status import AppStatus
from rdchat.ui.speed.figures import (
    DETAILS,
    FIGURES,
    Bar,
    BarChart,
    FigureSource,
    Sparkline,
    TimeBar,
    acceptance_by_position,
)
from rdchat.ui.style import (
    DEFINITIONS,
    MEDIUM,
    STAGES,
    TIGHT,
    ElidedLabel,
    SectionHead,
    Theme,
    ThemedLabel,
    ThinBar,
    column,
    control_font,
    discard,
    formatting,
    keep_room,
    push_button,
    row,
    set_tip,
    show_share,
    small_text,
)
from rdchat.wording import counted

# Parameters below which a model's steps are so short that a draft often costs more than it saves.
_SMALL_MODEL = 1_000_000_000
# Steps with a draft from which on a loss is blamed on drafting.
_ENOUGH_DRAFTS = 10
# States whose progress a bar shows.
_WAITS = (EngineState.LOADING, EngineState.PREFILL, EngineState.SHORTENING)
# Shorter times of a stage are shown as a dash.
_MIN_MS = 0.5
# By which a row of times is indented below the row that it is a part of, in pixels.
_INDENT = 12
# Definitions of the charts of drafts; `_POSITIONS` is the name of one.
_LENGTHS = (
    "Steps with a draft by the number of drafted tokens they kept. The model itself adds one more token in each step."
)
_POSITIONS = "Acceptance by position, %"


class Verdict(NamedTuple):
    """What the figures of a reply mean.

    Attributes:
        text: The line.
        color: `success` for a gain, `warning` for a loss, `muted` if a busy computer allows no comparison, else `text`.
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
        return Verdict("Too early to compare" if writing else "Too short to compare")
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
        return "Too small to gain: measured" if is_loss else "Nothing was worth drafting"
    return "Not compared yet: rdchat measures while it is idle" if now else "Not compared"


def _compared(figures: Statistics, low: float, high: float) -> Verdict:
    """Return the verdict on a speed-up between two values: a gain if both are above 1, a loss if both are below.

    A loss is no warning where Auto has paused drafting, or where few steps had a draft: these alone do not explain it.
    Between a gain and a loss, it is as fast if the range is narrow (`as_fast`).
    """
    if figures.others_share is None:
        return Verdict("No verdict: it is not known how busy the computer was", "muted")
    times = FIGURES["Speed-up"](FigureSource(figures))
    if low > 1:
        return Verdict(f"{times} faster with drafting".capitalize(), "success")
    if high < 1:
        if figures.choice and figures.choice.mode == Mode.OFF:
            return Verdict("Auto paused drafting: it was not faster")
        if figures.drafted_rounds < _ENOUGH_DRAFTS:
            return Verdict("Too few drafts to compare")
        return Verdict(f"Slower with drafting: {times}", "warning")
    return Verdict("As fast as without drafting" if figures.as_fast else f"Faster or slower with drafting: {times}")


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
        self.brief = small_text(theme)
        column(self.head, self.brief, self._body, within=self, spacing=TIGHT + 2)
        self.head.toggled.connect(self._show_body)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))
        self.fold(True)

    def insert_row[W: QWidget](self, row: W, index: int = -1) -> W:
        """Add a row at an index from the top; -1 is the end."""
        self._rows.insertWidget(index, row)
        return row

    def fold(self, folded: bool) -> None:
        """Fold or unfold it without emitting `folded`."""
        self.head.setChecked(not folded)

    def show_brief(self, text: str, color: str) -> None:
        """Show a text in place of the rows while they are folded."""
        self.brief.show_text(text, color)
        self._show_body(self.head.isChecked())

    def _show_body(self, visible: bool) -> None:
        self._body.setVisible(visible)
        self.brief.setVisible(not visible and bool(self.brief.text()))


class SpeedFigures(QWidget):
    """What a reply's figures mean, whose they are, and the figures that are always in view."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.reason = ThemedLabel(theme, "", points_more=1, bold=True, wraps=True)
        self.owner = ElidedLabel(theme, "", "muted", -1)
        self.decode = ThemedLabel(theme, formatting.NONE, points_more=13, bold=True, tabular=True)
        self.unit = ElidedLabel(theme, "tokens/s", "muted")
        self.unit.setContentsMargins(0, 0, 0, 4)
        self.plain = FigureRow(theme, "Without drafting")
        keep_room(self.plain)
        self.acceptance = FigureRow(theme, "Acceptance", large=True)
        self.per_step = FigureRow(theme, "Tokens per step", large=True)
        self.sparkline = Sparkline(theme)
        self.times = TimeShares(theme)
        head = row(self.decode, (self.unit, 1), spacing=TIGHT + 2)
        for part in (self.decode, self.unit):
            head.setAlignment(part, Qt.AlignmentFlag.AlignBottom)
            set_tip(part, DEFINITIONS["Speed"])
        tiles = row((self.acceptance, 1), (self.per_step, 1))
        self.figures = QWidget()
        figures = head, self.plain, TIGHT, tiles, self.sparkline, TIGHT, self.times
        column(*figures, within=self.figures, spacing=TIGHT)
        column(self.reason, self.owner, self.figures, within=self, spacing=TIGHT)

    def show_figures(self, source: FigureSource, meaning: Verdict) -> None:
        """Show the figures of a reply, and what they mean; that is hidden if it is empty."""
        statistics = source.statistics
        self.reason.show_text(meaning.text, "text" if meaning.color == "muted" else meaning.color)
        # A busy computer had another load when the speed without drafting was measured: neither speed is shown.
        is_hindered = meaning.color == "muted"
        decode = formatting.rate(statistics.decode_tps)
        self.decode.show_text(decode, "muted" if statistics.decode_tps is None else "text")
        self.decode.setAccessibleName(f"Writing: {decode} tokens a second")
        for part in (self.decode, self.unit):
            part.setVisible(not is_hindered and (not source.how.server or statistics.decode_tps is not None))
        for figure in (self.acceptance, self.per_step):
            figure.show_figure(source)
        plain = FIGURES["Without drafting"](source).removesuffix(" tokens/s")
        self.plain.show_value(plain)
        self.plain.setVisible(plain != formatting.NONE and not is_hindered)
        self.sparkline.show_speeds(statistics.speeds)
        self.times.show_statistics(statistics)
        self.times.setVisible(not source.how.server)


class TimeShares(QWidget):
    """Shows how the time of a reply was spent: a bar of the shares, and a row for each."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.bar = TimeBar(theme)
        self.rows = {spent: FigureRow(theme, *STAGES[spent], "text") for spent in Spent}
        for spent, figure in self.rows.items():
            figure.parts.insertWidget(0, ThemedLabel(theme, "■", spent.name.lower(), -3))
        column(self.bar, *self.rows.values(), within=self, spacing=TIGHT + 2)
        self.show_statistics(Statistics())

    def show_statistics(self, statistics: Statistics) -> None:
        milliseconds = spent_ms(statistics)
        total = sum(milliseconds.values())
        self.bar.show_times(milliseconds)
        for spent, figure in self.rows.items():
            time = milliseconds.get(spent, 0.0)
            figure.show_value(formatting.share(time / total) if time >= _MIN_MS else formatting.NONE)
            figure.setVisible(bool(time) or spent is not Spent.SEEING)


class TimeRows(QWidget):
    """The times of a reply by function: the ledger's rows, each with the parts of a row indented below it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.rows: dict[str, FigureRow] = {}
        self._column = column(within=self, spacing=TIGHT + 2)

    def show_statistics(self, statistics: Statistics) -> None:
        stages = {
            f"{each.parent}{PATH_SEPARATOR}{each.name}": each
            for each in ledger_rows(grouped_entries(statistics.ledger))
        }
        if stages.keys() != self.rows.keys():
            discard(*self.rows.values())
            self.rows = {
                path: FigureRow(self._theme, *STAGES.get(each.name, (each.name, each.name)))
                for path, each in stages.items()
            }
            for path, figure in self.rows.items():
                figure.setContentsMargins(stages[path].depth * _INDENT, 0, 0, 0)
                self._column.addWidget(figure)
        for path, figure in self.rows.items():
            figure.show_value(formatting.duration(stages[path].total_ms))


class Details(Section):
    """The rarer figures of a reply and its model, by group, which are built when the section is first unfolded."""

    def __init__(self, theme: Theme) -> None:
        self.rows: dict[str, FigureRow] = {}
        self._source = FigureSource()
        self._groups: dict[str, QWidget] = {}
        super().__init__(theme, "Details")
        tip = "Show where the time of all replies since rdchat was opened went, by stage"
        self.ledger = self.insert_row(push_button("Time of All Replies", tip))

    def show_figures(self, source: FigureSource) -> None:
        """Show figures now, or once the section is unfolded."""
        self._source = source
        if self.head.isChecked():
            self._fill(source)

    def _show_body(self, visible: bool) -> None:
        if visible and not self.rows:
            self._build()
        if visible:
            self._fill(self._source)
        super()._show_body(visible)

    def _build(self) -> None:
        theme = self.theme
        self.times = TimeRows(theme)
        self.lengths = BarChart(theme, "Steps that kept 0, 1, 2… tokens", _LENGTHS)
        self.positions = BarChart(theme, _POSITIONS, DEFINITIONS[_POSITIONS])
        self._add_group("Time", self.times)
        for name, figures in DETAILS.items():
            rows = {figure: FigureRow(theme, figure) for figure in figures}
            charts = (self.lengths, self.positions) if name == "Drafts" else ()
            self._add_group(name, *rows.values(), *charts)
            self.rows |= rows

    def _add_group(self, name: str, *parts: QWidget) -> None:
        heading = ThemedLabel(self.theme, name, points_more=-0.5, bold=True)
        group = QWidget()
        column(heading, *parts, within=group, spacing=TIGHT + 2, margins=(0, MEDIUM, 0, 0))
        # Above the button.
        self._groups[name] = self.insert_row(group, self._rows.count() - 1)

    def _fill(self, source: FigureSource) -> None:
        statistics = source.statistics
        self.times.show_statistics(statistics)
        for figure in self.rows.values():
            figure.show_figure(source)
        self.lengths.show_bars(_length_bars(statistics) if statistics.drafted_rounds else ())
        self.positions.show_bars(
            [
                Bar(str(number), share, f"{share * 100:.0f}", f"Position {number}: {formatting.percent(share)} kept")
                for number, share in enumerate(acceptance_by_position(statistics), start=1)
            ]
        )
        self._groups["Time"].setVisible(bool(self.times.rows))
        for name, figures in DETAILS.items():
            has_values = any(text(source) != formatting.NONE for text in figures.values())
            self._groups[name].setVisible(has_values)


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
