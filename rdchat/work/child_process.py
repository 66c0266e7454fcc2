"""The parent's side of a watched child process, `rdchat --child NAME`; the child's side is `work.served`.

`ChildProcess` is what others use. It starts the process with the first request, and again after it ended; a `ChildRun`
is one run of it. Each request has its own thread, which sends it, waits for the answer, and enforces the request's
limits. Each run has two threads more, which read its answers and its log.
"""

import itertools
import logging
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, cast

import psutil

from rdchat import errors, host, machine
from rdchat.errors import RdchatError
from rdchat.wording import size_text
from rdchat.work.job import CancelledError, Job, StopWork, outcome_of
from rdchat.work.served import FrameError, Message, packed, read_message

_LOG = logging.getLogger(__name__)
# Between two looks at a request's limits.
_TICK_S = 0.02
# Importing transformers takes one second, on a cold and busy machine twenty.
_START_S = 60.0
# A child that ended by one of these signals was killed by another program or the system.
_KILLED = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}
# How long the exit status and the last lines of the log are waited for after a child has closed its output.
_EXIT_S = 1.0
# Bytes that are written at a time, and the longest line of the log that is read.
_PIECE = 2**16
_LOG_LINE = 1000
# The outcome of a request that has none yet.
_NO_ANSWER = object()


class ChildError(RdchatError):
    """The child ended, or was ended at a limit.

    Attributes:
        reason: What happened to the work, as the end of a sentence whose subject is the work.
        interrupted: Whether the child was killed or stopped by another program, or by the system when memory is short,
            so that its work is not at fault.
    """

    interrupted = False

    def __init__(self, reason: str) -> None:
        super().__init__(f"This {reason}.", "Try again.")
        self.reason = reason


