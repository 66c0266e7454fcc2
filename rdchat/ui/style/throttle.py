"""Limits how often fast-changing figures are shown."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

# Figures that change faster cannot be read.
_INTERVAL_MS = 100


class Throttle(QObject):
    """Calls `act` at once for the first note of a burst, and at most ten times a second for the rest."""

    def __init__(self, parent: QObject, act: Callable[[], object]) -> None:
        super().__init__(parent)
        self._act = act
        self._noted = False
        self._timer = QTimer(self, interval=_INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self._pass_on)

    @property
    def resting(self) -> bool:
        """Whether the next note is emitted at once."""
        return not self._timer.isActive()

    def note(self) -> None:
        """Note that there is something new to show."""
        self._noted = True
        if self.resting:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._noted:
            self._noted = False
            self._timer.start()
            self._act()
