"""The two replies of a race, replayed: the view of one reply, and the clock of both."""

import re
from math import ceil

from PySide6.QtCore import QElapsedTimer, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QGridLayout, QPlainTextEdit, QSlider, QWidget

from rdchat.services.engine.benchmark import Replay
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import ThinBar, column, row, show_share
from rdchat.ui.style.theme import TIGHT, Theme

_FRAME_MS = 33
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")


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

    def load(self, replay: Replay | None) -> None:
        """Take another recorded reply, and show nothing of it yet."""
        self._replay = replay
        self.written = 0
        self.text.clear()
        self.speed.show_text(formatting.NONE, "muted")
        self.state.show_text(" ", "muted")  # An empty label would be lower.
        show_share(self.progress, 0.0)

    def write(self, text: str, limit: int) -> None:
        """Show one more token of the reply that is being written, of at most `limit` tokens."""
        self.written += 1
        self.state.setText(f"Writing… {formatting.counted(self.written, 'token')}")
        show_share(self.progress, self.written / limit)
        self.text.moveCursor(QTextCursor.MoveOperation.End)
        self.text.insertPlainText(text)

    def wait(self) -> None:
        """Show that the other reply is being written."""
        self.state.setText("Done" if self.written else "Waiting for its turn")
        show_share(self.progress, 1.0 if self.written else 0.0)

    def read(self) -> None:
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
        text = f"{formatting.counted(state.tokens, 'token')}, {elapsed} with reading" if state.ended else elapsed
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
        self.load(0.0)

    @property
    def playing(self) -> bool:
        return self._frames.isActive()

    @property
    def at_end(self) -> bool:
        return bool(self.slider.value() == self.slider.maximum())

    def load(self, duration_ms: float) -> None:
        """Stand at the beginning of another replay; a duration of 0 is none."""
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

    def pause(self) -> None:
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
