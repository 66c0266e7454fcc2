"""A benchmark of one prompt: its form, and the two replies side by side, replayed at their real speed."""

import re
from bisect import bisect_right
from dataclasses import replace
from math import ceil
from pathlib import Path

from PySide6.QtCore import QElapsedTimer, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QSlider, QSpinBox, QWidget

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import BenchCell, BenchPiece, BenchPlan, BenchRun, DraftSettings, Mode, Prompt, fresh_seed
from rdchat.services.engine.benchmark import RaceResult
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    MODES,
    SMALL,
    ElidedLabel,
    PlainLabel,
    Theme,
    ThemedLabel,
    announce,
    choice_box,
    column,
    fill_box,
    formatting,
    push_button,
    row,
    set_tip,
    text_field,
)
from rdchat.wording import counted

_FRAME_MS = 33
# Marks of bold text in Markdown, which are removed: the replies are shown as plain text.
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")
_INTRODUCTION = (
    "The model answers the prompt twice, once without drafting and once with it. The chat's earlier messages and "
    "images are not sent. Then both replies are played back side by side at their real speed."
)


class RaceForm(QWidget):
    """The prompt, the drafting mode and the longest reply. `changed` follows changes by the person."""

    changed = Signal()

    def __init__(self, controller: ChatController) -> None:
        super().__init__()
        self._controller = controller
        tip = "Sent without the rest of the chat, at the chat's temperature"
        self.prompt = text_field(3, "What should the model answer?", "Prompt", tip)
        self.mode = choice_box("Drafting", "", letters=28)
        self.token_limit = QSpinBox(minimum=16, maximum=2048, singleStep=32, value=128, suffix=" tokens")
        self.token_limit.setGroupSeparatorShown(True)
        self.token_limit.setAccessibleName("Longest reply")
        set_tip(self.token_limit, "The longest that each reply may be")
        choices = row(PlainLabel("Drafting"), self.mode, SMALL, PlainLabel("Up to"), self.token_limit, None)
        column(self.prompt, choices, within=self)
        for edited in (self.prompt.textChanged, self.mode.currentIndexChanged, self.token_limit.valueChanged):
            edited.connect(self.changed)
        self.changed.connect(lambda: set_tip(self.mode, MODES[self.draft.mode]))
        self.open_with("")

    @property
    def draft(self) -> DraftSettings:
        """The chosen draft settings: those of the chat with the chosen mode, or those to try."""
        chosen = self.mode.currentData()
        if isinstance(chosen, DraftSettings):
            return chosen
        return replace(self._controller.drafting.settings, mode=Mode(chosen))

    def open_with(self, prompt: str, tried: DraftSettings | None = None) -> None:
        """Take a prompt and the chat's mode; a mode that was chosen here stays until the form is closed.

        Args:
            prompt: What was typed here stays, and an empty prompt keeps the present one.
            tried: Draft settings to choose in place of the chat's, until this is called again.
        """
        typed = self.prompt.document().isModified() and self.prompt.toPlainText().strip()
        if prompt and not typed:
            self.prompt.setPlainText(prompt)
        choices: list[tuple[str, object]] = [(mode.label, mode) for mode in Mode if mode is not Mode.OFF]
        if tried:
            choices.append((f"{tried.mode.label}: {Path(tried.named(tried.mode) or '').name}", tried))
        mode = self.draft.mode if self.isVisible() else self._controller.drafting.settings.mode
        fill_box(self.mode, choices, tried or (Mode.AUTO if mode is Mode.OFF else mode))
        self.changed.emit()

    def plan(self) -> BenchPlan:
        """Return the plan of the fields.

        Raises:
            InvalidSettingError: If there is no prompt, or the mode cannot run.
        """
        prompt = self.prompt.toPlainText().strip()
        if not prompt:
            raise InvalidSettingError("Type a prompt first.")
        draft = self.draft
        # The engine has answered for the chat's own drafter, not for one that is tried. The settings of that one are
        # the data of its item; other items have only a mode.
        problem = "" if draft is self.mode.currentData() else self._controller.drafting.problem(draft.mode)
        if problem:
            raise InvalidSettingError(problem, "Choose another drafting mode.")
        seed = self._controller.settings.values.seed
        return BenchPlan(
            (BenchCell(draft, self._controller.chat.values.sampling.temperature),),
            (Prompt(prompt),),
            self.token_limit.value(),
            trials=1,
            seed=fresh_seed() if seed is None else seed,
            mlx_lm=False,
            overhead=False,
            streams=True,
        )


