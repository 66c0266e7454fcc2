"""A job on a thread or in a child process: progress, result or error, and cancellation."""

import threading
from collections.abc import Callable
from typing import Any

from rdchat.errors import RdchatError

_TICK_S = 0.02  # between two calls of `waiting`


class CancelledError(RdchatError):
    """A job was cancelled before it ended."""

    def __init__(self) -> None:
        super().__init__("This was cancelled.")


class StopWork(BaseException):
    """Ends the work of a cancelled job; handlers of ordinary errors do not catch it."""


class Job[T]:
    """Work on a thread or in a child process. Any thread may call it.

    Args:
        on_progress: Called on the worker's thread with progress.
        on_end: Called once on the worker's thread, with the result or the RdchatError. Not after `forget`.
    """

    def __init__(
        self,
        on_progress: Callable[[Any], object] | None = None,
        on_end: Callable[[T | RdchatError], object] | None = None,
    ) -> None:
        self._on_progress, self._on_end = on_progress, on_end
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        self._on_cancel: Callable[[], object] | None = None
        self._outcome: T | RdchatError = CancelledError()
        self._guard = threading.RLock()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask the work to stop; `on_end` follows, usually with a CancelledError."""
        with self._guard:
            if self._cancelled.is_set():
                return
            self._cancelled.set()
            on_cancel = self._on_cancel
        if on_cancel is not None:
            on_cancel()

    def forget(self) -> None:
        """Cancel the job, and make no more calls."""
        with self._guard:
            self._on_progress = self._on_end = None
        self.cancel()

    def result(self, waiting: Callable[[], object] | None = None) -> T:
        """Wait for the end and return the result.

        Args:
            waiting: Called every 20 ms; an exception from it cancels the job and is raised.

        Raises:
            RdchatError: The error with which the job ended.
        """
        try:
            while not self._ended.wait(None if waiting is None else _TICK_S):
                if waiting is not None:
                    waiting()
        except BaseException:
            self.cancel()
            raise
        if isinstance(self._outcome, RdchatError):
            raise self._outcome
        return self._outcome

    # For the thread or process that does the work

    def report_progress(self, progress: Any) -> None:
        """Report progress, or raise StopWork if the job was cancelled."""
        self.check()
        with self._guard:
            if self._on_progress is not None:
                self._on_progress(progress)

    def check(self) -> None:
        """Raise StopWork if the job was cancelled."""
        if self._cancelled.is_set():
            raise StopWork

    def when_cancelled(self, on_cancel: Callable[[], object]) -> None:
        """Call this when the job is cancelled, on the cancelling thread; at once if it already is."""
        with self._guard:
            self._on_cancel = on_cancel
            late = self._cancelled.is_set()
        if late:
            on_cancel()

    def end(self, outcome: T | RdchatError) -> None:
        """Set the result or the error. Only the first call counts."""
        with self._guard:
            if self._ended.is_set():
                return
            self._outcome = outcome
            self._ended.set()
            on_end, self._on_end, self._on_progress = self._on_end, None, None
            if on_end is not None:
                on_end(outcome)
