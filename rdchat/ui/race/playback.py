"""The clock of a replay, and its controls: play or pause, again, speed, skip to the end."""

from PySide6.QtCore import QElapsedTimer, Qt, QTimer, Signal
from PySide6.QtWidgets import QComboBox, QWidget

from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme

_FRAME_MS = 33
_SPEEDS = (1, 2, 4)


class Playback(QWidget):
    """Counts milliseconds of a replay from 0 to its end, at one, two or four times the speed."""

    moved = Signal(float)  # to a moment, in ms
    finished = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
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
        self.skip.clicked.connect(self.skip_to_end)
        self.load(0.0)

    @property
    def playing(self) -> bool:
        return self._frames.isActive()

    @property
    def at_end(self) -> bool:
        return self._clock_ms >= self._duration_ms

    def load(self, duration_ms: float) -> None:
        """Take another replay and stand at its beginning; a duration of 0 is none."""
        self._frames.stop()
        self._duration_ms = duration_ms
        self.setEnabled(duration_ms > 0)
        self._move(0.0)

    def restart(self) -> None:
        self._move(0.0)
        self._run(running=True)

    def toggle(self) -> None:
        """Pause what plays, play what does not; from the beginning where it stands at the end."""
        if self.at_end:
            self.restart()
        else:
            self._run(running=not self.playing)

    def pause(self) -> None:
        self._run(running=False)

    def skip_to_end(self) -> None:
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
