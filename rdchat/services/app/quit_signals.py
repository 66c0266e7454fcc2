"""Brings Ctrl-C in the terminal and SIGTERM into Qt's event loop."""

import signal
import socket
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, Signal


class QuitSignals(QObject):
    """Emits `quit_requested` on SIGINT and SIGTERM, so that the app ends as it does when its window is closed.

    Python runs signal handlers between its own instructions only, and Qt's loop has none while nothing happens: the
    interpreter writes a byte into a socket for each signal, and the socket wakes the loop.
    """

    quit_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._notifier = QSocketNotifier(self._reader.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_byte)
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno())

    def release(self) -> None:
        """Put the process's own handlers back."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._notifier.setEnabled(False)
        self._reader.close()
        self._writer.close()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.quit_requested.emit()

    def _on_byte(self) -> None:
        self._reader.recv(64)
