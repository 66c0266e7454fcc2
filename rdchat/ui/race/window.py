"""The race window: prompt and drafting mode above, the two replies, and the outcome below."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QWidget,
)

from rdchat.errors import RdchatError
from rdchat.inference.api.requests import DraftSettings, Mode, fresh_seed
from rdchat.services.chat.chat_list import ChatList
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.engine_events import Failure
from rdchat.services.engine.race import Race, RaceResult
from rdchat.ui.benchmark.obstacles import Obstacles
from rdchat.ui.look import formatting
from rdchat.ui.look.focus import show_in_front
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import PlainLabel, set_tip, tip_text
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme
from rdchat.ui.race.playback import Playback
from rdchat.ui.race.replay_view import ReplayView

_PLAIN = "Drafting off"
_MODES = tuple(mode for mode in Mode if mode is not Mode.OFF)
_HEADING = "One prompt, two replies"
_INTRODUCTION = (
    "The prompt is answered twice, once without drafting and once with it, one after the other. "
    "Then both are replayed side by side, just as fast as they were written."
)
_LETTERS = "W: beam width, L: beam length, K: draft tokens."


class RaceWindow(QDialog):
    """Starts races and replays the last one. Closing it ends a race that runs.

    Args:
        race: Drafting against plain decoding.
        drafting: Which ways of drafting are to be had, and the chat's own.
        obstacles: What stands in the way of a race.
        desk: Has the sampling of the open chat.
        preferences: Have the sampling of the others, and the seed.
        theme: The appearance to follow.
        parent: What the window stays above.
    """

    def __init__(
        self,
        race: Race,
        *,
        drafting: DraftControl,
        obstacles: Obstacles,
        desk: ChatList,
        preferences: SettingsControl,
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self._race, self._drafting, self._obstacles = race, drafting, obstacles
        self._desk, self._preferences, self._theme = desk, preferences, theme
        self._result: RaceResult | None = None
        self._tried: DraftSettings | None = None  # what races in the place of the chat's own settings
        self.setWindowTitle("Race")
        self.setMinimumSize(600, 440)
        self._build_question()
        self.plain = ReplayView(theme, _PLAIN, "The reply without drafting is replayed here.")
        self.drafted = ReplayView(theme, "Drafting", "The reply with drafting is replayed here.")
        self.playback = Playback(theme)
        self.speed_up = ThemedLabel(theme, _HEADING, points_more=3, bold=True)
        self.verdict = ThemedLabel(theme, _INTRODUCTION, "muted")
        for label in (self.speed_up, self.verdict):
            label.setWordWrap(True)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.verdict.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.verdict.setMinimumHeight(2 * self.verdict.fontMetrics().lineSpacing())  # replies keep their height
        self._lay_out()
        self._connect()
        self._show_state()
        self.resize(860, 640)

    def _build_question(self) -> None:
        self.prompt = QPlainTextEdit(tabChangesFocus=True)
        self.prompt.setAccessibleName("Prompt")
        self.prompt.setPlaceholderText("What both are asked")
        set_tip(self.prompt, "Asked by itself, without the chat before it, at the chat's temperature")
        self.prompt.setFixedHeight(self.prompt.fontMetrics().lineSpacing() * 3 + 14)
        self.mode = QComboBox()
        self.mode.setAccessibleName("Drafting")
        for mode in _MODES:
            self.mode.addItem(mode.words, mode)
        self.most_tokens = QSpinBox(minimum=16, maximum=2048, singleStep=32, value=128, suffix=" tokens")
        self.most_tokens.setAccessibleName("Tokens at most")
        set_tip(self.most_tokens, "Where a reply ends at the latest")
        self.start = QPushButton("Start race")
        self.start.setDefault(True)
        self.status = ThemedLabel(self._theme, "", "muted")
        self.status.setWordWrap(True)
        self.problem = ThemedLabel(self._theme, "", "warning")
        self.problem.setWordWrap(True)

    def _lay_out(self) -> None:
        drafting, most = PlainLabel("Drafting"), PlainLabel("At most")
        choices = row(drafting, self.mode, SMALL, most, self.most_tokens, (self.status, 1), self.start)
        question = column(self.prompt, choices, self.problem, Separator(self._theme), spacing=MEDIUM)
        replies = row((self.plain, 1), (self.drafted, 1), spacing=LARGE)
        outcome = column(self.playback, self.speed_up, self.verdict, spacing=MEDIUM)
        margins = LARGE, LARGE - 4, LARGE, LARGE - 4
        column(question, (replies, 1), outcome, within=self, spacing=MEDIUM, margins=margins)

    def _connect(self) -> None:
        race = self._race
        self.start.clicked.connect(self._press)
        self.prompt.textChanged.connect(self._show_state)
        self.mode.currentIndexChanged.connect(self._show_state)
        self.playback.moved.connect(self.plain.show_moment)
        self.playback.moved.connect(self.drafted.show_moment)
        self.playback.finished.connect(self._show_outcome)
        race.started.connect(self._show_state)
        race.progressed.connect(self._show_state)
        race.finished.connect(self.show_result)
        race.stopped.connect(self._on_stopped)
        race.failed.connect(self._on_failed)
        for changed in (self._obstacles.changed, self._drafting.changed):
            changed.connect(self._show_state)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)

    def try_draft(self, draft: DraftSettings, prompt: str) -> None:
        """Show the window with a way of drafting that the chat need not have; see `open_with` for the prompt."""
        self.open_with(prompt)
        self._tried = draft
        self.mode.setCurrentIndex(self.mode.findData(draft.mode))
        self._show_state()

    def open_with(self, prompt: str) -> None:
        """Show the window with a prompt; an empty one leaves what it had."""
        self._tried = None
        if not self._race.running and prompt:
            self.prompt.setPlainText(prompt)
        if not self.isVisible():
            chosen = self._drafting.settings.mode
            self.mode.setCurrentIndex(self.mode.findData(Mode.AUTO if chosen is Mode.OFF else chosen))
        self._drafting.refresh_options()
        show_in_front(self)
        (self.start if self.prompt.toPlainText().strip() else self.prompt).setFocus()

    def show_result(self, result: RaceResult) -> None:
        """Replay a race from its beginning, at once where it is seen."""
        self._result = result
        self._show_state()
        self.drafted.show_name(result.name)
        set_tip(self.drafted.name, f"{result.name}. {_LETTERS}")
        self.plain.load(result.plain)
        self.drafted.load(result.drafted)
        self.speed_up.setText("")
        self.verdict.setText("")
        self.playback.load(result.duration_ms)
        if self.isVisible():
            self.playback.restart()
            self.playback.play.setFocus()

    def closeEvent(self, event: QCloseEvent) -> None:
        self._race.stop()
        self.playback.pause()
        event.accept()  # a dialog's own would call `reject`

    def reject(self) -> None:
        """Close on Esc as on the window's button."""
        self.close()

    def _press(self) -> None:
        if self._race.running:
            self.start.setEnabled(False)
            self._race.stop()
            return
        settings = self._preferences.settings
        mode, seed = Mode(self.mode.currentData()), settings.seed
        sampling = self._desk.chat.sampling or settings.sampling
        draft = replace(self._tried or self._drafting.settings, mode=mode)
        self._forget()
        try:
            self._race.begin(
                self.prompt.toPlainText().strip(),
                draft,
                sampling.temperature,
                fresh_seed() if seed is None else seed,
                self.most_tokens.value(),
            )
        except RdchatError as error:
            self.verdict.setText(str(error))

    def _forget(self) -> None:
        """Take the last race away: what it showed is not what is being raced."""
        self._result = None
        self.playback.load(0.0)
        self.speed_up.setText("")
        self.verdict.setText("")
        for replay in (self.plain, self.drafted):
            replay.load(None)
        self.drafted.show_name(Mode(self.mode.currentData()).words)
        set_tip(self.drafted.name, "")

    def _show_outcome(self) -> None:
        if self._result is not None:
            self.speed_up.setText(self._result.speed_words)
            parted = "muted" if self._result.parted_by_rounding else "warning"
            self.verdict.set_color("success" if self._result.difference is None else parted)
            self.verdict.setText(self._result.verdict)

    def _on_stopped(self) -> None:
        self.verdict.set_color("muted")
        self.verdict.setText("The race was stopped.")
        self._show_state()

    def _on_failed(self, failure: Failure) -> None:
        self.verdict.set_color("danger")
        self.verdict.setText(f"{failure.message} {failure.hint}".strip())
        self._show_state()

    def _show_state(self) -> None:
        running = self._race.running
        self._show_modes()
        for part in (self.prompt, self.mode, self.most_tokens):
            part.setEnabled(not running)
        reason = "" if running else self._reason_not_to_start()
        problem = "" if running else self._problem(Mode(self.mode.currentData()))
        self.problem.setText(f"{problem} Choose another way of drafting." if problem else "")
        self.problem.setVisible(bool(problem))
        self.start.setText("Stop race" if running else "Start race")
        self.start.setEnabled(running or not (reason or problem))
        waiting = self._race.words or self._obstacles.waiting_words()
        self.status.setText(waiting if running else reason or self._tried_words())

    def _reason_not_to_start(self) -> str:
        return self._obstacles.obstacle() or ("" if self.prompt.toPlainText().strip() else "Type a prompt first.")

    def _problem(self, mode: Mode) -> str:
        """Return why a mode is not to be had; empty where it is, or the engine has not told yet."""
        option = self._drafting.option(mode)
        if self._tried is not None and mode is self._tried.mode:
            return ""  # what was told is of the chat's own drafter
        return option.reason if option is not None and not option.available else ""

    def _tried_words(self) -> str:
        """Return what is tried in the mode that is chosen; empty where that is the chat's own."""
        if self._tried is None or Mode(self.mode.currentData()) is not self._tried.mode:
            return ""
        named = self._tried.draft_model if self._tried.mode is Mode.SPECULATIVE else self._tried.drafter
        return f"With {Path(named).name}" if named else ""

    def _show_modes(self) -> None:
        """Tell of each mode whether the loaded model can have it; one that cannot is named with its reason."""
        for place, mode in enumerate(_MODES):
            words = self._problem(mode) or formatting.MODE_EXPLANATIONS[mode]
            self.mode.setItemData(place, tip_text(words), Qt.ItemDataRole.ToolTipRole)
            if place == self.mode.currentIndex():
                set_tip(self.mode, words)
