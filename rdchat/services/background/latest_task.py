"""Slow work beside the main thread, of which only the latest counts."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)


class LatestTask(QObject):
    """Does what is asked for on threads of Python's; what was asked for before tells nothing any more.

    Lives on the main thread, where `done` and `failed` are emitted.

    Args:
        name: Of the threads.
        parent: The Qt parent.
    """

    done = Signal(object)
    failed = Signal(RdchatError)
    _ended = Signal(int, object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._number = 0
        self._running = False
        self._threads: list[threading.Thread] = []
        self._ended.connect(self._take, Qt.ConnectionType.QueuedConnection)

    @property
    def running(self) -> bool:
        """Whether something is being done whose end is to be told."""
        return self._running

    def start(self, work: Callable[[], object]) -> None:
        """Do this instead of what is being done; `done` follows with what it returns, or `failed`."""
        self._number += 1
        self._running = True
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._work, args=(self._number, work), name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def cancel(self) -> None:
        """Let nothing follow from what is being done; a request under way ends by itself."""
        self._number += 1
        self._running = False

    def close(self, timeout_s: float = 0.5) -> None:
        """Tell nothing more, and wait a moment for what is being done: a hub may take its time."""
        self.cancel()
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self, number: int, work: Callable[[], object]) -> None:
        try:
            result = work()
        except RdchatError as error:
            result = error
        except Exception:
            _LOG.exception("%s failed", self._name)
            result = RdchatError("Something went wrong that rdchat did not foresee.", "The log says more.")
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._ended.emit(number, result)

    @Slot(int, object)
    def _take(self, number: int, result: object) -> None:
        if number != self._number:
            return
        self._running = False
        if isinstance(result, RdchatError):
            self.failed.emit(result)
        else:
            self.done.emit(result)
