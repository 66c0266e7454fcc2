"""The right side: which model runs, what it is doing, and how fast, with each figure's definition as its tooltip."""

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QScrollArea, QVBoxLayout, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.events import FinishReason, LoadProgress, PrefillProgress
from rdchat.inference.requests import Role
from rdchat.inference.statistics import Statistics
from rdchat.services.chat_controller import ChatController
from rdchat.services.events import EngineState
from rdchat.ui import figures
from rdchat.ui.labels import ElidedLabel, Ground, Separator, ThemedLabel, wrapped
from rdchat.ui.sparkline import Sparkline
from rdchat.ui.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_WHY_ENDED = "Why the reply ended."
_REFRESH_MS = 100  # figures that change faster cannot be read
_FEW_TOKENS = 8  # a prefill shorter than this is one call, and its rate says nothing
_BUSY = (EngineState.PREFILL, EngineState.WRITING)
_STATE_WORDS = {
    EngineState.LOADING: "Loading the model…",
    EngineState.IDLE: "Idle",
    EngineState.PREFILL: "Reading the prompt…",
    EngineState.WRITING: "Writing",
    EngineState.NO_MODEL: "No model is loaded",
}


class Figure(QWidget):
    """One row: a name, and its value in figures of one width at the right edge."""

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__()
        self._name = name
        self.value = ThemedLabel(theme, figures.NONE, tabular=True)
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        label = ThemedLabel(theme, name, "muted")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(label)
        row.addWidget(self.value, 1)
        self.define(definition)
        self.show_value(figures.NONE)

    def define(self, definition: str) -> None:
        self.setToolTip(wrapped(definition))

    def show_value(self, words: str) -> None:
        self.value.setText(words)
        self.value.setAccessibleName(f"{self._name}: {words}")  # a bare figure would say nothing to a screen reader