class ReplayView(QWidget):
    """Shows a reply while it is written, then its record as it was at a moment: text, speed and time."""

    def __init__(self, theme: Theme, name: str, placeholder: str) -> None:
        super().__init__()
        self.name = ElidedLabel(theme, "", bold=True)
        self.speed = ThemedLabel(theme, "", points_more=8, bold=True, tabular=True)
        self.state = ThemedLabel(theme, " ", "muted", tabular=True)
        self.text = QPlainTextEdit(readOnly=True, tabChangesFocus=True, placeholderText=placeholder)
        head = column(self.name, self.speed, self.state, spacing=0)
        column(head, (self.text, 1), within=self)
        self._theme = theme
        theme.changed.connect(self._restyle)
        self._restyle()
        self.show_run(name)

    def show_run(self, name: str, run: BenchRun | None = None) -> None:
        """Take another recorded reply, and show nothing of it yet; None is one that is about to be written."""
        self._run = run
        # Tokens of the reply that is being written.
        self._written = 0
        self.name.setText(name)
        self.text.setAccessibleName(f"Reply: {name}")
        self.text.clear()
        self._show_speed(None)
        self.state.show_text(" ", "muted")  # An empty label would be lower.

    def show_token(self, text: str) -> None:
        """Show one more token of the reply that is being written."""
        self._written += 1
        self.state.setText(counted(self._written, "token"))
        self.text.moveCursor(QTextCursor.MoveOperation.End)
        self.text.insertPlainText(text)

    def show_moment(self, clock_ms: float) -> None:
        """Show the reply as it was `clock_ms` after the request; the clock can go back.

        The speed counts from the first token on, as reading the prompt comes before it.
        """
        run = self._run
        if run is None:
            return
        times = run.times_ms
        tokens = bisect_right(times, clock_ms)
        ended = tokens == len(times)
        elapsed_ms = times[-1] if ended and times else clock_ms
        decoding_ms = elapsed_ms - times[0] if tokens > 1 else 0.0
        speed = (tokens - 1) / decoding_ms * 1000 if decoding_ms > 0 else None
        if ended:
            speed = run.statistics.decode_tps  # The speed of the verdict.
        bar = self.text.verticalScrollBar()
        position = bar.value()
        at_end = position == bar.maximum()
        self.text.setPlainText(_BOLD.sub(r"\1", "".join(run.pieces[:tokens])))
        bar.setValue(bar.maximum() if at_end else position)
        self._show_speed(speed)
        text = f"{counted(tokens, 'token')}, {elapsed_ms / 1000:.2f} s"
        self.state.show_text(f"{text} with reading" if ended else text, "success" if ended else "muted")

    def _show_speed(self, speed: float | None) -> None:
        self.speed.show_text(f"{formatting.rate(speed)} tokens/s", "muted" if speed is None else "text")

    def _restyle(self) -> None:
        self.text.setFont(self._theme.body_font())


class Playback(QWidget):
    """Plays a replay: the value of the slider is the moment, in ms. It pauses when it is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self._since_frame = QElapsedTimer()
        self._frames = QTimer(self, interval=_FRAME_MS, timerType=Qt.TimerType.PreciseTimer)
        self.play = push_button("Play", "Play or pause the replay", self.toggle)
        self.skip = push_button("To the End", "Skip the replay", lambda: self.slider.setValue(self.slider.maximum()))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setPageStep(1000)
        self.slider.setAccessibleName("Moment of the replay")
        set_tip(self.slider, "Drag back to see a moment again, or to the end to skip the replay")
        row(self.play, (self.slider, 1), self.skip, within=self)
        self._frames.timeout.connect(lambda: self.slider.setValue(self.slider.value() + self._since_frame.restart()))
        self.slider.valueChanged.connect(self._show)
        self.rewind(0.0)

    @property
    def playing(self) -> bool:
        return self._frames.isActive()

    @property
    def at_end(self) -> bool:
        return bool(self.slider.value() == self.slider.maximum())

    def rewind(self, duration_ms: float) -> None:
        """Stand at the start of a new replay; 0 clears it."""
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, ceil(duration_ms))
            self.slider.setValue(0)
        self.setEnabled(duration_ms > 0)
        self._pause()

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""
        if self.playing:
            self._pause()
            return
        if self.at_end:
            self.slider.setValue(0)
        self._since_frame.restart()
        self._frames.start()
        self._show()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._pause()

    def _pause(self) -> None:
        self._frames.stop()
        self._show()

    def _show(self) -> None:
        if self.at_end:
            self._frames.stop()
        self.play.setText("Pause" if self.playing else "Play")


class RaceView(QWidget):
    """The replies of the race that runs, or of the last one, with the verdict."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.plain = ReplayView(theme, Mode.OFF.label, "The reply without drafting appears here.")
        self.drafted = ReplayView(theme, "Drafting", "The reply with drafting appears here.")
        self.playback = Playback()
        self.speed_up = ThemedLabel(
            theme, "One prompt, two replies", points_more=3, bold=True, wraps=True, selectable=True
        )
        self.verdict = ThemedLabel(theme, _INTRODUCTION, "muted", wraps=True, selectable=True)
        self.verdict.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.verdict.setMinimumHeight(2 * self.verdict.fontMetrics().lineSpacing())  # The replies keep their height.
        replies = row((self.plain, 1), (self.drafted, 1), spacing=LARGE)
        column((replies, 1), self.playback, self.speed_up, self.verdict, within=self, spacing=MEDIUM)
        for view in (self.plain, self.drafted):
            self.playback.slider.valueChanged.connect(view.show_moment)

    def clear_replies(self, name: str) -> None:
        """Make room for the replies of a race; `name` is that of the drafted one."""
        self.plain.show_run(Mode.OFF.label)
        self.drafted.show_run(name)
        self.playback.rewind(0.0)
        self.speed_up.setText("")
        self.verdict.setText("")

    def show_piece(self, piece: BenchPiece) -> None:
        """Show text of a reply as it is written: that of the first cell is plain."""
        (self.drafted if piece.cell else self.plain).show_token(piece.text)

    def show_result(self, result: RaceResult) -> None:
        """Take both replies, and replay them if they can be seen."""
        self.plain.show_run(Mode.OFF.label, result.plain)
        self.drafted.show_run(result.name, result.drafted)
        self.playback.rewind(max((0.0, *result.plain.times_ms, *result.drafted.times_ms)))
        self.speed_up.setText(result.speed_text)
        # The colour: the same text is a success; other text is one to warn of, unless rounding explains it.
        differs = "muted" if result.parted_by_rounding else "warning"
        self.verdict.show_text(result.verdict, differs if result.drafted.difference else "success")
        self.setAccessibleDescription(f"{result.speed_text} {result.verdict}")
        announce(self)
        if self.isVisible():
            self.playback.toggle()
            self.playback.play.setFocus()
