"""The speed panel's sections of figures: drafts, reply, memory and model; and the line of the engine's state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from PySide6.QtWidgets import QWidget

from rdchat.inference.api.events import FinishReason, LoadProgress, ModelInfo, PrefillProgress
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.services.context.summariser import SummaryProgress
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, thin_bar
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.speed.charts import Bar, BarChart
from rdchat.ui.speed.sections import Section

_STATE_WORDS = {
    EngineState.LOADING: "Loading the model…",
    EngineState.IDLE: "Idle",
    EngineState.PREFILL: "Reading the prompt…",
    EngineState.WRITING: "Writing",
    EngineState.NO_MODEL: "No model is loaded",
}
_FEW_TOKENS = 8  # a shorter prefill is one call, and its rate means nothing
_WHY_ENDED = "Why the reply ended."


class Shown(NamedTuple):
    """The reply, the model and the engine's state that the panel shows."""

    statistics: Statistics = Statistics()
    finish: FinishReason | None = None
    model: ModelInfo | None = None
    state: EngineState = EngineState.NO_MODEL

    @property
    def context(self) -> tuple[int, int]:
        """Tokens in the context, and the most that it takes; 0 without a model."""
        return self.statistics.context_tokens, self.model.context_length if self.model else 0


class Figure[T](NamedTuple):
    """A row of a section: its name, its definition and the words for its value."""

    name: str
    definition: str
    words: Callable[[T], str]


def _prefill(statistics: Statistics) -> str:
    read = statistics.prompt_tokens - statistics.cached_prompt_tokens
    rate = formatting.rate(statistics.prefill_tps if read >= _FEW_TOKENS else None)
    return rate if rate == formatting.NONE else f"{rate} tokens/s"


_DRAFTS: Sequence[Figure[Statistics]] = (
    Figure("Rounds", definitions.ROUNDS, lambda s: formatting.count(s.rounds)),
    Figure(
        "Verified nodes per round",
        definitions.NODES,
        lambda s: formatting.decimal(s.verified_nodes / s.rounds if s.rounds else None),
    ),
    Figure(
        "Host syncs per round",
        definitions.HOST_SYNCS,
        lambda s: formatting.decimal(s.host_syncs / s.target_calls if s.target_calls and s.rounds else None),
    ),
)
_REPLY: Sequence[Figure[Statistics]] = (
    Figure("Tokens written", definitions.TOKENS_WRITTEN, lambda s: formatting.count(s.generated_tokens)),
    Figure(
        "Prompt tokens",
        "Tokens of the whole conversation that the model was given.",
        lambda s: formatting.count(s.prompt_tokens),
    ),
    Figure(
        "Kept from before",
        "Prompt tokens that were in the cache already and were not read again.",
        lambda s: formatting.count(s.cached_prompt_tokens),
    ),
    Figure(
        "Prefill",
        "Prompt tokens read a second, until the first token is known. Tokens kept from the turn before do not count.",
        _prefill,
    ),
    Figure("Time to first token", definitions.TTFT, lambda s: formatting.duration(s.ttft_ms)),
    Figure("Decode time", definitions.DECODE_TIME, lambda s: formatting.duration(s.decode_ms)),
)
_MEMORY: Sequence[Figure[Shown]] = (
    Figure(
        "Context",
        f"{definitions.CONTEXT} The second number is the most that they may be together.",
        lambda shown: "{:,} of {:,}".format(*shown.context) if shown.model else formatting.NONE,
    ),
    Figure(
        "Weights",
        "Memory that the model's weights take.",
        lambda shown: formatting.memory(shown.model.weights_bytes if shown.model else 0),
    ),
    Figure("Peak memory", definitions.PEAK_MEMORY, lambda shown: formatting.memory(shown.statistics.peak_memory_bytes)),
)
_MODEL: Sequence[Figure[ModelInfo]] = (
    Figure("Precision", "The format the model's weights are held in.", lambda m: formatting.dtype_words(m.dtype)),
    Figure("Runs on", "The processor that computes the model.", lambda m: m.device),
    Figure("Parameters", "Number of weights of the model.", lambda m: formatting.parameters(m.parameters)),
)


class FigureSection[T](Section):
    """A section with a row for each figure of `T`."""

    def __init__(self, theme: Theme, name: str, figures: Sequence[Figure[T]]) -> None:
        super().__init__(theme, name)
        self._figures = figures
        self.rows = {figure.name: self.add_figure(figure.name, figure.definition) for figure in figures}

    def show_values(self, source: T | None) -> None:
        """Show the figures of a source; of None dashes."""
        for figure in self._figures:
            self.rows[figure.name].show_value(formatting.NONE if source is None else figure.words(source))


