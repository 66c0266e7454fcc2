"""Makes Python work with Qt's event loop: signals of the system, the garbage collector, and unexpected errors."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from types import TracebackType

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from rdchat import paths
from rdchat.chat.conversation import Notice

_LOG = logging.getLogger(__name__)
_COLLECT_MS = 1000
# A signal of the system is handled within this time.
_WAKE_MS = 250
# The app has this time to end after SIGTERM.
_LIMIT_S = 4.5
_MANY_MODULES = 200
# From one notice to the next: a widget that cannot be painted fails again as soon as the notice is shown.
_PAUSE_MS = 2000


class QuitSignals(QObject):
    """Emits `quit_requested` on SIGINT and SIGTERM, so that the app ends as it does when its window is closed.

    Python runs signal handlers between its own instructions only, and Qt's loop has none while nothing happens: a timer
    wakes the loop. A thread ends the process if SIGTERM did not end it in time, because the loop hangs or waits for a
    child.
    """

    quit_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._before = {
            number: signal.signal(number, lambda *_signal: self.quit_requested.emit())
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        # Python writes the number of each signal into one end at once; the thread reads it at the other.
        woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._wakes_before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=_end_in_time, args=(woken,), name="quit signals", daemon=True).start()
        self._timer = QTimer(self, interval=_WAKE_MS)
        self._timer.timeout.connect(lambda: None)
        self._timer.start()

    def release(self) -> None:
        """Put the process's own handlers back."""
        self._timer.stop()
        signal.set_wakeup_fd(self._wakes_before)
        self._wakes.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _end_in_time(woken: socket.socket) -> None:
    """End the process some seconds after SIGTERM, unless the other end of the socket is closed before.

    The first loop waits for SIGTERM, however long, and skips other signals. Then the second one waits `_LIMIT_S` for
    the other end to close (`QuitSignals.release`).
    """
    with woken:
        while number := woken.recv(1):
            if number[0] == signal.SIGTERM:
                woken.settimeout(_LIMIT_S)
                break
        # It is empty once the other end is closed.
        try:
            while number:
                number = woken.recv(1)
        except TimeoutError:
            _LOG.error("rdchat did not end within %s seconds", _LIMIT_S)
            os._exit(1)


class GarbageCollector(QObject):
    """Runs Python's cycle collector on the thread that makes this object, and on no other, until it is released.

    By default Python collects on whichever thread makes the next object. On the engine thread that would delete widgets
    while the window paints them, which ends the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._was_enabled = gc.isenabled()
        # Modules at the last `spare_modules`.
        self._modules = 0
        gc.disable()
        self._timer = QTimer(self, interval=_COLLECT_MS)
        self._timer.timeout.connect(collect_if_due)
        self._timer.start()

    def spare_modules(self) -> None:
        """Exclude all present objects from later collections, if many modules were imported since the last time.

        A collection of all of MLX would stall the window. But what is spared is never collected, and much of it belongs
        to widgets that are deleted later, so this must not happen with each model that is loaded.
        """
        if len(sys.modules) >= self._modules + _MANY_MODULES:
            self._modules = len(sys.modules)
            gc.freeze()

    def release(self) -> None:
        """Let Python collect by itself again."""
        self._timer.stop()
        if self._was_enabled:
            gc.enable()


def collect_if_due() -> None:
    """Collect the generations that are due, on the calling thread.

    A generation is due if its own count is over its threshold and the younger ones are due too.
    """
    young, middle, old = (
        count > threshold for count, threshold in zip(gc.get_count(), gc.get_threshold(), strict=True)
    )
    # Collecting a generation collects the younger ones too.
    if young and middle and old:
        gc.collect(2)
    elif young:
        gc.collect(1 if middle else 0)


class UnexpectedErrors(QObject):
    """Logs errors that leave a slot or an event handler and emits a notice of them, until it is released."""

    raised = Signal(Notice)
    # The name of an error's class: it brings the error from its thread to that of this object.
    _came = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        # While it runs, errors are only logged.
        self._pause = QTimer(self, interval=_PAUSE_MS, singleShot=True)
        self._came.connect(self._report, Qt.ConnectionType.QueuedConnection)
        self._before = sys.excepthook
        sys.excepthook = self._take

    def release(self) -> None:
        """Put the process's own hook back."""
        sys.excepthook = self._before

    def _take(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Take an error as Python's hook, on the thread where it was raised. `KeyboardInterrupt` is no error."""
        if not issubclass(kind, Exception):
            self._before(kind, error, trace)
            return
        _LOG.error("An action failed unexpectedly", exc_info=(kind, error, trace))
        self._came.emit(kind.__name__)

    @Slot(str)
    def _report(self, name: str) -> None:
        if not self._pause.isActive():
            self._pause.start()
            detail = f"{name}. Your chats are kept. The details are in {paths.log_path()}."
            self.raised.emit(Notice("Something unexpected went wrong", detail))
