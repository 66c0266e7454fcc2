"""One piece of slow work at a time, on a thread of Python's, told of on the main thread."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)
_MISTAKE = RdchatError("That did not work: rdchat made a mistake.", "The log says more.")


class StoppedError(Exception):
    """The person gave the work up."""


class BackgroundTask(QObject):
    """Runs work, and tells how it ended, once. Lives on the main thread.

    What is begun while other work goes on takes its place: that is stopped, and nothing is told of it any more.
    """

    told = Signal(object)  # what the work says in between
    finished = Signal(object)  # what it returned
    failed = Signal(RdchatError)
    stopped = Signal()
    _came = Signal(int, str, object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._number = 0
        self._running = False
        self._thread: threading.Thread | None = None
        self._came.connect(self._take, Qt.ConnectionType.QueuedConnection)

    @property
    def running(self) -> bool:
        return self._running

    def start(self, work: Callable[[Callable[[object], None]], object]) -> None:
        """Begin.

        Args:
            work: Is given a function that tells something in between; that raises `StoppedError` once the work is not
                wanted any more.
        """
        self._number += 1
        self._running = True
        self._thread = threading.Thread(target=self._run, args=(self._number, work), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the work up; it notices when it tells something next."""
        if self._running:
            self._number += 1
            self._running = False
            self.stopped.emit()

    def close(self, timeout_s: float = 2.0) -> None:
        """Give up what goes on and wait for it, but not for ever: a disk may hang."""
        self._number += 1
        self._running = False
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, number: int, work: Callable[[Callable[[object], None]], object]) -> None:
        def tell(something: object) -> None:
            if number != self._number:
                raise StoppedError
            self._came.emit(number, "told", something)

        with suppress(RuntimeError):  # the app has ended meanwhile
            try:
                self._came.emit(number, "finished", work(tell))
            except StoppedError:
                return
            except RdchatError as error:
                self._came.emit(number, "failed", error)
            except Exception:
                _LOG.exception("The work %s failed unexpectedly", self._name)
                self._came.emit(number, "failed", _MISTAKE)

    @Slot(int, str, object)
    def _take(self, number: int, what: str, value: object) -> None:
        if number != self._number:
            return
        if what == "told":
            self.told.emit(value)
            return
        self._running = False
        (self.finished if what == "finished" else self.failed).emit(value)
