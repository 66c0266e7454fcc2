"""The speed panel's sections of figures: drafts, reply, memory and model; and the line of the engine's state."""

from PySide6.QtWidgets import QWidget

from rdchat.inference.api.events import LoadProgress, PrefillProgress
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.services.context.chat_context import SummaryProgress
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.speed.charts import Bar, BarChart
from rdchat.ui.speed.figures import DEFINITIONS, FIGURES, SECTIONS, FigureSource
from rdchat.ui.speed.sections import FigureRow, Section
from rdchat.ui.style import formatting
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import column, keep_room, thin_bar
from rdchat.ui.style.theme import TIGHT, Theme

_STATE_TEXT = {
    EngineState.LOADING: "Loading the model…",
    EngineState.IDLE: "Ready",
    EngineState.PREFILL: "Reading the prompt…",
    EngineState.WRITING: "Writing…",
    EngineState.NO_MODEL: "No model loaded",
}


_LENGTHS = (
    "Steps with a draft by the number of drafted tokens they kept. The model itself adds one more token in each step."
)
_POSITIONS = "Acceptance by position, %"


class FigureSection(Section):
    """A section with a row for each of its figures."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, name)
        self.rows = {figure: self.add(FigureRow(theme, figure)) for figure in SECTIONS[name]}

    def show_figures(self, source: FigureSource) -> None:
        for name, figure in self.rows.items():
            figure.show_value(FIGURES[name](source))


class DraftFigures(FigureSection):
    """What was drafted, checked and kept; dashes and empty charts if nothing was drafted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Drafts")
        self.lengths = self._add_chart("Steps by tokens kept", _LENGTHS)
        self.positions = self._add_chart(_POSITIONS, DEFINITIONS[_POSITIONS])

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.add(ThemedLabel(self.theme, name, "muted"))
        set_tip(heading, definition)
        heading.setContentsMargins(0, TIGHT, 0, 0)
        return self.add(BarChart(self.theme, name, definition))

    def show_figures(self, source: FigureSource) -> None:
        super().show_figures(source)
        statistics = source.statistics
        self.lengths.show_bars(_length_bars(statistics) if statistics.drafted_rounds else ())
        self.positions.show_bars(
            [
                Bar(str(number), share, f"{share * 100:.0f}", f"Position {number}: {formatting.percent(share)} kept")
                for number, share in enumerate(statistics.acceptance_by_position, start=1)
            ]
        )


def _length_bars(statistics: Statistics) -> list[Bar]:
    """Return a bar for each possible number of kept tokens, also for those that no step reached."""
    missing = len(statistics.drafted_lengths) - len(statistics.accepted_lengths)
    counts = (*statistics.lengths_of_drafts, *(0 for _ in range(missing)))
    total, highest = sum(counts), max(counts)
    of_all = f"of {formatting.counted(total, 'step')}"
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

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory")
        self.context_bar = self.add(thin_bar("Context used", 6), 1)

    def show_figures(self, source: FigureSource) -> None:
        super().show_figures(source)
        used, limit = source.context
        self.context_bar.setValue(min(round(used / limit * 1000), 1000) if limit else 0)


class ModelSection(FigureSection):
    """The loaded model's name, precision, processor and size."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Model")
        self.model_name = self.add(ElidedLabel(theme), 0)

    def show_figures(self, source: FigureSource) -> None:
        super().show_figures(source)
        none = "None" if source.state is EngineState.NO_MODEL else formatting.NONE
        self.model_name.setText(source.model.name if source.model else none)


class StatusLine(QWidget):
    """The engine's state, with its progress while it loads a model or reads a prompt."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.state = ElidedLabel(theme, "", "muted")
        self.state.setFont(ThemedLabel(theme, tabular=True).font())
        self.progress = thin_bar("Progress", 4)
        keep_room(self.progress)
        self._state: EngineState | None = None
        column(self.state, self.progress, within=self, spacing=TIGHT)

    def show_state(self, state: EngineState) -> None:
        if state is not EngineState.LOADING or state is not self._state:  # what is loaded is shown already
            self._show(_STATE_TEXT[state], 0, 0)
        self._state = state
        self.progress.setVisible(state in (EngineState.LOADING, EngineState.PREFILL))

    def show_load(self, progress: LoadProgress) -> None:
        maximum = 0 if progress.fraction is None else 1000
        self._show(formatting.load_text(progress), round((progress.fraction or 0.0) * 1000), maximum)

    def show_prefill(self, progress: PrefillProgress) -> None:
        text = f"Reading the prompt: {progress.processed:,} of {progress.total:,}"
        self._show(text, progress.processed, max(progress.total, 1))

    def show_summary(self, progress: SummaryProgress) -> None:
        """Show how far the model is with the summary of a chat."""
        reading = f"Reading for a summary: {progress.read:,} of {progress.to_read:,}"
        self._show("Writing a summary…" if progress.written else reading, progress.read, progress.to_read)
        self.progress.setVisible(not progress.written)

    def _show(self, text: str, done: int, maximum: int) -> None:
        """Show a state and its progress; a maximum of 0 moves the bar without an end."""
        self.state.setText(text)
        self.progress.setRange(0, maximum)
        self.progress.setValue(done)
