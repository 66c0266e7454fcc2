"""Keeps Python's cycle collector to the thread that Qt's objects belong to."""

import gc

from PySide6.QtCore import QObject, QTimer

_TICK_MS = 1000


class GarbageCollector(QObject):
    """Collects cycles on the thread that makes it, and nowhere else, until it is released.

    Left to itself, Python collects on whichever thread happens to make the next object. On the engine thread that takes
    widgets apart while the window draws them, which ends the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._timer = QTimer(self, interval=_TICK_MS)
        self._timer.timeout.connect(collect_if_due)
        self._timer.start()

    def spare_what_is_there(self) -> None:
        """Leave out of all later collections what exists now: a look at all of MLX and a model stops the window."""
        gc.freeze()

    def release(self) -> None:
        """Let Python collect as it did before."""
        self._timer.stop()
        if self._was_enabled:
            gc.enable()


def collect_if_due() -> None:
    """Collect the generations that Python itself would by now, on the calling thread."""
    due = [count > threshold for count, threshold in zip(gc.get_count(), gc.get_threshold(), strict=True)]
    if due[0]:
        gc.collect(2 if all(due) else 1 if due[1] else 0)
