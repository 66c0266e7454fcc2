"""A watched child process, `rdchat --child NAME`: starts it with the first request, and again after it ended."""

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rdchat.work.child_limits import ChildError, Limits
from rdchat.work.child_run import ChildRun, ChildSettings, Request
from rdchat.work.frames import Message
from rdchat.work.job import Job


class ChildProcess:
    """A child, `rdchat --child NAME`. Any thread may call it; a thread of its own reads, writes and watches.

    The child starts with the first request, and anew with the next one after it ended.

    Args:
        name: One of `rdchat.children`; it answers by `work.served`.
        at_once: How many requests the child gets at a time.
        environment: More variables for the child.
        idle_s: Time without a request after which the child is ended; None keeps it.
        umask: Of the child; -1 is this process's.
    """

    def __init__(
        self,
        name: str,
        *,
        at_once: int = 1,
        environment: Mapping[str, str] | None = None,
        idle_s: float | None = None,
        umask: int = -1,
    ) -> None:
        self._settings = ChildSettings(name, at_once, dict(environment or {}), idle_s, umask)
        self._guard = threading.Lock()
        self._running: ChildRun | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The child's; None where there is none."""
        running = self._running
        return running.process.pid if running is not None and not running.ended else None

    def start(self) -> None:
        """Start the child and return at once, unless it runs.

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
        """Ask the child for something; the job's result is its answer.

        Args:
            do: Which of the child's calls.
            arguments: Of the call, JSON.
            limits: Of this request.
            read: Makes the job's result of the answer, on the watching thread. Its LookupError, TypeError or ValueError
                says that the answer makes no sense, which ends the child.
            on_progress: Called on the watching thread with what the child tells; may raise as `read`.
            on_end: Called on the watching thread with the answer or the error.

        Returns:
            The job. It ends with a ChildError where the child ended or a limit was passed, with a FrameError where the
            arguments are too long to be sent.
        """
        job: Job[Any] = Job(on_progress, on_end)
        self._submit_again(Request(job, do, arguments, limits, read))
        return job

    def close(self, grace_s: float = 0.0) -> None:
        """Close the child's input, wait for it to end, then kill it. Idempotent; the next request starts another."""
        with self._guard:
            running, self._running = self._running, None
            if self._end is not None:
                self._end.detach()
                self._end = None
        if running is not None:
            running.close(grace_s)

    def _submit_again(self, request: "Request") -> None:
        """Give a request to the child; start a new child if the last one ended."""
        try:
            with self._guard:
                self._started().add(request)
        except ChildError as error:
            request.job.end(error)

    def _started(self) -> "ChildRun":
        if self._running is None or self._running.ended:
            again = weakref.WeakMethod(self._submit_again)
            self._running = ChildRun(self._settings, again)
            self._end = weakref.finalize(self, ChildRun.close, self._running, 0.0)
            self.starts += 1
        return self._running
