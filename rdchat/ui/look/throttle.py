"""Lets what changes many times a second be shown as often as it can be read."""

from PySide6.QtCore import QObject, QTimer, Signal

_INTERVAL_MS = 100  # figures that change faster cannot be read


class Throttle(QObject):
    """Emits `due` for the first of a burst of notes at once, and for the rest at most ten times a second."""

    due = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._noted = False
        self._timer = QTimer(self, interval=_INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self._pass_on)

    @property
    def resting(self) -> bool:
        """Whether the next note is passed on at once."""
        return not self._timer.isActive()

    def note(self) -> None:
        """Say that there is something new."""
        self._noted = True
        if self.resting:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._noted:
            self._noted = False
            self._timer.start()
            self.due.emit()
