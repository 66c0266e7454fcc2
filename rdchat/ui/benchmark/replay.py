"""The two replies of a race, replayed: the view of one reply, and the clock of both with its buttons."""

from PySide6.QtCore import QElapsedTimer, Qt, QTimer, Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QComboBox, QGridLayout, QPlainTextEdit, QWidget

from rdchat.services.engine.benchmark import Replay
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, row, thin_bar
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme

_FRAME_MS = 33
_SPEEDS = (1, 2, 4)


class ReplayView(QWidget):
    """Shows a recorded reply as it was at a moment: its text, speed and time."""

    def __init__(self, theme: Theme, name: str, placeholder: str) -> None:
        super().__init__()
        self._theme = theme
        self._replay: Replay | None = None
        self._characters = 0
        self.name = ElidedLabel(theme, name, bold=True)
        self.speed = ThemedLabel(theme, formatting.NONE, "muted", points_more=10, bold=True, tabular=True)
        self.state = ThemedLabel(theme, " ", "muted", tabular=True)
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setTabChangesFocus(True)
        self.text.setPlaceholderText(placeholder)
        self.progress = thin_bar(name)
        head = QGridLayout()
        head.setHorizontalSpacing(TIGHT + 2)
        head.setVerticalSpacing(0)
        head.addWidget(self.name, 0, 0, 1, 2)
        head.addWidget(self.speed, 1, 0, 2, 1)
        head.addWidget(ThemedLabel(theme, "tokens/s", "muted"), 1, 1)
        head.addWidget(self.state, 2, 1)
        head.setColumnStretch(1, 1)
        head.setColumnMinimumWidth(0, self.fontMetrics().horizontalAdvance("000.0") * 2)  # the unit does not move
        column(head, self.progress, (self.text, 1), within=self)
        theme.changed.connect(self._restyle)
        self._restyle()
        self.show_name(name)

    def show_name(self, name: str) -> None:
        self.name.setText(name)
        self.text.setAccessibleName(f"Reply: {name}")
        self.progress.setAccessibleName(f"Progress: {name}")

    def load(self, replay: Replay | None) -> None:
        """Take another recorded reply, and show nothing of it yet."""
        self._replay = replay
        self._rewind()
        self.speed.setText(formatting.NONE)
        self.speed.set_color("muted")
        self.state.setText(" ")  # an empty label would be lower
        self.progress.setValue(0)

    def show_moment(self, clock_ms: float) -> None:
        """Show the reply as it was `clock_ms` after the request; the clock can go back."""
        if self._replay is None:
            return
        state = self._replay.at(clock_ms)
        if state.characters < self._characters:
            self._rewind()
        self._write(self._replay.text[self._characters : state.characters])
        self._characters = state.characters
        self.speed.setText(formatting.rate(state.tokens_per_s))
        self.speed.set_color("muted" if state.tokens_per_s is None else "text")
        elapsed = f"{state.elapsed_ms / 1000:.2f} s"
        self.state.setText(f"{formatting.counted(state.tokens, 'token')} in {elapsed}" if state.ended else elapsed)
        self.state.set_color("success" if state.ended else "muted")
        total = len(self._replay.run.token_ids)
        self.progress.setValue(round(1000 * state.tokens / total) if total else 0)

    def _rewind(self) -> None:
        self._characters = 0
        self.text.clear()

    def _write(self, text: str) -> None:
        if not text:
            return
        bar = self.text.verticalScrollBar()
        follow = bar.value() == bar.maximum()
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)
        if follow:
            bar.setValue(bar.maximum())

    def _restyle(self) -> None:
        self.text.setFont(self._theme.body_font())


class Playback(QWidget):
    """Counts the milliseconds of a replay from 0 to its end, at one, two or four times the speed."""

    moved = Signal(float)  # to a moment, in ms
    finished = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._duration_ms = 0.0
        self._clock_ms = 0.0
        self._since_frame = QElapsedTimer()
        self._frames = QTimer(self, interval=_FRAME_MS, timerType=Qt.TimerType.PreciseTimer)
        self._frames.timeout.connect(self._on_frame)
        self.play = push_button("Play", "Play or pause the replay")
        self.again = push_button("Again", "Play the same replies from the beginning")
        self.skip = push_button("Skip to end", "Show both replies whole")
        self.speed = QComboBox()
        for speed in _SPEEDS:
            self.speed.addItem(f"{speed}x", speed)
        self.speed.setAccessibleName("Replay speed")
        set_tip(self.speed, "Replay speed: 1x is as the replies were written")
        self.clock = ThemedLabel(theme, "", "muted", tabular=True)
        row(self.play, self.again, self.speed, self.skip, self.clock, None, within=self)
        self.play.clicked.connect(self.toggle)
        self.again.clicked.connect(self.restart)
        self.skip.clicked.connect(self._skip_to_end)
        self.load(0.0)

    @property
    def playing(self) -> bool:
        return self._frames.isActive()

    @property
    def at_end(self) -> bool:
        return self._clock_ms >= self._duration_ms

    def load(self, duration_ms: float) -> None:
        """Stand at the beginning of another replay; a duration of 0 is none."""
        self._frames.stop()
        self._duration_ms = duration_ms
        self.setEnabled(duration_ms > 0)
        self._move(0.0)

    def restart(self) -> None:
        self._move(0.0)
        self._run(running=True)

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""
        if self.at_end:
            self.restart()
        else:
            self._run(running=not self.playing)

    def pause(self) -> None:
        self._run(running=False)

    def _skip_to_end(self) -> None:
        self.pause()
        self._move(self._duration_ms)
        self.finished.emit()

    def _run(self, *, running: bool) -> None:
        self._since_frame.restart()
        if running:
            self._frames.start()
        else:
            self._frames.stop()
        self._show()

    def _on_frame(self) -> None:
        self._move(self._clock_ms + self._since_frame.restart() * int(self.speed.currentData()))
        if self.at_end:
            self.pause()
            self.finished.emit()

    def _move(self, clock_ms: float) -> None:
        self._clock_ms = min(clock_ms, self._duration_ms)
        self._show()
        self.moved.emit(self._clock_ms)

    def _show(self) -> None:
        self.play.setText("Pause" if self.playing else "Play")
        seconds = f"{self._clock_ms / 1000:.1f} of {self._duration_ms / 1000:.1f} s"
        self.clock.setText(seconds if self._duration_ms else "")
        self.skip.setEnabled(self._duration_ms > 0 and not self.at_end)
