"""The speed panel's sections of figures: drafts, reply, memory and model; and the line of the engine's state."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from PySide6.QtWidgets import QWidget

from rdchat.inference.api.events import FinishReason, LoadProgress, ModelInfo, PrefillProgress
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode
from rdchat.services.context.chat_context import SummaryProgress
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.speed.charts import Bar, BarChart
from rdchat.ui.speed.sections import FigureRow, Section
from rdchat.ui.style import definitions, formatting
from rdchat.ui.style.formatting import FINISH_REASONS, FINISH_TEXT
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


class Shown(NamedTuple):
    """The reply, the model and the engine's state that the panel shows."""

    statistics: Statistics = Statistics()
    finish: FinishReason | None = None
    mode: Mode | None = None  # that the reply was drafted with; None where that is not known
    model: ModelInfo | None = None
    state: EngineState = EngineState.NO_MODEL

    @property
    def context(self) -> tuple[int, int]:
        """Tokens in the context, and the most that it takes; 0 without a model."""
        return self.statistics.context_tokens, self.model.context_length if self.model else 0


def _context_text(shown: Shown) -> str:
    used, limit = shown.context
    return f"{used:,} of {limit:,}" if used and limit else f"Up to {limit:,}" if limit else formatting.NONE


class Figure(NamedTuple):
    """A row of a section."""

    name: str
    definition: str
    words: Callable[[Shown], str]  # returns the words for its value


def _of_reply(name: str, definition: str, words: Callable[[Statistics], str]) -> Figure:
    return Figure(name, definition, lambda shown: words(shown.statistics))


def _of_model(name: str, definition: str, words: Callable[[ModelInfo], str]) -> Figure:
    return Figure(name, definition, lambda shown: words(shown.model) if shown.model else formatting.NONE)


_FIGURES: Mapping[str, Sequence[Figure]] = {  # by section
    "Drafts": (
        _of_reply("Drafted from this chat", definitions.FROM_CHAT, lambda s: formatting.count(s.from_chat)),
        _of_reply("From earlier replies", definitions.FROM_REPLIES, lambda s: formatting.count(s.from_replies)),
        _of_reply(
            "By the drafter",
            definitions.FROM_DRAFTER,
            lambda s: formatting.count(s.accepted - s.from_chat - s.from_replies),
        ),
        _of_reply("Steps with a draft", definitions.ROUNDS, lambda s: formatting.count(s.drafted_rounds)),
        _of_reply("Checked per step", definitions.NODES, formatting.checked_per_step),
        _of_reply("Kept per step", definitions.KEPT, formatting.accepted_per_step),
        _of_reply(
            "Waits per step",
            definitions.HOST_SYNCS,
            lambda s: formatting.decimal(s.host_syncs / s.target_calls if s.target_calls and s.rounds else None),
        ),
    ),
    "Reply": (
        _of_reply("Tokens written", definitions.TOKENS_WRITTEN, lambda s: formatting.count(s.generated_tokens)),
        _of_reply(
            "Prompt tokens",
            "Tokens of the whole chat that the model was given.",
            lambda s: formatting.count(s.prompt_tokens),
        ),
        _of_reply(
            "Kept from before",
            "Prompt tokens that the model remembered and did not read again.",
            lambda s: formatting.count(s.cached_prompt_tokens),
        ),
        _of_reply(
            "Reading speed",
            "Prompt tokens read per second, until the first token is known. Tokens kept from before do not count.",
            lambda s: formatting.reading_speed(s) or formatting.NONE,
        ),
        _of_reply("Time to first token", definitions.TTFT, lambda s: formatting.duration(s.ttft_ms)),
        _of_reply("Writing time", definitions.DECODE_TIME, lambda s: formatting.duration(s.decode_ms)),
        Figure(
            "Ended",
            "\n".join(["Why the reply ended."] + [f"{words}: {FINISH_REASONS[r]}" for r, words in FINISH_TEXT.items()]),
            lambda shown: FINISH_TEXT[shown.finish] if shown.finish else formatting.NONE,
        ),
    ),
    "Memory": (
        Figure(
            "Context",
            f"{definitions.CONTEXT} The second number is the model's limit.",
            _context_text,
        ),
        _of_model("Weights", "Memory that the model's weights take.", lambda m: formatting.memory(m.weights_bytes)),
        _of_reply("Peak memory", definitions.PEAK_MEMORY, lambda s: formatting.memory(s.peak_memory_bytes)),
        _of_reply("Earlier replies", definitions.EARLIER_REPLIES, lambda s: formatting.memory(s.earlier_bytes)),
    ),
    "Model": (
        _of_model("Precision", definitions.PRECISION, lambda m: formatting.dtype_text(m.dtype)),
        _of_model("Runs on", "The processor that computes the model.", lambda m: m.device),
        _of_model("Parameters", "Number of weights of the model.", lambda m: formatting.parameters(m.parameters)),
    ),
}


