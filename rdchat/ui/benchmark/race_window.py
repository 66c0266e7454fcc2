"""The race window: a prompt and a drafting mode above, the two replies, and the outcome below.

The two replies of a race, replayed: the view of one reply, and the clock of both.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

from PySide6.QtCore import QElapsedTimer, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QTextCursor
from PySide6.QtWidgets import QGridLayout, QPlainTextEdit, QSlider, QSpinBox, QWidget

from rdchat.errors import RdchatError
from rdchat.inference.api import BenchPiece, DraftSettings, Mode, fresh_seed
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.benchmark import RaceResult, Replay
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    MODES,
    SMALL,
    TIGHT,
    ElidedLabel,
    PlainLabel,
    Separator,
    SideWindow,
    Theme,
    ThemedLabel,
    ThinBar,
    announce,
    choice_box,
    column,
    formatting,
    push_button,
    row,
    set_tip,
    show_in_front,
    show_share,
    text_field,
)
from rdchat.wording import counted

_FRAME_MS = 33
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")
_MODES = tuple(mode for mode in Mode if mode is not Mode.OFF)
_INTRODUCTION = (
    "The model answers the prompt twice, once without drafting and once with it. The chat's earlier messages and "
    "images are not sent. Then both replies are played back side by side at their real speed."
)


class ReplayView(QWidget):
    """Shows a reply while it is written, then its record as it was at a moment: text, speed and time.

    Attributes:
        written: Tokens of the reply that is being written.
    """

    def __init__(self, theme: Theme, name: str, placeholder: str) -> None:
        super().__init__()
        self._replay: Replay | None = None
        self.written = 0
        self.name = ElidedLabel(theme, name, bold=True)
        self.speed = ThemedLabel(theme, formatting.NONE, "muted", points_more=10, bold=True, tabular=True)
        self.state = ThemedLabel(theme, " ", "muted", tabular=True)
        self.text = QPlainTextEdit(readOnly=True, tabChangesFocus=True, placeholderText=placeholder)
        self.progress = ThinBar(name)
        head = QGridLayout()
        head.setHorizontalSpacing(TIGHT + 2)
        head.setVerticalSpacing(0)
        head.addWidget(self.name, 0, 0, 1, 2)
        unit = ThemedLabel(theme, "tokens/s", "muted")
        unit.setContentsMargins(0, 0, 0, TIGHT)
        head.addWidget(self.speed, 1, 0)
        head.addWidget(unit, 1, 1, Qt.AlignmentFlag.AlignBottom)
        head.addWidget(self.state, 2, 0, 1, 2)
        head.setColumnStretch(1, 1)
        head.setColumnMinimumWidth(0, self.fontMetrics().horizontalAdvance("000.0") * 2)  # So the unit does not move.
        column(head, self.progress, (self.text, 1), within=self)
        self._theme = theme
        theme.changed.connect(self._restyle)
        self._restyle()
        self.show_name(name)

    def show_name(self, name: str) -> None:
        self.name.setText(name)
        self.text.setAccessibleName(f"Reply: {name}")
        self.progress.setAccessibleName(f"Progress: {name}")

    def show_replay(self, replay: Replay | None) -> None:
        """Take another recorded reply, and show nothing of it yet."""
        self._replay = replay
        self.written = 0
        self.text.clear()
        self.speed.show_text(formatting.NONE, "muted")
        self.state.show_text(" ", "muted")  # An empty label would be lower.
        show_share(self.progress, 0.0)

    def show_token(self, text: str, limit: int) -> None:
        """Show one more token of the reply that is being written, of at most `limit` tokens."""
        self.written += 1
        self.state.setText(f"Writing… {counted(self.written, 'token')}")
        show_share(self.progress, self.written / limit)
        self.text.moveCursor(QTextCursor.MoveOperation.End)
        self.text.insertPlainText(text)

    def show_waiting(self) -> None:
        """Show that the other reply is being written."""
        self.state.setText("Done" if self.written else "Waiting for its turn")
        show_share(self.progress, 1.0 if self.written else 0.0)

    def show_reading(self) -> None:
        """Show that the prompt is read for this reply, which has not written yet."""
        self.state.setText("Reading the prompt")
        show_share(self.progress, None)

    def show_moment(self, clock_ms: float) -> None:
        """Show the reply as it was `clock_ms` after the request; the clock can go back."""
        if self._replay is None:
            return
        state = self._replay.at(clock_ms)
        bar = self.text.verticalScrollBar()
        position = bar.value()
        at_end = bar.value() == bar.maximum()
        self.text.setPlainText(_BOLD.sub(r"\1", self._replay.text[: state.characters]))
        bar.setValue(bar.maximum() if at_end else position)
        self.speed.show_text(formatting.rate(state.tokens_per_s), "muted" if state.tokens_per_s is None else "text")
        elapsed = f"{state.elapsed_ms / 1000:.2f} s"
        text = f"{counted(state.tokens, 'token')}, {elapsed} with reading" if state.ended else elapsed
        self.state.show_text(text, "success" if state.ended else "muted")
        total = len(self._replay.run.token_ids)
        self.progress.setValue(round(1000 * state.tokens / total) if total else 0)

    def _restyle(self) -> None:
        self.text.setFont(self._theme.body_font())


class Playback(QWidget):
    """Counts the milliseconds of a replay from 0 to its end; `moved` has the moment, in ms."""

    moved = Signal(float)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._since_frame = QElapsedTimer()
        self._frames = QTimer(self, interval=_FRAME_MS, timerType=Qt.TimerType.PreciseTimer)
        self.play = push_button("Play", "Play or pause the replay", self.toggle)
        self.skip = push_button("To the End", "Skip the replay", lambda: self.slider.setValue(self.slider.maximum()))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setPageStep(1000)
        self.slider.setAccessibleName("Moment of the replay")
        set_tip(self.slider, "Drag back to see a moment again, or to the end to skip the replay")
        self.clock = ThemedLabel(theme, "", "muted", tabular=True)
        row(self.play, (self.slider, 1), self.clock, self.skip, within=self)
        self._frames.timeout.connect(lambda: self.slider.setValue(self.slider.value() + self._since_frame.restart()))
        self.slider.valueChanged.connect(self._on_moved)
        self.rewind(0.0)

    @property
    def playing(self) -> bool:
        return self._frames.isActive()

    @property
    def at_end(self) -> bool:
        return bool(self.slider.value() == self.slider.maximum())

    def rewind(self, duration_ms: float) -> None:
        """Rewind to the start of a new replay; 0 clears it."""
        self._frames.stop()
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, ceil(duration_ms))
            self.slider.setValue(0)
        self.setEnabled(duration_ms > 0)
        self._show()

    def restart(self) -> None:
        self.slider.setValue(0)
        self._run(running=True)

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""
        if self.at_end:
            self.restart()
        else:
            self._run(running=not self.playing)

    def pause_replay(self) -> None:
        self._run(running=False)

    def _run(self, *, running: bool) -> None:
        self._since_frame.restart()
        if running:
            self._frames.start()
        else:
            self._frames.stop()
        self._show()

    def _on_moved(self, moment: int) -> None:
        self.moved.emit(moment)
        if self.at_end:
            self._frames.stop()
        self._show()

    def _show(self) -> None:
        self.play.setText("Pause" if self.playing else "Play")
        moment = self.slider.value() / 1000
        total = self.slider.maximum() / 1000
        self.clock.setText(f"{moment:.1f} of {total:.1f} s" if total else "")


def obstacle(controller: ChatController) -> str:
    """Return why no race or benchmark can start now: there is one at a time, and it needs a model; else nothing."""
    state = controller.replies.state
    if state is EngineState.NO_MODEL:
        return "No model is loaded. Choose one first."
    if state is EngineState.LOADING:
        return "The model is still loading."
    if controller.race.running:
        return "A race is running."
    return "A benchmark is running." if controller.benchmark.running else ""


def follow_obstacles(controller: ChatController, show: Callable[[], object]) -> None:
    """Call a method whenever `obstacle` may have changed."""
    controller.replies.state_changed.connect(show)
    for job in (controller.race, controller.benchmark):
        for happened in (job.started, job.ended, job.failed):
            happened.connect(show)


def waiting_text(controller: ChatController) -> str:
    """Return what a race or a benchmark that has not begun yet waits for."""
    replying = controller.replies.state in (EngineState.PREFILL, EngineState.WRITING)
    return "Waiting for the reply that is being written…" if replying else "Starting…"


class RaceWindow(SideWindow):
    """Starts races and replays the last one. Closing the window ends a race that runs."""

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Race", (860, 640), (600, 440), parent)
        self._controller = controller
        self._race = controller.race
        self._drafting = controller.drafting
        self._result: RaceResult | None = None
        # Raced instead of the chat's own settings.
        self._tried: DraftSettings | None = None
        # While it is prepared, its time so far is shown.
        self._seconds = QTimer(self, interval=1000)
        self._build_question()
        self.status = ThemedLabel(theme, "", "muted", wraps=True)
        self.problem = ThemedLabel(theme, "", "warning", wraps=True)
        self.plain = ReplayView(theme, Mode.OFF.label, "The reply without drafting appears here.")
        self.drafted = ReplayView(theme, "Drafting", "The reply with drafting appears here.")
        self.playback = Playback(theme)
        self.speed_up = ThemedLabel(
            theme, "One prompt, two replies", points_more=3, bold=True, wraps=True, selectable=True
        )
        self.verdict = ThemedLabel(theme, _INTRODUCTION, "muted", wraps=True, selectable=True)
        self.verdict.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.verdict.setMinimumHeight(2 * self.verdict.fontMetrics().lineSpacing())  # The replies keep their height.
        self._lay_out(theme)
        self._connect()
        self._show_state()

    def _build_question(self) -> None:
        tip = "Sent without the rest of the chat, at the chat's temperature"
        self.prompt = text_field(3, "What should the model answer?", "Prompt", tip)
        self.mode = choice_box("Drafting", "", ((mode.label, mode) for mode in _MODES), letters=0)
        self.token_limit = QSpinBox(minimum=16, maximum=2048, singleStep=32, value=128, suffix=" tokens")
        self.token_limit.setGroupSeparatorShown(True)
        self.token_limit.setAccessibleName("Longest reply")
        set_tip(self.token_limit, "The longest that each reply may be")
        self.start = push_button("Start Race", "", self._press)
        self.start.setDefault(True)

    def _lay_out(self, theme: Theme) -> None:
        drafting = PlainLabel("Drafting")
        up_to = PlainLabel("Up to")
        choices = row(drafting, self.mode, SMALL, up_to, self.token_limit, (self.status, 1), self.start)
        replies = row((self.plain, 1), (self.drafted, 1), spacing=LARGE)
        column(
            *(self.prompt, choices, self.problem, Separator(theme)),
            *((replies, 1), self.playback, self.speed_up, self.verdict),
            within=self,
            spacing=MEDIUM,
            margins=(LARGE, LARGE - 4, LARGE, LARGE - 4),
        )

    def _connect(self) -> None:
        race = self._race
        self.prompt.textChanged.connect(self._show_state)
        self.mode.currentIndexChanged.connect(self._show_state)
        self.playback.moved.connect(self.plain.show_moment)
        self.playback.moved.connect(self.drafted.show_moment)
        race.piece_written.connect(self._show_piece)
        race.finished.connect(self.show_result)
        race.stopped.connect(lambda: self._show_verdict("The race was stopped.", "muted"))
        race.failed.connect(lambda failure: self._show_verdict(str(failure), "danger"))
        follow_obstacles(self._controller, self._show_state)
        self._seconds.timeout.connect(self._show_state)
        race.progressed.connect(self._show_step)
        self._drafting.changed.connect(self._show_state)

    def try_draft(self, draft: DraftSettings, prompt: str) -> None:
        """Show the window with draft settings other than the chat's; see `open_with` for the prompt."""
        self.open_with(prompt)
        self._tried = draft
        self.mode.setCurrentIndex(self.mode.findData(draft.mode))
        self._show_state()

    def open_with(self, prompt: str) -> None:
        """Show the window with a prompt; what was typed here stays, and an empty prompt keeps the present one."""
        self._tried = None
        typed = self.prompt.document().isModified() and self.prompt.toPlainText().strip()
        if not self._race.running and prompt and not typed:
            self.prompt.setPlainText(prompt)
        if not self.isVisible():
            chosen = self._drafting.settings.mode
            self.mode.setCurrentIndex(self.mode.findData(Mode.AUTO if chosen is Mode.OFF else chosen))
        self._drafting.refresh_options()
        show_in_front(self)
        (self.start if self.prompt.toPlainText().strip() else self.prompt).setFocus()

    def show_result(self, result: RaceResult) -> None:
        """Take a race's replies, and replay them if the window is visible."""
        self._show_state()
        self._load(result)
        self.speed_up.setText(result.speed_text)
        parted = "muted" if result.parted_by_rounding else "warning"
        self._show_verdict(result.verdict, "success" if result.difference is None else parted)
        self.setAccessibleDescription(f"{result.speed_text} {result.verdict}")
        announce(self)
        if self.isVisible():
            self.playback.restart()
            self.playback.play.setFocus()

    def _show_piece(self, piece: BenchPiece) -> None:
        """Show text of a reply as it is written."""
        plan = self._race.plan
        assert plan is not None, "text comes from a plan that runs"
        view, other = (self.plain, self.drafted) if plan.all_cells[piece.cell].plain else (self.drafted, self.plain)
        view.show_token(piece.text, plan.max_tokens)
        other.show_waiting()

    def _show_step(self) -> None:
        """Show what is done: the next reply has not written yet, and a last comparison may take a while."""
        progress = self._race.progress
        if progress is not None and progress.done:
            for view in (self.plain, self.drafted):
                if view.written:
                    view.show_waiting()
                else:
                    view.show_reading()
        self._show_state()

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self._race.end_runs()
        self.playback.pause_replay()

    def _press(self) -> None:
        if self._race.running:
            self.start.setEnabled(False)
            self._race.end_runs()
            return
        own_seed = self._controller.settings.values.seed
        seed = fresh_seed() if own_seed is None else own_seed
        prompt = self.prompt.toPlainText().strip()
        temperature = self._controller.chat.values.sampling.temperature
        draft = replace(self._tried or self._drafting.settings, mode=Mode(self.mode.currentData()))
        self._load(None)
        try:
            self._race.begin_race(prompt, draft, temperature, seed, self.token_limit.value())
        except RdchatError as error:
            self.verdict.setText(str(error))

    def _load(self, result: RaceResult | None) -> None:
        """Stand at the beginning of a race's replies; None clears the last race."""
        self._result = result
        name = result.name if result else Mode(self.mode.currentData()).label
        self.drafted.show_name(name)
        self.plain.show_replay(result.plain if result else None)
        self.drafted.show_replay(result.drafted if result else None)
        self.speed_up.setText("")
        self.verdict.setText("")
        self.playback.rewind(result.duration_ms if result else 0.0)

    def _show_verdict(self, text: str, color: str) -> None:
        self.verdict.show_text(text, color)
        self._show_state()

    def _show_state(self) -> None:
        running = self._race.running
        if running != self._seconds.isActive():
            if running:
                self._seconds.start()
            else:
                self._seconds.stop()
        mode = Mode(self.mode.currentData())
        set_tip(self.mode, self._problem(mode) or MODES[mode])
        for part in (self.prompt, self.mode, self.token_limit):
            part.setEnabled(not running)
        missing = "" if self.prompt.toPlainText().strip() else "Type a prompt first."
        reason = "" if running else obstacle(self._controller) or missing
        problem = "" if running else self._problem(mode)
        self.problem.show_text(f"{problem} Choose another drafting mode." if problem else "")
        self.start.setText("Stop Race" if running else "Start Race")
        self.start.setEnabled(running or not (reason or problem))
        waiting = self._race.step_text or waiting_text(self._controller)
        self.status.setText(waiting if running else reason or self._race_text())
        if self._result is None and not (self.plain.written or self.drafted.written):
            for view in (self.plain, self.drafted):
                show_share(view.progress, None if running else 0.0)

    def _problem(self, mode: Mode) -> str:
        """Return why a mode cannot run; empty if it can, or the engine has not answered yet."""
        option = self._drafting.option(mode)
        if self._tried is not None and mode is self._tried.mode:
            return ""  # The engine has answered for the chat's own drafter.
        return option.reason if option is not None and not option.available else ""

    def _race_text(self) -> str:
        """Return the drafter or draft model that is tried in the chosen mode; empty if it is the chat's own."""
        if self._tried is None or Mode(self.mode.currentData()) is not self._tried.mode:
            return ""
        named = self._tried.named(self._tried.mode)
        return f"With {Path(named).name}" if named else ""