class Section(QWidget):
    """A heading with rows below it."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(TIGHT + 2)
        self._rows.addWidget(ThemedLabel(theme, name, points_more=-0.5, bold=True))

    def add[W: QWidget](self, row: W) -> W:
        self._rows.addWidget(row)
        return row


class SpeedPanel(QScrollArea):
    """Follows the controller, at most ten times a second; between replies it keeps the last one's figures."""

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._controller, self._theme = controller, theme
        self._pending: Statistics | None = None
        self._context_tokens = 0
        self._timer = QTimer(self, interval=_REFRESH_MS, singleShot=True)
        self._timer.timeout.connect(self._show_pending)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName("Speed panel")
        self.setMinimumWidth(220)
        ground = Ground(theme, "window")
        self._column = QVBoxLayout(ground)
        self._column.setContentsMargins(LARGE - 4, MEDIUM + TIGHT, LARGE - 4, MEDIUM)
        self._column.setSpacing(MEDIUM)
        self._build_model()
        self._build_speed()
        self._build_reply()
        self._build_memory()
        self._column.addStretch(1)
        self.setWidget(ground)
        self._connect()
        self._show_state()
        self._show_last_reply()

    def _build_model(self) -> None:
        model = self._section("Model")
        self.model_name = model.add(ElidedLabel(self._theme, bold=True))
        self.state = model.add(ElidedLabel(self._theme, "", "muted"))
        self.state.setFont(ThemedLabel(self._theme, tabular=True).font())
        self.progress = model.add(QProgressBar(textVisible=False, maximum=1000))
        self.progress.setAccessibleName("Progress")
        self.progress.setFixedHeight(6)
        policy = self.progress.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # what stands below keeps its place
        self.progress.setSizePolicy(policy)
        self.dtype = model.add(Figure(self._theme, "Precision", "The format the model's weights are held in."))
        self.device = model.add(Figure(self._theme, "Runs on", "The processor that computes the model."))
        self.parameters = model.add(Figure(self._theme, "Parameters", "Number of weights of the model."))

    def _build_speed(self) -> None:
        speed = self._section("Speed")
        head = QWidget()
        row = QHBoxLayout(head)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(TIGHT + 2)
        self.decode = ThemedLabel(self._theme, figures.NONE, points_more=12, bold=True, tabular=True)
        unit = ThemedLabel(self._theme, "tokens/s decode", "muted")
        row.addWidget(self.decode, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(unit, 1, Qt.AlignmentFlag.AlignBottom)
        unit.setContentsMargins(0, 0, 0, 4)
        head.setToolTip(
            wrapped(
                "Tokens written a second, after the first one: (tokens written - 1) / decode time. "
                "Reading the prompt is not part of it."
            )
        )
        speed.add(head)
        self.sparkline = speed.add(Sparkline(self._theme))
        self.sparkline.setContentsMargins(0, 0, 0, SMALL)
        self.sparkline.setToolTip(
            wrapped("Decode speed during this reply, from zero up; each point is a quarter of a second.")
        )
        self.prefill = speed.add(
            Figure(
                self._theme,
                "Prefill",
                "Prompt tokens read a second, until the first token is known. "
                "Tokens kept from the turn before do not count.",
            )
        )
        self.ttft = speed.add(
            Figure(self._theme, "Time to first token", "From the request until the first token of the reply is known.")
        )

    def _build_reply(self) -> None:
        reply = self._section("Reply")
        self.tokens = reply.add(
            Figure(
                self._theme,
                "Tokens written",
                "Tokens of the reply: the first one and a final end token included, what a stop string cuts excluded.",
            )
        )
        self.prompt = reply.add(
            Figure(self._theme, "Prompt tokens", "Tokens of the whole conversation that the model was given.")
        )
        self.cached = reply.add(
            Figure(
                self._theme, "Kept from before", "Prompt tokens that were in the cache already and were not read again."
            )
        )
        self.finish = reply.add(Figure(self._theme, "Ended", _WHY_ENDED))

    def _build_memory(self) -> None:
        memory = self._section("Memory")
        self.context = memory.add(
            Figure(
                self._theme,
                "Context",
                "Tokens in the model's context at this moment, of the most that prompt and reply may have together.",
            )
        )
        self.context_bar = memory.add(QProgressBar(textVisible=False, maximum=1000))
        self.context_bar.setFixedHeight(6)
        self.context_bar.setAccessibleName("Context used")
        self.weights = memory.add(Figure(self._theme, "Weights", "Memory that the model's weights take."))
        self.peak = memory.add(Figure(self._theme, "Peak memory", "The most memory MLX held during the reply."))

    def sizeHint(self) -> QSize:
        return QSize(280, 600)

    def _section(self, name: str) -> Section:
        if self._column.count():
            self._column.addWidget(Separator(self._theme))
        section = Section(self._theme, name)
        self._column.addWidget(section)
        self._column.setSpacing(MEDIUM)
        return section

    def _connect(self) -> None:
        controller = self._controller
        controller.state_changed.connect(self._show_state)
        controller.load_progressed.connect(self._show_load)
        controller.prefill_progressed.connect(self._show_prefill)
        controller.statistics_changed.connect(self._note_statistics)
        controller.message_added.connect(self._note_new_message)
        controller.message_changed.connect(self._note_message)
        controller.conversation_opened.connect(self._show_last_reply)

    def _show_state(self) -> None:
        state, model = self._controller.state, self._controller.model
        self.state.setText(_STATE_WORDS[state])
        self.progress.setVisible(state in (EngineState.LOADING, EngineState.PREFILL))
        self.progress.setRange(0, 0)
        none = "None" if state is EngineState.NO_MODEL else figures.NONE
        self.model_name.setText(model.name if model else none)
        self.dtype.show_value(figures.dtype_words(model.dtype) if model else figures.NONE)
        self.device.show_value(model.device if model else figures.NONE)
        self.parameters.show_value(figures.parameters(model.parameters) if model else figures.NONE)
        self.weights.show_value(figures.memory(model.weights_bytes if model else 0))
        self._show_context()

    def _show_load(self, progress: LoadProgress) -> None:
        self.state.setText(figures.load_words(progress))
        self.progress.setRange(0, 0 if progress.fraction is None else 1000)
        if progress.fraction is not None:
            self.progress.setValue(round(progress.fraction * 1000))

    def _show_prefill(self, progress: PrefillProgress) -> None:
        self.state.setText(f"Reading the prompt {progress.processed:,} of {progress.total:,}")
        self.progress.setRange(0, max(progress.total, 1))
        self.progress.setValue(progress.processed)

    def _note_statistics(self, statistics: Statistics) -> None:
        self._pending = statistics
        if not self._timer.isActive():
            self._show_pending()
            self._timer.start()

    def _show_pending(self) -> None:
        if self._pending is not None:
            statistics, self._pending = self._pending, None
            if self._controller.state in _BUSY:
                self.sparkline.add(statistics)
            self._show_statistics(statistics)
            self._timer.start()

    def _note_new_message(self, message: Message) -> None:
        if message.role is Role.ASSISTANT and message.status is MessageStatus.STREAMING:
            self._begin(Statistics())

    def _note_message(self, message: Message) -> None:
        if message.role is not Role.ASSISTANT or message.status is MessageStatus.STREAMING or not message.statistics:
            return
        self._pending = None
        self._show_statistics(message.statistics)
        self._show_finish(message.finish_reason)

    def _show_last_reply(self) -> None:
        if self._controller.state in _BUSY:
            return  # the figures are those of the reply that is being written
        replies = [message for message in self._controller.messages if message.statistics]
        self._begin(replies[-1].statistics if replies and replies[-1].statistics else Statistics())
        if replies:
            self._show_finish(replies[-1].finish_reason)

    def _begin(self, statistics: Statistics) -> None:
        self._pending = None
        self.sparkline.clear()
        self._show_finish(None)
        self._show_statistics(statistics)

    def _show_finish(self, reason: FinishReason | None) -> None:
        self.finish.show_value(figures.FINISH_WORDS[reason] if reason else figures.NONE)
        self.finish.define(f"{_WHY_ENDED} {figures.FINISH_REASONS[reason] if reason else ''}".strip())

    def _show_statistics(self, statistics: Statistics) -> None:
        self.decode.setText(figures.rate(statistics.decode_tps))
        self.decode.set_color("muted" if statistics.decode_tps is None else "text")
        read = statistics.prompt_tokens - statistics.cached_prompt_tokens
        prefill = figures.rate(statistics.prefill_tps if read >= _FEW_TOKENS else None)
        self.prefill.show_value(prefill if prefill == figures.NONE else f"{prefill} tokens/s")
        self.ttft.show_value(figures.duration(statistics.ttft_ms))
        self.tokens.show_value(figures.count(statistics.generated_tokens))
        self.prompt.show_value(figures.count(statistics.prompt_tokens))
        self.cached.show_value(figures.count(statistics.cached_prompt_tokens))
        self.peak.show_value(figures.memory(statistics.peak_memory_bytes))
        self._context_tokens = statistics.context_tokens
        self._show_context()

    def _show_context(self) -> None:
        model = self._controller.model
        used, limit = self._context_tokens, model.context_length if model else 0
        self.context.show_value(f"{used:,} of {limit:,}" if limit else figures.NONE)
        self.context_bar.setValue(min(round(used / limit * 1000), 1000) if limit else 0)