class FigureSection(Section):
    """A section with a row for each of its figures."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, name)
        self.rows = {
            figure.name: self.add(FigureRow(theme, figure.name, figure.definition)) for figure in _FIGURES[name]
        }

    def show_figures(self, shown: Shown) -> None:
        for figure in _FIGURES[self.name]:
            self.rows[figure.name].show_value(figure.words(shown))


class DraftFigures(FigureSection):
    """What was drafted, checked and kept; dashes and empty charts if nothing was drafted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Drafts")
        self.lengths = self._add_chart("Steps by tokens kept", definitions.LENGTHS)
        self.positions = self._add_chart("Acceptance by position, %", definitions.POSITIONS)

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.add(ThemedLabel(self.theme, name, "muted"))
        set_tip(heading, definition)
        heading.setContentsMargins(0, TIGHT, 0, 0)
        return self.add(BarChart(self.theme, name, definition))

    def show_figures(self, shown: Shown) -> None:
        super().show_figures(shown)
        statistics = shown.statistics
        self.lengths.show_bars(_length_bars(statistics) if statistics.drafted_rounds else ())
        self.positions.show_bars(
            [
                Bar(str(place), share, f"{share * 100:.0f}", f"Position {place}: {formatting.percent(share)} kept")
                for place, share in enumerate(statistics.acceptance_by_position, start=1)
            ]
        )


def _length_bars(statistics: Statistics) -> list[Bar]:
    """Return a bar for each possible number of kept tokens, also for those that no step reached."""
    missing = len(statistics.drafted_lengths) - len(statistics.accepted_lengths)
    counts = (*statistics.lengths_of_drafts, *(0 for _ in range(missing)))
    whole, most = sum(counts), max(counts)
    words = f"of {formatting.counted(whole, 'step')}"
    return [
        Bar(
            str(length),
            rounds / most,
            f"{rounds:,}",
            f"{length} kept: {rounds:,} {words}, {formatting.percent(rounds / whole)}",
        )
        for length, rounds in enumerate(counts)
    ]


class MemorySection(FigureSection):
    """The context in use, and the memory of weights and reply."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory")
        self.context_bar = self.add(thin_bar("Context used", 6), 1)

    def show_figures(self, shown: Shown) -> None:
        super().show_figures(shown)
        used, limit = shown.context
        self.context_bar.setValue(min(round(used / limit * 1000), 1000) if limit else 0)


class ModelSection(FigureSection):
    """The loaded model's name, precision, processor and size."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Model")
        self.model_name = self.add(ElidedLabel(theme), 0)

    def show_figures(self, shown: Shown) -> None:
        super().show_figures(shown)
        none = "None" if shown.state is EngineState.NO_MODEL else formatting.NONE
        self.model_name.setText(shown.model.name if shown.model else none)


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
        whole = 0 if progress.fraction is None else 1000
        self._show(formatting.load_text(progress), round((progress.fraction or 0.0) * 1000), whole)

    def show_prefill(self, progress: PrefillProgress) -> None:
        words = f"Reading the prompt: {progress.processed:,} of {progress.total:,}"
        self._show(words, progress.processed, max(progress.total, 1))

    def show_summary(self, progress: SummaryProgress) -> None:
        """Show how far the model is with the summary of a chat."""
        reading = f"Reading for a summary: {progress.read:,} of {progress.to_read:,}"
        self._show("Writing a summary…" if progress.written else reading, progress.read, progress.to_read)
        self.progress.setVisible(not progress.written)

    def _show(self, words: str, done: int, whole: int) -> None:
        """Show a state and its progress; a whole of 0 moves the bar without an end."""
        self.state.setText(words)
        self.progress.setRange(0, whole)
        self.progress.setValue(done)
