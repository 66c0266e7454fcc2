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

_Task = tuple[Callable[[], Any], Callable[[Any], object]]


class Messenger:
    """Emits a signal from other threads until it is closed.

    A thread that hangs outlives the object that it works for. It holds this instead: an object of Qt's that is emitted
    from while it is destroyed, or destroyed on another thread than its own, takes the app down.

    Args:
        emit: Of a signal whose connections are queued.
    """

    def __init__(self, emit: Callable[..., object]) -> None:
        self._guard = threading.Lock()
        self._emit: Callable[..., object] | None = emit

    @property
    def closed(self) -> bool:
        return self._emit is None

    def tell(self, *about: object) -> bool:
        """Emit the signal, on any thread; return whether it was: not where it is closed."""
        with self._guard, suppress(RuntimeError):  # RuntimeError: the object is gone without having been closed
            if self._emit is not None:
                self._emit(*about)
                return True
        return False

    def close(self) -> None:
        """Emit nothing more, and let go of the signal."""
        with self._guard:
            self._emit = None


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
        self._work: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended.connect(self._hand_over, Qt.ConnectionType.QueuedConnection)
        self._messenger = Messenger(self._ended.emit)

    def do[T](self, work: Callable[[], T], then: Callable[[T | RdchatError], object] = lambda _: None) -> None:
        """Do some work behind what was given before.

        Args:
            work: Done on the thread; what it raises becomes an `RdchatError`.
            then: Called on the main thread with what it returned, or with the error.
        """
        if self._messenger.closed:
            return
        if self._thread is None:
            about = (self._name, self._work, self._messenger)
            self._thread = threading.Thread(target=_work_off, args=about, name=self._name, daemon=True)
            self._thread.start()
        self._work.put((work, then))

    def close(self, timeout_s: float = 2.0) -> None:
        """Finish what was given, but do not wait for ever: a disk may hang. Nothing is handed over after this."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(timeout_s)
        self._messenger.close()

    @Slot(object, object)
    def _hand_over(self, then: Callable[[Any], object], outcome: Any) -> None:
        if not self._messenger.closed:
            then(outcome)


def _work_off(name: str, queued: queue.SimpleQueue[_Task | None], messenger: Messenger) -> None:
    while (task := queued.get()) is not None:
        work, then = task
        messenger.tell(then, outcome_of(work, name))


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
