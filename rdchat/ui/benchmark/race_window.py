"""The race window: a prompt and a drafting mode above, the two replies, and the outcome below."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QSpinBox, QWidget

from rdchat.errors import RdchatError
from rdchat.inference.api.benchmark import BenchPiece
from rdchat.inference.api.requests import DraftSettings, Mode, fresh_seed
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.benchmark import RaceResult
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.benchmark.replay import Playback, ReplayView
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.definitions import MODES
from rdchat.ui.style.labels import PlainLabel, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, row, show_share, text_field
from rdchat.ui.style.opening import SideWindow, announce, show_in_front
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme

_MODES = tuple(mode for mode in Mode if mode is not Mode.OFF)
_INTRODUCTION = (
    "The model answers the prompt twice, once without drafting and once with it. The chat's earlier messages and "
    "images are not sent. Then both replies are played back side by side at their real speed."
)


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
        race.failed.connect(lambda failure: self._show_verdict(f"{failure.message} {failure.hint}".strip(), "danger"))
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
        view.write(piece.text, plan.max_tokens)
        other.wait()

    def _show_step(self) -> None:
        """Show what is done: the next reply has not written yet, and a last comparison may take a while."""
        progress = self._race.progress
        if progress is not None and progress.done:
            for view in (self.plain, self.drafted):
                if view.written:
                    view.wait()
                else:
                    view.read()
        self._show_state()

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self._race.stop()
        self.playback.pause()

    def _press(self) -> None:
        if self._race.running:
            self.start.setEnabled(False)
            self._race.stop()
            return
        own_seed = self._controller.settings.values.seed
        seed = fresh_seed() if own_seed is None else own_seed
        prompt = self.prompt.toPlainText().strip()
        temperature = self._controller.chat.values.sampling.temperature
        draft = replace(self._tried or self._drafting.settings, mode=Mode(self.mode.currentData()))
        self._load(None)
        try:
            self._race.begin(prompt, draft, temperature, seed, self.token_limit.value())
        except RdchatError as error:
            self.verdict.setText(str(error))

    def _load(self, result: RaceResult | None) -> None:
        """Stand at the beginning of a race's replies; None clears the last race."""
        self._result = result
        name = result.name if result else Mode(self.mode.currentData()).label
        self.drafted.show_name(name)
        self.plain.load(result.plain if result else None)
        self.drafted.load(result.drafted if result else None)
        self.speed_up.setText("")
        self.verdict.setText("")
        self.playback.load(result.duration_ms if result else 0.0)

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