class ChildLimitError(ChildError):
    """The child took more time or memory than the request allows."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"took {limit}, so it was ended")


class ChildEndedError(ChildError):
    """The child ended by itself, gave an invalid answer, or could not be started.

    Attributes:
        what: What happened to the process, as the end of a sentence whose subject is the process.
        status: Its exit status; None if it did not end by itself.
    """

    def __init__(self, what: str, *, interrupted: bool = False, status: int | None = None) -> None:
        super().__init__(f"could not be done: the process for it {what}")
        self.what = what
        self.interrupted = interrupted
        self.status = status


class ChildClosedError(ChildEndedError):
    """The app closed the child before it answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request. macOS does not enforce memory limits, so the parent checks.

    Attributes:
        seconds: From the request, or the last progress, to the next progress or the answer; None for no limit.
        memory_bytes: Resident memory in addition to what the child has at the start; None for no limit.
        cancel_s: Time to stop in good order after cancelling; then the child is killed. None never kills it.
    """

    seconds: float | None = None
    memory_bytes: int | None = None
    cancel_s: float | None = 0.0


@dataclass(slots=True, eq=False)
class Request:
    """A request to the child. `deadline` and `memory_limit` are set when the child gets it.

    Each progress moves the deadline on, and a cancellation sets it by `Limits.cancel_s`; None is no limit.

    Attributes:
        job: Gets the progress and the outcome.
        do: Name of the child's call.
        arguments: Its arguments, as JSON.
        limits: Its limits.
        read: Converts the answer to the job's result; see `ChildProcess.submit`.
        woken: Wakes the request's thread: set at the outcome, when it is cancelled, and when it is held or goes on.
        sent: Set when it was sent, or ended without being sent: then the next request may be sent.
        outcome: The result or the error.
    """

    job: Job[Any]
    do: str
    arguments: Message
    limits: Limits
    read: Callable[[Any], Any]
    woken: threading.Event = field(default_factory=threading.Event)
    sent: threading.Event = field(default_factory=threading.Event)
    outcome: Any = _NO_ANSWER
    deadline: float | None = None
    memory_limit: int | None = None


class ChildRun:
    """One run of a child.

    Attributes:
        error: The reason for its end; None while it runs.
        last_log: The last line that it wrote to standard error.
    """

    def __init__(self, name: str, umask: int, idle_s: float | None, command: Sequence[str] = ()) -> None:
        self._name = name
        self._idle_s = idle_s
        # Whether it leads a process group: a command of the caller's may start other programs.
        self._is_group = bool(command)
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                command or host.child_command(name), stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ, umask=umask,
                # Ctrl-C in a terminal would end ssh.
                start_new_session=self._is_group,
            )  # fmt: skip
        except OSError as error:
            raise ChildEndedError(f"could not be started ({error.strerror})") from error
        self._input = cast("BinaryIO", self.process.stdin)
        self._output = cast("BinaryIO", self.process.stdout)
        os.set_blocking(self._input.fileno(), False)
        self.error: ChildError | None = None
        self.last_log = ""
        # Whether the child has said that it is ready; the event is set then, and at its end.
        self._is_ready = False
        self._ready_or_ended = threading.Event()
        # The guard is for `error`, the requests and the timer. The other lock is for the child's input; `_send` may
        # call `kill` inside it, which takes it again.
        self._guard = threading.Lock()
        self._writing = threading.RLock()
        # The requests that were sent and not answered, by the number that the child knows.
        self._requests: dict[int, Request] = {}
        self._numbers = itertools.count(1)
        self._idle_timer: threading.Timer | None = None
        self._reader = threading.Thread(target=self._read, name=f"{name} child", daemon=True)
        self._log_reader = threading.Thread(target=self._pass_on_log, name=f"{name} log", daemon=True)
        self._log_reader.start()
        self._reader.start()

    def ask(self, request: Request) -> bool:
        """Send a request and wait for its outcome; return False if the child ended before it got the request.

        Raises:
            RdchatError: If the request cannot be sent, or the child did not become ready.
        """
        if not self._ready_or_ended.wait(_START_S):
            self.kill(ChildLimitError(f"longer than {_START_S:.0f} seconds to start"))
        with self._guard:
            if self.error is not None:
                if self._is_ready:
                    return False
                raise self.error
            self._set_idle_timer(None)
            number = next(self._numbers)
            self._requests[number] = request
        try:
            self._send_and_wait(number, request)
        finally:
            with self._guard:
                del self._requests[number]
                if not self._requests:
                    self._set_idle_timer(self._idle_s)
        return True

    def _send_and_wait(self, number: int, request: Request) -> None:
        """Send a request and wait for its outcome; pass on meanwhile that it was cancelled, held, or goes on."""
        limits = request.limits
        message = {"id": number, "do": request.do, "arguments": request.arguments, "seconds": limits.seconds}
        frame = packed(message)
        request.job.when_cancelled(request.woken.set)
        request.job.on_hold = request.woken.set
        if limits.seconds is not None:
            request.deadline = time.monotonic() + limits.seconds
        if limits.memory_bytes is not None:
            request.memory_limit = _memory_bytes(self.process.pid) + limits.memory_bytes
        self._send(frame, request)
        request.sent.set()
        is_cancelled = False
        is_held = False
        while request.outcome is _NO_ANSWER:
            if request.job.cancelled and not is_cancelled:
                is_cancelled = True
                if limits.cancel_s is not None:
                    request.deadline = time.monotonic() + limits.cancel_s
                self._send(packed({"cancel": number}), request)
            if request.job.held is not is_held:
                is_held = not is_held
                self._send(packed({"hold": number, "on": is_held}), request)
            request.woken.wait(_TICK_S if request.deadline or request.memory_limit else None)
            request.woken.clear()
            self._check_limits(request)

    def _send(self, frame: bytes, request: Request) -> None:
        """Write a frame and check the limits meanwhile: a stuck child reads nothing."""
        left = memoryview(frame)
        poll = select.poll()
        # The reader notices the end of the child. A closed input raises ValueError.
        with self._writing, suppress(BrokenPipeError, ValueError):
            poll.register(self._input.fileno(), select.POLLOUT)
            while left and self.error is None:
                if poll.poll(_TICK_S * 1000):
                    left = left[os.write(self._input.fileno(), left[:_PIECE]) :]
                elif request.job.cancelled and request.limits.cancel_s is not None:
                    self.kill(ChildEndedError("was ended"))
                self._check_limits(request)

    def _check_limits(self, request: Request) -> None:
        """Kill the child if an unanswered request exceeds its limits."""
        limits = request.limits
        pid = self.process.pid
        if request.outcome is not _NO_ANSWER:
            return
        if request.deadline is not None and time.monotonic() > request.deadline:
            if request.job.cancelled:
                # It took longer than `cancel_s`. The child's other requests end with this error.
                self.kill(ChildEndedError("was ended"))
                return
            late = ChildLimitError(f"longer than {limits.seconds or 0.0:.0f} seconds")
            self.kill(ChildEndedError("was stopped", interrupted=True) if _is_stopped(pid) else late)
        elif request.memory_limit is not None and _memory_bytes(pid) > request.memory_limit:
            self.kill(ChildLimitError(f"more than {size_text(limits.memory_bytes or 0)} of memory"))

    def kill(self, error: ChildError) -> None:
        """Kill the child and end its requests with this error; only the first call counts."""
        with self._guard:
            if self.error is not None:
                return
            self.error = error
            self._set_idle_timer(None)
            requests = list(self._requests.values())
        self.process.kill()
        if self._is_group:
            # Programs that it started would hold the pipes.
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # The last callbacks for progress come before those for the end.
        self._join_reader()
        with self._writing:
            self._input.close()
        for request in requests:
            if request.outcome is _NO_ANSWER:
                request.outcome = CancelledError() if request.job.cancelled else error
            request.woken.set()
        self._ready_or_ended.set()

    def close_child(self, grace_s: float) -> None:
        """Close the child's input, and kill it after `grace_s`."""
        if self._writing.acquire(timeout=_TICK_S):
            self._input.close()
            self._writing.release()
        # A child that was stopped by SIGSTOP would not notice that.
        self.process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(grace_s)
        self.kill(ChildClosedError("was ended"))
        self._join_reader()

    def _join_reader(self) -> None:
        """Wait until all answers are read."""
        if self._reader is not threading.current_thread():
            self._reader.join()

    def _set_idle_timer(self, seconds: float | None) -> None:
        """End the child after so long without a request; None stops the timer. The caller has the guard."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if seconds is not None and self.error is None:
            self._idle_timer = threading.Timer(seconds, self.kill, [ChildEndedError("had nothing to do")])
            self._idle_timer.daemon = True
            self._idle_timer.start()

    # On the reading threads

    def _read(self) -> None:
        """Read the child's messages until it ends."""
        error: ChildError = ChildEndedError("ended unexpectedly")
        try:
            while self.error is None and (message := read_message(self._output)) is not None:
                self._receive(message)
            with suppress(subprocess.TimeoutExpired):
                error = _end_error(self.process.wait(_EXIT_S))
            self._log_reader.join(_EXIT_S)
        except FrameError:
            error = ChildEndedError("sent an answer that could not be read")
        except Exception:
            _LOG.exception("Following the child %s failed", self._name)
        self.kill(error)
        self._output.close()

    def _receive(self, message: Message) -> None:
        """Take a message of the child; raise FrameError if it is not one that `work.served` sends."""
        if "ready" in message:
            self._is_ready = True
            self._ready_or_ended.set()
            return
        request = self._requests.get(message.get("id", 0))
        if request is None or request.outcome is not _NO_ANSWER:
            raise FrameError("A process answered a request that it did not get.")
        try:
            if "progress" in message:
                if request.limits.seconds is not None and not request.job.cancelled:
                    request.deadline = time.monotonic() + request.limits.seconds
                with suppress(StopWork):
                    request.job.report_progress(message["progress"])
                return
            request.outcome = _outcome(message, request.read)
        except (LookupError, TypeError, ValueError) as error:
            raise FrameError("A process sent an answer of an unexpected shape.") from error
        # The job ends on this thread, so that the end keeps its order with the progress of other requests.
        request.job.set_outcome(request.outcome)
        request.woken.set()

    def _pass_on_log(self) -> None:
        """Log what the child writes to standard error, until it ends, unless it is another program's, such as ssh's."""
        with cast("BinaryIO", self.process.stderr) as log:
            for line in iter(partial(log.readline, _LOG_LINE), b""):
                self.last_log = line.decode(errors="replace").strip() or self.last_log
                if not self._is_group:
                    _LOG.warning("%s: %s", self._name, self.last_log)


