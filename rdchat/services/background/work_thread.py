"""What must not keep the main thread: asking a disk, a keychain or the hub."""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QObject, Qt, Signal, Slot

_LOG = logging.getLogger(__name__)


class WorkThread(QObject):
    """Runs functions one after the other, on a thread that is begun with the first. Lives on the main thread.

    Args:
        name: The thread's.
        parent: The Qt parent.
    """

    _done = Signal(object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._done.connect(self._finish, Qt.ConnectionType.QueuedConnection)

    def run[Result](self, act: Callable[[], Result], then: Callable[[Result], None] = lambda _result: None) -> None:
        """Call `act` on the thread, then `then` with its result on the main thread.

        What it raises is logged, and `then` is not called.
        """

        def work() -> Callable[[], None]:
            result = act()
            return lambda: then(result)

        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait until all was run, but not for ever: a disk may hang, and a keychain may wait for the person."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(timeout_s)
            self._thread = None

    def _run(self) -> None:
        while work := self._work.get():
            try:
                finish = work()
            except Exception:
                _LOG.exception("Work beside the window failed")
                continue
            with suppress(RuntimeError):  # the app has ended meanwhile
                self._done.emit(finish)

    @Slot(object)
    def _finish(self, finish: Callable[[], None]) -> None:
        if self._thread is not None:  # not after the end
            finish()
