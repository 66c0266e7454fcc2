"""A thread for what may wait for a disk, a keychain or a network: one thing after the other, and each counts."""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)


class WorkQueue(QObject):
    """Does work on a thread of Python's, and hands each outcome over on the main thread. Lives there.

    Args:
        name: Of the thread, which begins with the first piece of work.
        parent: The Qt parent.
    """

    _ended = Signal(object, object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], object]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended.connect(self._hand_over, Qt.ConnectionType.QueuedConnection)

    def do[T](self, work: Callable[[], T], then: Callable[[T | RdchatError], object] = lambda _: None) -> None:
        """Do some work behind what was given before.

        Args:
            work: Done on the thread; what it raises becomes an `RdchatError`.
            then: Called on the main thread with what it returned, or with the error.
        """
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put((work, then))

    def close(self, timeout_s: float = 2.0) -> None:
        """Finish what was given, but do not wait for ever: a disk may hang. Nothing is handed over after this."""
        self._closed = True
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (task := self._work.get()) is not None:
            work, then = task
            outcome = outcome_of(work, self._name)
            with suppress(RuntimeError):  # the app has ended meanwhile
                self._ended.emit(then, outcome)

    @Slot(object, object)
    def _hand_over(self, then: Callable[[Any], object], outcome: Any) -> None:
        if not self._closed:
            then(outcome)


def outcome_of[T](work: Callable[[], T], name: str) -> T | RdchatError:
    """Return what some work returns, or why it failed; what was not foreseen is logged under the work's name."""
    try:
        return work()
    except RdchatError as error:
        return error
    except OSError as error:
        _LOG.warning("%s failed", name, exc_info=True)
        return RdchatError(f"{error.filename or 'A file'} cannot be used: {error.strerror}.", "Check its folder.")
    except Exception as error:
        _LOG.exception("%s failed unexpectedly", name)
        return RdchatError(f"Something went wrong: {type(error).__name__}.", "The log says more.")
