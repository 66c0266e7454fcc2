"""Measures the time without a request to the engine."""

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat import machine

# The engine rests after so long without a request. Wiring memory again may take 55 to 77 ms (mlx-lm issue 1435).
_REST_AFTER_MS = 30 * 1000
_MINUTE_MS = 60 * 1000
# Where the person has chosen no time, the model is unloaded after this one on battery, or if memory is short.
_USUAL_MINUTES = 15
_SHORT = 0.1


class IdleTimers(QObject):
    """Emits `rest_due` and `sleep_due`, each once, when there was no request for long enough.

    Attributes:
        minutes: Until `sleep_due`; 0 is never, None is 15 on battery or if memory is short, and otherwise never.
    """

    rest_due = Signal()
    sleep_due = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.minutes: int | None = None
        self._rest = QTimer(self, singleShot=True)
        self._sleep = QTimer(self, singleShot=True)
        self._rest.timeout.connect(self.rest_due)
        self._sleep.timeout.connect(self._end)

    def start(self) -> None:
        """Count from now on."""
        minutes = _USUAL_MINUTES if self.minutes is None else self.minutes
        self._rest.start(_REST_AFTER_MS)
        self._sleep.start(minutes * _MINUTE_MS) if minutes else self._sleep.stop()

    def stop(self) -> None:
        """Stop counting."""
        self._rest.stop()
        self._sleep.stop()

    @Slot()
    def _end(self) -> None:
        short = machine.available_bytes() < _SHORT * machine.total_bytes()
        if self.minutes is not None or short or machine.on_battery():
            self.sleep_due.emit()
        else:
            self._sleep.start()
