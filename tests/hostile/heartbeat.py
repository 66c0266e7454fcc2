"""Drives a window with a script and measures how long it does not answer."""

import sys
import time
from collections.abc import Callable, Generator

from PySide6.QtCore import QObject, Qt, QTimer, Slot

BEAT_MS = 10
Script = Generator[Callable[[], bool]]
"""Yields what it waits for."""


class Heartbeat(QObject):
    """A timer of the main thread; each beat notes how late it is and carries the script on where it need not wait.

    Attributes:
        longest_s: The longest time between two beats since `begin_measuring`: nothing was drawn or clicked meanwhile.
    """

    def __init__(self, on_end: Callable[[], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._script: Script | None = None
        self._awaited: Callable[[], bool] = lambda: True
        self._on_end = on_end
        self._timer = QTimer(self, interval=BEAT_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)
        self.begin_measuring()
        self._timer.start()

    def begin_measuring(self) -> None:
        """Forget what was measured before."""
        self.longest_s = 0.0
        self._last = time.monotonic()

    def play(self, script: Script) -> None:
        """Carry out a script from now on."""
        self._script = script
        self._awaited = lambda: True

    @Slot()
    def _beat(self) -> None:
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        if self._script is None or not self._awaited():
            return
        try:
            self._awaited = next(self._script)
        except StopIteration:
            self._end()
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            self._end()

    def _end(self) -> None:
        self._script = None
        self._on_end()


def wait(seconds: float) -> Callable[[], bool]:
    """Return a condition that comes true after so long."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def either(condition: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Return a condition that also comes true after so long."""
    late = wait(seconds)
    return lambda: condition() or late()
