"""Runs jobs of `rdchat.work` on threads, with callbacks on the main thread."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError
from rdchat.work.job import Job
from rdchat.work.serial_thread import SerialThread

_LOG = logging.getLogger(__name__)
Callback = Callable[[Any], object]


class MainThread(QObject):
    """Brings calls from any thread to the main thread, until it is closed. Lives there.

    A thread that hangs outlives the object that it works for, and must not hold it: an object of Qt's that is destroyed
    on another thread than its own, or emitted from meanwhile, takes the app down. So threads hold a number and a `_Way`
    to here.
    """

    _came = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._came.connect(self._call, Qt.ConnectionType.QueuedConnection)
        self._way = _Way(self._came.emit)
        self._callbacks: dict[int, tuple[Callback, bool]] = {}
        self._number = 0

    def bring(self, callback: Callback, *, once: bool = False) -> Callback:
        """Return a function that has `callback` called on the main thread, or `once` at most.

        After `forget` and `close` it does nothing.
        """
        self._number += 1
        number, way = self._number, self._way
        self._callbacks[number] = (callback, once)
        return lambda value: way.pass_on(number, value)

    def forget(self) -> None:
        """Call nothing of what was brought so far, also not what is on its way."""
        self._callbacks.clear()

    def close(self) -> None:
        """Call nothing more."""
        self.forget()
        self._way.close()

    @Slot(int, object)
    def _call(self, number: int, value: Any) -> None:
        callback, once = self._callbacks.get(number, (None, False))
        if once:
            del self._callbacks[number]
        if callback is not None:
            callback(value)


class _Way:
    """Emits a signal from any thread until it is closed."""

    def __init__(self, emit: Callable[..., object]) -> None:
        self._guard = threading.Lock()
        self._emit: Callable[..., object] | None = emit

    def pass_on(self, number: int, value: Any) -> None:
        with self._guard, suppress(RuntimeError):  # RuntimeError: the object is gone without having been closed
            if self._emit is not None:
                self._emit(number, value)

    def close(self) -> None:
        with self._guard:
            self._emit = None


class BackgroundWork(QObject):
    """A thread of its own for work that may wait for a disk, a keychain or a network. Lives on the main thread.

    Args:
        name: Of the thread.
        parent: The Qt parent.
    """

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread = SerialThread(name)
        self._main = MainThread(self)
        self._open = 0  # ends that are still to be told

    @property
    def busy(self) -> bool:
        """Whether an end is still to be told."""
        return self._open > 0

    def do(self, work: Callable[[], object], then: Callback | None = None) -> None:
        """Do this behind what was given before.

        Args:
            work: Called on the thread.
            then: Called on the main thread with what the work returned, or with the RdchatError.
        """
        self.run(lambda _job: work(), then)

    def run(
        self, work: Callable[[Job[Any]], object], then: Callback | None = None, told: Callback | None = None
    ) -> Job[Any]:
        """Do this behind what was given before; `told` is called on the main thread with the job's progress."""
        return self._thread.do(work, *self._callbacks(then, then, told))

    def replace(
        self,
        work: Callable[[Job[Any]], object],
        then: Callback | None = None,
        failed: Callback | None = None,
        told: Callback | None = None,
    ) -> None:
        """Do this instead of what was given before, of which nothing is told any more.

        Args:
            work: Called on the thread with its job, which tells progress and stops work that is not wanted any more.
            then: Called on the main thread with what the work returned.
            failed: Called on the main thread with the RdchatError.
            told: Called on the main thread with what the work tells.
        """
        self.forget()
        self._thread.replace(work, *self._callbacks(then, failed, told))

    def forget(self) -> None:
        """Cancel what was given last, and tell nothing of what was given so far."""
        self._open = 0
        self._main.forget()
        self._thread.forget()

    def close(self, timeout_s: float = 2.0) -> None:
        """Do what was given, but wait no longer than this: a disk or a hub may hang. Nothing is told after it."""
        self._open = 0
        self._thread.close(timeout_s)
        self._main.close()

    def _callbacks(
        self, then: Callback | None, failed: Callback | None, told: Callback | None
    ) -> tuple[Callback, Callback | None]:
        self._open += 1

        def end(outcome: Any) -> None:
            self._open -= 1
            call = failed if isinstance(outcome, RdchatError) else then
            if call is not None:
                call(outcome)

        return self._main.bring(end, once=True), self._main.bring(told) if told is not None else None


class FolderSearch(QObject):
    """Searches for files on a thread, since disks may be slow, and keeps the last result. Lives on the main thread.

    Args:
        find: Searches; called on the thread. Returns None where it cannot tell yet.
        parent: The Qt parent.

    Attributes:
        found: The last result.
    """

    changed = Signal()

    def __init__(self, find: Callable[..., tuple[Any, ...] | None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._find = find
        self._work = BackgroundWork("search", self)
        self._next: tuple[object, ...] | None = None  # arguments of the search that follows the one under way
        self.found: tuple[Any, ...] = ()

    def look(self, *about: object) -> None:
        """Search with arguments of `find`; `changed` follows if the result is another one.

        While a search goes on, only the last one that is requested follows it.
        """
        if self._work.busy:
            self._next = about
            return
        self._next = None
        self._work.do(lambda: self._find(*about), self._take)

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for a search under way, but not for ever: a disk may hang."""
        self._work.close(timeout_s)

    def _take(self, found: tuple[Any, ...] | RdchatError | None) -> None:
        if isinstance(found, RdchatError):
            _LOG.warning("Looking for files failed: %s", found)
        elif found is not None and found != self.found:
            self.found = found
            self.changed.emit()
        if self._next is not None:
            self.look(*self._next)