class DraftFigures(FigureSection[Statistics]):
    """What was drafted, accepted and verified; dashes and empty charts if nothing was drafted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Drafts", _DRAFTS)
        self.lengths = self._add_chart("Accepted length", definitions.LENGTHS)
        self.positions = self._add_chart("Acceptance by position, %", definitions.POSITIONS)

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.add(ThemedLabel(self.theme, name, "muted"))
        set_tip(heading, definition)
        heading.setContentsMargins(0, TIGHT, 0, 0)
        return self.add(BarChart(self.theme, name, definition))

    def show_figures(self, shown: Shown) -> None:
        statistics = shown.statistics
        self.show_values(statistics)
        self.lengths.show_bars(_length_bars(statistics) if statistics.rounds else ())
        self.positions.show_bars(
            [
                Bar(str(place), share, f"{share * 100:.0f}", f"Position {place}: {formatting.percent(share)} accepted")
                for place, share in enumerate(statistics.acceptance_by_position, start=1)
            ]
        )


def _length_bars(statistics: Statistics) -> list[Bar]:
    """Return a bar for each accepted length that was possible, also for those that no round reached."""
    missing = len(statistics.drafted_lengths) - len(statistics.accepted_lengths)
    counts = (*statistics.accepted_lengths, *(0 for _ in range(missing)))
    whole, most = sum(counts), max(counts)
    words = f"of {formatting.counted(whole, 'round')}"
    return [
        Bar(
            str(length),
            rounds / most,
            f"{rounds:,}",
            f"{length} accepted: {rounds:,} {words}, {formatting.percent(rounds / whole)}",
        )
        for length, rounds in enumerate(counts)
    ]


class ReplySection(FigureSection[Statistics]):
    """Tokens and times of the reply and its prompt, and why it ended."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Reply", _REPLY)
        self.finish = self.add_figure("Ended", _WHY_ENDED)

    def show_figures(self, shown: Shown) -> None:
        reason = shown.finish
        self.show_values(shown.statistics)
        self.finish.show_value(formatting.FINISH_WORDS[reason] if reason else formatting.NONE)
        set_tip(self.finish, f"{_WHY_ENDED} {formatting.FINISH_REASONS[reason]}" if reason else _WHY_ENDED)


class MemorySection(FigureSection[Shown]):
    """The context in use, and the memory of weights and reply."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory", _MEMORY)
        self.context_bar = self.add(thin_bar("Context used", 6), 1)

    def show_figures(self, shown: Shown) -> None:
        used, limit = shown.context
        self.show_values(shown)
        self.context_bar.setValue(min(round(used / limit * 1000), 1000) if limit else 0)


class ModelSection(FigureSection[ModelInfo]):
    """The loaded model's name, precision, processor and size."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Model", _MODEL)
        self.model_name = self.add(ElidedLabel(theme), 0)

    def show_figures(self, shown: Shown) -> None:
        none = "None" if shown.state is EngineState.NO_MODEL else formatting.NONE
        self.model_name.setText(shown.model.name if shown.model else none)
        self.show_values(shown.model)


class StatusLine(QWidget):
    """The engine's state, with its progress while it loads a model or reads a prompt."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.state = ElidedLabel(theme, "", "muted")
        self.state.setFont(ThemedLabel(theme, tabular=True).font())
        self.progress = thin_bar("Progress", 4)
        policy = self.progress.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # the widgets below do not move
        self.progress.setSizePolicy(policy)
        column(self.state, self.progress, within=self, spacing=TIGHT)

    def show_state(self, state: EngineState) -> None:
        self._show(_STATE_WORDS[state], 0, 0)
        self.progress.setVisible(state in (EngineState.LOADING, EngineState.PREFILL))

    def show_load(self, progress: LoadProgress) -> None:
        whole = 0 if progress.fraction is None else 1000
        self._show(formatting.load_words(progress), round((progress.fraction or 0.0) * 1000), whole)

    def show_prefill(self, progress: PrefillProgress) -> None:
        words = f"Reading the prompt {progress.processed:,} of {progress.total:,}"
        self._show(words, progress.processed, max(progress.total, 1))

    def show_summary(self, progress: SummaryProgress) -> None:
        """Show how far the model is with the summary of a chat."""
        reading = f"Reading for a summary {progress.read:,} of {progress.to_read:,}"
        self._show("Writing a summary" if progress.written else reading, progress.read, progress.to_read)
        self.progress.setVisible(not progress.written)

    def _show(self, words: str, done: int, whole: int) -> None:
        """Show a state and its progress; a whole of 0 moves the bar without an end."""
        self.state.setText(words)
        self.progress.setRange(0, whole)
        self.progress.setValue(done)
