"""`Job` is work on a thread or in a child process; `SerialThread` is a thread that runs one job after another.

A job's progress and end are reported by callbacks on the worker's thread; `services.background_work` brings them to the
main thread.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from rdchat import paths
from rdchat.errors import RdchatError

# Between two checks of what a wait depends on.
_TICK_S = 0.02

_LOG = logging.getLogger(__name__)


class CancelledError(RdchatError):
    """A job was cancelled before it ended."""

    def __init__(self) -> None:
        super().__init__("This was cancelled.")


class StopWork(BaseException):
    """Ends the work of a cancelled job; handlers of ordinary errors do not catch it."""


class Job[T]:
    """Work on a thread or in a child process. Its methods may be called on any thread.

    Args:
        on_progress: Called on the worker's thread with progress.
        on_end: Called once on the worker's thread, with the result or the RdchatError. Not after `cancel_silently`.

    Attributes:
        on_hold: Called after each `hold`, on the thread that called it.
    """

    def __init__(
        self,
        on_progress: Callable[[Any], object] | None = None,
        on_end: Callable[[T | RdchatError], object] | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._on_end = on_end
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        self._on_cancel: Callable[[], object] | None = None
        # Set while the job is not held.
        self._free = threading.Event()
        self._free.set()
        self.on_hold: Callable[[], object] = lambda: None
        self._outcome: T | RdchatError = CancelledError()
        # Can be taken again by the same thread: `report_progress` and `set_outcome` make their calls inside it.
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

    @property
    def held(self) -> bool:
        """Whether the work is to wait."""
        return not self._free.is_set()

    def hold(self, held: bool) -> None:
        """Pause the work at its next check, or let it continue."""
        if held:
            self._free.clear()
        else:
            self._free.set()
        self.on_hold()

    def cancel_silently(self) -> None:
        """Cancel the job, and make no more calls."""
        with self._guard:
            self._on_progress = None
            self._on_end = None
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
        self.check_cancelled()
        with self._guard:
            if self._on_progress is not None:
                self._on_progress(progress)

    def check_cancelled(self) -> None:
        """Raise StopWork if the job was cancelled."""
        if self._cancelled.is_set():
            raise StopWork

    def wait_while_held(self) -> float:
        """Wait while the job is held and not cancelled; return the seconds."""
        began = time.monotonic()
        while not self._cancelled.is_set() and not self._free.wait(_TICK_S):
            pass
        return time.monotonic() - began

    def when_cancelled(self, on_cancel: Callable[[], object]) -> None:
        """Call this when the job is cancelled, on the cancelling thread; at once if it already is.

        A job has one such call: a later one replaces it.
        """
        with self._guard:
            self._on_cancel = on_cancel
            is_cancelled = self._cancelled.is_set()
        if is_cancelled:
            on_cancel()

    def set_outcome(self, outcome: T | RdchatError) -> None:
        """Set the result or the error. Only the first call counts."""
        with self._guard:
            if self._ended.is_set():
                return
            self._outcome = outcome
            self._ended.set()
            on_end = self._on_end
            self._on_end = None
            self._on_progress = None
            if on_end is not None:
                on_end(outcome)


_Task = tuple[Job[Any], Callable[[Job[Any]], Any]]


class SerialThread:
    """Runs jobs in the order in which they are given; the thread starts with the first one, and ends with this object.

    Args:
        name: Name of the thread, for the log and for debugging.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        # Whether a thread takes from `_tasks`. After `abandon_job` none does: the one before goes on with the queue
        # that it had, and the next `do` starts another.
        self._started = False
        self._latest: Job[Any] | None = None
        # The argument of `do` with the latest job.
        self._may_stop = False
        self._closed = False

    def __del__(self) -> None:
        self._tasks.put(None)

    @property
    def busy(self) -> bool:
        """Whether the last job given has not ended."""
        return self._latest is not None and not self._latest.ended

    @property
    def has_more(self) -> bool:
        """Whether other jobs wait behind the running one."""
        return not self._tasks.empty()

    def do[T](
        self,
        work: Callable[[Job[T]], T],
        on_end: Callable[[T | RdchatError], object] | None = None,
        on_progress: Callable[[Any], object] | None = None,
        *,
        may_stop: bool = False,
    ) -> Job[T]:
        """Run this after all earlier jobs.

        Args:
            work: Called on the thread with its job. Its exceptions become RdchatErrors.
            on_end: Called on the thread with the result or the error.
            on_progress: Called on the thread with progress.
            may_stop: Whether `wait_for_jobs` cancels it instead of waiting for it.
        """
        job: Job[T] = Job(on_progress, on_end)
        if self._closed:
            job.set_outcome(CancelledError())
            return job
        if not self._started:
            self._start()
        self._latest = job
        self._may_stop = may_stop
        self._tasks.put((job, work))
        return job

    def abandon_job(self) -> None:
        """Cancel the last job and its callbacks, and leave its thread to it.

        The next job does not wait for it: a request to a hub cannot be interrupted, so it keeps its own thread until it
        ends.
        """
        job = self._latest
        self._latest = None
        if job is not None and not job.ended:
            job.cancel_silently()
            self._tasks.put(None)
            self._tasks = queue.SimpleQueue()
            self._started = False

    def wait_for_jobs(self, timeout_s: float = 2.0) -> None:
        """Wait for the jobs given, but only this long, because a disk or a hub may hang.

        The last job, if it may stop, and later jobs are cancelled.
        """
        self._closed = True
        if self._may_stop:
            self.abandon_job()
        self._tasks.put(None)
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(end - time.monotonic(), 0))

    def _start(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=_run, args=(self._name, self._tasks), name=self._name, daemon=True)
        self._threads.append(thread)
        self._started = True
        thread.start()


def _run(name: str, tasks: "queue.SimpleQueue[_Task | None]") -> None:
    """Run the jobs of a queue, until None comes."""
    while (task := tasks.get()) is not None:
        job, work = task
        outcome = outcome_of(job, work, name)
        try:
            job.set_outcome(outcome)
        except Exception:
            _LOG.exception("Reporting the end of %s failed", name)
        # While the thread waits, this frame would keep them alive, and with them perhaps the `SerialThread`, whose end
        # ends the thread.
        del task, job, work, outcome


def outcome_of[T](job: Job[T], work: Callable[[Job[T]], T], name: str) -> T | RdchatError:
    """Return the result of a job's work, or the error; unexpected ones are logged under the work's name."""
    try:
        job.check_cancelled()
        return work(job)
    except StopWork:
        return CancelledError()
    except Exception as error:
        return error_of(error, name)


def error_of(error: Exception, name: str) -> RdchatError:
    """Return an error of some work as one for people; unexpected ones are logged under the work's name."""
    if isinstance(error, RdchatError):
        return error
    if isinstance(error, OSError) and error.strerror:
        _LOG.warning("%s failed", name, exc_info=error)
        file_name = os.fsdecode(error.filename or "A file")[:300]
        return RdchatError(f"{file_name} cannot be used: {error.strerror}.", "Check the path and its permissions.")
    if isinstance(error, MemoryError):
        return RdchatError("There is not enough memory.", "Close other apps, then try again.")
    _LOG.error("%s failed unexpectedly", name, exc_info=error)
    text = f"Something unexpected went wrong: {type(error).__name__}."
    return RdchatError(text, f"The details are in {paths.log_path()}.")
