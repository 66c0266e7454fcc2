"""Runs jobs of `rdchat.work` on threads, with callbacks on the main thread.

Services use `BackgroundWork` for work that may wait, and `MainThread` for callbacks of jobs that run elsewhere, such as
in a child process.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError
from rdchat.work import Job, SerialThread

_LOG = logging.getLogger(__name__)
Callback = Callable[[Any], object]


class MainThread(QObject):
    """Runs callbacks of other threads on the main thread, until it is closed. Lives on the main thread.

    A thread that hangs outlives the object that it works for. It must not hold that object: destroying a QObject on
    another thread, or emitting its signals meanwhile, crashes the app. So a thread holds only the number of a callback,
    and an `_Emitter` that stops when this object is closed. The callbacks stay here.
    """

    # A callback's number, and its argument.
    _called = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._called.connect(self._call, Qt.ConnectionType.QueuedConnection)
        self._emitter = _Emitter(self._called.emit)
        # By number: what to call, and whether it is called at most once.
        self._callbacks: dict[int, tuple[Callback, bool]] = {}
        # The last number; none is used twice.
        self._number = 0
        self._accepts = True

    @property
    def waits(self) -> bool:
        """Whether calls may still come."""
        return bool(self._callbacks)

    def bring(self, callback: Callback, *, once: bool = False) -> Callback:
        """Return a function for any thread that calls `callback` on the main thread, at most once if `once` is set.

        It does nothing after `drop_callbacks` or `refuse_calls`.
        """
        self._number += 1
        number = self._number
        emitter = self._emitter
        if self._accepts:
            self._callbacks[number] = (callback, once)
        return lambda value: emitter.emit(number, value)

    def bring_both(self, on_progress: Callback, on_end: Callback) -> tuple[Callback, Callback]:
        """Return functions for the progress and the end of a job; the end comes once, and is the last to come.

        The progress callback is dropped before `on_end` is called, so `waits` is False then if no other job runs.
        """
        progress = self.bring(on_progress)
        # The number that `bring` has just given.
        progress_number = self._number

        def end(outcome: Any) -> None:
            self._callbacks.pop(progress_number, None)
            on_end(outcome)

        return progress, self.bring(end, once=True)

    def drop_callbacks(self) -> None:
        """Drop all callbacks so far, also calls that are queued."""
        self._callbacks.clear()

    def refuse_calls(self) -> None:
        """Drop all callbacks, and accept no more."""
        self.drop_callbacks()
        self._accepts = False
        self._emitter.close()

    @Slot(int, object)
    def _call(self, number: int, value: Any) -> None:
        callback, once = self._callbacks.get(number, (None, False))
        if once:
            del self._callbacks[number]
        if callback is not None:
            callback(value)


class _Emitter:
    """Emits a signal of a `MainThread` from any thread, until it is closed."""

    def __init__(self, emit: Callable[..., object]) -> None:
        self._guard = threading.Lock()
        self._emit: Callable[..., object] | None = emit

    def emit(self, number: int, value: Any) -> None:
        # RuntimeError means that the object was deleted without being closed.
        with self._guard, suppress(RuntimeError):
            if self._emit is not None:
                self._emit(number, value)

    def close(self) -> None:
        with self._guard:
            self._emit = None


class BackgroundWork(QObject):
    """A thread for work that may wait for a disk, a keychain or a network. Lives on the main thread.

    Args:
        name: Name of the thread.
        parent: The Qt parent.
    """

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread = SerialThread(name)
        self._main = MainThread(self)

    @property
    def busy(self) -> bool:
        """Whether the end of a job was not reported yet."""
        return self._main.waits

    def do(self, work: Callable[[], object], then: Callback | None = None, failed: Callback | None = None) -> None:
        """Queue work.

        Args:
            work: Called on the thread.
            then: Called on the main thread with the result of the work.
            failed: Called on the main thread with the RdchatError; `then` if it is None.
        """
        self._thread.do(lambda _job: work(), *self._callbacks(then, failed or then, None))

    def run_job(
        self, work: Callable[[Job[Any]], object], then: Callback | None, on_progress: Callback | None = None
    ) -> Job[Any]:
        """Queue work that takes its job, which reports progress and can be cancelled.

        On the main thread, `then` is called with the result or the RdchatError, and `on_progress` with the progress.
        """
        return self._thread.do(work, *self._callbacks(then, then, on_progress))

    def replace(
        self,
        work: Callable[[Job[Any]], object],
        then: Callback | None = None,
        failed: Callback | None = None,
        on_progress: Callback | None = None,
    ) -> None:
        """Cancel earlier work, drop its callbacks, and do this instead.

        Args:
            work: Called on the thread with its job, which reports progress and can be cancelled.
            then: Called on the main thread with the result of the work.
            failed: Called on the main thread with the RdchatError; with None an error is dropped.
            on_progress: Called on the main thread with the progress.
        """
        self.drop_jobs()
        self._thread.do(work, *self._callbacks(then, failed, on_progress), may_stop=True)

    def drop_jobs(self) -> None:
        """Cancel the last job, and drop the callbacks of all jobs so far."""
        self._main.drop_callbacks()
        self._thread.abandon_job()

    def finish_work(self, timeout_s: float = 2.0) -> None:
        """Finish queued work, but wait no longer than this, since a disk or a hub may hang; then drop the callbacks."""
        self._thread.wait_for_jobs(timeout_s)
        self._main.refuse_calls()

    def _callbacks(
        self, then: Callback | None, failed: Callback | None, on_progress: Callback | None
    ) -> tuple[Callback, Callback]:
        """Return the end and the progress of a job, in the order in which `SerialThread.do` takes them."""

        def end(outcome: Any) -> None:
            call = failed if isinstance(outcome, RdchatError) else then
            if call is not None:
                call(outcome)

        progress, ended = self._main.bring_both(on_progress or (lambda _progress: None), end)
        return ended, progress


class FolderSearch(BackgroundWork):
    """Searches for files on a thread, since disks may be slow, and keeps the last result. Lives on the main thread.

    Args:
        find: Searches; called on the thread. Returns None if the result is not known yet.
        parent: The Qt parent.

    Attributes:
        results: The last result.
        looked: Whether a search has ended with a result or an error.
        problem: Why the last search failed, a sentence or two; empty if it did not.
    """

    changed = Signal()

    def __init__(self, find: Callable[..., tuple[Any, ...] | None], parent: QObject | None = None) -> None:
        super().__init__("search", parent)
        self._find = find
        # The arguments of the search that follows the present one; None for no search. `_take` begins it.
        self._next: tuple[object, ...] | None = None
        self.results: tuple[Any, ...] = ()
        self.looked = False
        self.problem = ""

    def search_folders(self, *arguments: object) -> None:
        """Search with these arguments of `find`; `changed` follows if the result or the problem differs.

        Of several requests during a search only the last one is carried out.
        """
        if self.busy:
            self._next = arguments
            return
        self._next = None
        self.do(lambda: self._find(*arguments), self._take)

    def _take(self, results: tuple[Any, ...] | RdchatError | None) -> None:
        """Take the end of a search, and begin the next one; after an error or None the last result stays."""
        before = (self.results, self.problem, self.looked)
        self.problem = ""
        self.looked = self.looked or results is not None
        if isinstance(results, RdchatError):
            _LOG.warning("Looking for files failed: %s", results)
            self.problem = str(results)
        elif results is not None:
            self.results = results
        if (self.results, self.problem, self.looked) != before:
            self.changed.emit()
        if self._next is not None:
            self.search_folders(*self._next)