def _end_error(status: int) -> ChildEndedError:
    """Return the error for a child that ended by itself with this exit status."""
    if -status in _KILLED:
        return ChildEndedError("was killed. Perhaps memory is short", interrupted=True)
    return ChildEndedError(f"ended unexpectedly (status {status})", status=status)


def _outcome(message: Message, read: Callable[[Any], Any]) -> Any:
    """Return the result or error in a child's answer; raise FrameError if it has neither."""
    if "result" in message:
        try:
            return read(message["result"])
        except RdchatError as refusal:
            return refusal
    if "error" in message:
        error = message["error"]
        kind = getattr(errors, str(error["kind"]), None)
        if not (isinstance(kind, type) and issubclass(kind, RdchatError)):
            # Only classes of `rdchat.errors` are looked up; the parent may not have imported the error's module.
            kind = RdchatError
        return kind(str(error["message"]), str(error["hint"]))
    if message.get("cancelled") is True:
        return CancelledError()
    raise FrameError("A process gave no answer.")


def _is_stopped(pid: int) -> bool:
    """Return whether a process was stopped, as by SIGSTOP, so that it cannot answer."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _memory_bytes(pid: int) -> int:
    """Return a child's memory, on a Mac its physical footprint; 0 if it has just ended."""
    try:
        return machine.physical_footprint(pid) or int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


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
        # Starts the process.
        self._start_run = partial(ChildRun, name, umask, idle_s, command)
        self._slots = threading.Semaphore(at_once)
        self._guard = threading.Lock()
        self._running: ChildRun | None = None
        # `sent` of the last request: requests are sent in order, each after the previous one.
        self._last_sent = threading.Event()
        self._last_sent.set()
        # Ends the present run when this object is collected.
        self._end: weakref.finalize[..., Any] | None = None
        # How often `close` was called: a request from before the last call ends, and starts no new run.
        self._closes = 0
        # How often the process was started.
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
            self._start_unless_running()

    def submit(
        self,
        do: str,
        arguments: Message,
        limits: Limits = Limits(),
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
            target = partial(self._run_request, request, self._last_sent, self._closes)
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

    def _run_request(self, request: Request, before: threading.Event, closes: int) -> None:
        """Let the child answer; ask a new run if the present one ended before it got the request.

        Args:
            request: The request, whose thread this is.
            before: `sent` of the request before it.
            closes: `_closes` when it was submitted.
        """

        def ask(_job: Job[Any]) -> Any:
            while not self._run_unless_closed(closes).ask(request):
                pass
            return request.outcome

        before.wait()
        with self._slots:
            outcome = outcome_of(request.job, ask, self._name)
        # By now it is sent, or it never will be.
        request.sent.set()
        # `_receive` has set an answer of the child before; only the first call counts.
        request.job.set_outcome(outcome)

    def _run_unless_closed(self, closes: int) -> ChildRun:
        """Return the present run, or start one; raise ChildClosedError if the child was closed since."""
        with self._guard:
            if closes != self._closes:
                raise ChildClosedError("was ended")
            return self._start_unless_running()

    def _start_unless_running(self) -> ChildRun:
        """Return the present run, or start one; the caller has the guard. Raises ChildEndedError."""
        error = self._running.error if self._running is not None else None
        # A child that was closed has no run that could have an error.
        if (error or self._closes) and not self._restarts:
            raise error or ChildClosedError("was ended")
        if self._running is None or error is not None:
            self._forget_end()
            self._running = self._start_run()
            self._end = weakref.finalize(self, ChildRun.close_child, self._running, 0.0)
            self.starts += 1
        return self._running

    def _forget_end(self) -> None:
        """Detach the finalizer of a run that ended, which would keep that in memory."""
        if self._end is not None:
            self._end.detach()
            self._end = None
