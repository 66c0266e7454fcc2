"""A watched child process, `rdchat --child NAME`, started by the first request and again after it ended.

Each request has its own thread, which sends it, waits for the answer, and enforces the request's limits.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rdchat.work.child_run import ChildClosedError, ChildError, ChildRun, Limits, Request
from rdchat.work.job import Job, outcome_of
from rdchat.work.served import Message


class ChildProcess:
    """A child, `rdchat --child NAME`. Any thread may call it.

    The child starts with the first request, and again with the next one after it ended.

    Args:
        name: One of `rdchat.children`; it answers through `work.served`.
        at_once: Number of requests that the child gets at a time.
        idle_s: The child ends after this time without a request; None keeps it.
        umask: Umask of the child; -1 for that of this process.
        command: Starts it, perhaps on another machine; empty for `host.child_command`.
        restarts: Whether a request starts it again after it ended; otherwise the request ends with the same error.
    """

    def __init__(
        self,
        name: str,
        *,
        at_once: int = 1,
        idle_s: float | None = None,
        umask: int = -1,
        command: Sequence[str] = (),
        restarts: bool = True,
    ) -> None:
        self._name = name
        self._restarts = restarts
        self._run = partial(ChildRun, name, umask, idle_s, command)
        self._turns = threading.Semaphore(at_once)
        self._guard = threading.Lock()
        self._running: ChildRun | None = None
        # Requests are sent in order, each after the previous one.
        self._last_sent = threading.Event()
        self._last_sent.set()
        self._end: weakref.finalize[..., Any] | None = None
        self._closes = 0
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None if it does not run."""
        running = self._running
        return running.process.pid if running is not None and running.error is None else None

    @property
    def last_log(self) -> str:
        """The last line that the child wrote to standard error, also after it ended by itself."""
        return self._running.last_log if self._running is not None else ""

    def start_child(self) -> None:
        """Start the child unless it runs, and return at once.

        Raises:
            ChildEndedError: If it cannot be started.
        """
        with self._guard:
            self._started()

    def submit(
        self,
        do: str,
        arguments: Message,
        limits: Limits = Limits(),  # noqa: B008  frozen
        *,
        read: Callable[[Any], Any] = lambda answer: answer,
        on_progress: Callable[[Any], object] | None = None,
        on_end: Callable[[Any], object] | None = None,
    ) -> Job[Any]:
        """Send a request to the child; the job's result is its answer.

        Args:
            do: Name of the child's call.
            arguments: Arguments of the call, as JSON.
            limits: Limits of this request.
            read: Converts the answer to the job's result. A LookupError, TypeError or ValueError from it means that the
                answer is invalid, which ends the child.
            on_progress: Called on a thread of the child with its progress reports; may raise as `read` does.
            on_end: Called on a thread of the child, or of the request, with the answer or the error.

        Returns:
            The job. It ends with a ChildError if the child ended or exceeded a limit, with a FrameError if the
            arguments are too long to send.
        """
        job: Job[Any] = Job(on_progress, on_end)
        request = Request(job, do, arguments, limits, read)
        try:
            self.start_child()
        except ChildError as error:
            job.set_outcome(error)
            return job
        with self._guard:
            target = partial(self._answer, request, self._last_sent, self._closes)
            self._last_sent = request.sent
        threading.Thread(target=target, name=f"{self._name} request", daemon=True).start()
        return job

    def close(self, grace_s: float = 0.0) -> None:
        """Close the child's input, wait for it to end, then kill it. Idempotent; the next request starts another."""
        with self._guard:
            running = self._running
            self._running = None
            self._closes += 1
            self._forget_end()
        if running is not None:
            running.close_child(grace_s)

    def _answer(self, request: Request, before: threading.Event, closes: int) -> None:
        """Let the child answer; ask a new one if the child ended before it got the request."""

        def ask(_job: Job[Any]) -> Any:
            while not self._current(closes).ask(request):
                pass
            return request.outcome

        before.wait()
        with self._turns:
            outcome = outcome_of(request.job, ask, self._name)
        # By now it is sent, or it never will be.
        request.sent.set()
        request.job.set_outcome(outcome)

    def _current(self, closes: int) -> ChildRun:
        with self._guard:
            if closes != self._closes:
                raise ChildClosedError("was ended")
            return self._started()

    def _started(self) -> ChildRun:
        error = self._running.error if self._running is not None else None
        if not self._restarts and (error is not None or self._closes):
            raise error or ChildClosedError("was ended")
        if self._running is None or error is not None:
            self._forget_end()
            self._running = self._run()
            self._end = weakref.finalize(self, ChildRun.close_child, self._running, 0.0)
            self.starts += 1
        return self._running

    def _forget_end(self) -> None:
        """Let a run that ended be collected: a finalizer keeps its arguments."""
        if self._end is not None:
            self._end.detach()
            self._end = None
