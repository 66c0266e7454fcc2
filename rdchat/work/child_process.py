"""The parent's side of a watched child process: starts it, sends requests, holds it to limits of time and memory."""

import logging
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from rdchat import host
from rdchat.errors import RdchatError
from rdchat.work.frames import FrameBuffer, FrameError, Message, packed
from rdchat.work.job import CancelledError, Job, StopWork

_LOG = logging.getLogger(__name__)
_TICK_S = 0.02  # between two looks at a child that is held to limits
_START_S = 60.0  # importing transformers takes one second, on a cold and busy machine twenty
_KILLED = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}  # by others: it has no such end itself
_EXIT_S = 1.0  # after it closed its output
_PIECE = 2**16
_LOG_LINE = 1000  # characters


class ChildError(RdchatError):
    """The child ended, or was ended at a limit.

    Attributes:
        words: What became of the thing it worked on, as the end of a sentence that begins with that thing.
        interrupted: The child was killed or stopped from outside: what it worked on is not to blame.
    """

    interrupted = False

    def __init__(self, words: str, hint: str = "Try again.") -> None:
        super().__init__(f"This {words}.", hint)
        self.words = words


class ChildLimitError(ChildError):
    """The child took longer, or more memory, than the request allows."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"took {limit}, so it was ended")


class ChildEndedError(ChildError):
    """The child ended by itself, answered nonsense, or could not be started.

    Attributes:
        what: What became of the process, as the end of a sentence that begins with it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"could not be done: the process for it {what}")
        self.what = what


class ChildInterruptedError(ChildEndedError):
    """The child was killed or stopped by another program, or by the system where memory is short."""

    interrupted = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take. macOS does not hold a process to limits of memory, so the parent looks.

    Attributes:
        seconds: From the moment the child gets the request; None is without limit.
        memory_bytes: Resident memory beyond what the child has then; None is without limit.
        cancel_s: Time to stop in good order when cancelled; then the child is killed. None never kills it.
    """

    seconds: float | None = None
    memory_bytes: int | None = None
    cancel_s: float | None = 0.0


@dataclass(slots=True)
class _Asked:
    """A request on its way. What stands below `limits` is set once the child gets it."""

    job: Job[Any]
    do: str
    arguments: Message
    limits: Limits
    read: Callable[[Any], Any]
    number: int = 0
    deadline: float | None = None
    most_memory: int | None = None
    kill_at: float | None = None


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
        self._name, self._at_once, self._idle_s, self._umask = name, at_once, idle_s, umask
        self._environment = dict(environment or {})
        self._guard = threading.Lock()
        self._running: _Running | None = None
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
        limits: Limits = Limits(),
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
        self._ask_again(_Asked(job, do, arguments, limits, read))
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

    def _ask_again(self, asked: "_Asked") -> None:
        """Give a request to the child, or to a new one in the place of the one that ended before it had this."""
        try:
            with self._guard:
                self._started().add(asked)
        except ChildError as error:
            asked.job.end(error)

    def _started(self) -> "_Running":
        if self._running is None or self._running.ended:
            again = weakref.WeakMethod(self._ask_again)
            self._running = _Running(
                self._name, self._at_once, self._environment, self._idle_s, again, umask=self._umask
            )
            self._end = weakref.finalize(self, _Running.close, self._running, 0.0)
            self.starts += 1
        return self._running


class _Running:
    """One run of a child, with the thread that watches it."""

    def __init__(
        self,
        name: str,
        at_once: int,
        environment: Mapping[str, str],
        idle_s: float | None,
        ask_again: "weakref.WeakMethod[Any]",
        *,
        umask: int,
    ) -> None:
        self._name, self._at_once, self._ask_again = name, at_once, ask_again
        self._idle_s, self._idle_since = idle_s, time.monotonic()
        self._guard = threading.Lock()
        self._waiting: deque[_Asked] = deque()
        self._asked: dict[int, _Asked] = {}
        self._cancelled: list[_Asked] = []
        self._number = 0
        self._left = memoryview(b"")
        self._got, self._log = FrameBuffer(), bytearray()
        self._at_fault: _Asked | None = None
        self._ready = False
        self._start_by = time.monotonic() + _START_S
        self._closing_at: float | None = None
        self.ended = False
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                host.child_command(name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | environment,
                umask=umask,
                bufsize=0,
            )
        except OSError as error:
            raise ChildEndedError(f"could not be started ({error.strerror})") from error
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._watch, name=f"{name} child", daemon=True)
        self._thread.start()

    def add(self, asked: _Asked) -> None:
        with self._guard:
            if self.ended:
                raise ChildEndedError("ended unexpectedly")
            self._waiting.append(asked)
        asked.job.when_cancelled(lambda: self._cancel(asked))
        self._stir()

    def close(self, grace_s: float) -> None:
        self._closing_at = time.monotonic() + grace_s
        self._stir()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _cancel(self, asked: _Asked) -> None:
        with self._guard:
            self._cancelled.append(asked)
        self._stir()

    def _stir(self) -> None:
        with suppress(OSError):
            self._wake.send(b"1")

    # On the watching thread

    def _watch(self) -> None:
        error: ChildError = ChildEndedError("ended unexpectedly")
        try:
            self._follow()
            with suppress(subprocess.TimeoutExpired):
                error = _ended(self.process.wait(_EXIT_S))
        except ChildError as limit:
            error = limit
        except FrameError:
            error = ChildEndedError("gave an answer that makes no sense")
        except Exception:
            _LOG.exception("Following the child %s failed", self._name)
        self._finish(error)

    def _follow(self) -> None:
        """Read, write and watch until the child closes its output; raise ChildError where a limit was passed."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            for source in (process.stdout, process.stderr, self._woken):
                selector.register(source, selectors.EVENT_READ)
            while True:
                self._prepare(selector)
                for key, _ in selector.select(self._tick()):
                    if key.fileobj is process.stdin:
                        self._write(process.stdin.fileno())
                    elif key.fileobj is self._woken:
                        self._woken.recv(_PIECE)
                    elif key.fileobj is process.stderr:
                        self._take_log(selector)
                    elif not self._read(process.stdout.fileno()):
                        return
                self._look()

    def _tick(self) -> float | None:
        """Return how long may be waited for the child: for ever where nothing holds it to a time."""
        held = any(asked.deadline or asked.most_memory or asked.kill_at for asked in self._asked.values())
        if held or not self._ready or self._closing_at is not None:
            return _TICK_S
        if self._idle_s is None or self._asked:
            return None
        return max(self._idle_since + self._idle_s - time.monotonic(), 0.0)

    def _prepare(self, selector: selectors.BaseSelector) -> None:
        """Pass on what was asked and cancelled, as far as the child takes it."""
        stdin = self.process.stdin
        assert stdin is not None
        if self._closing_at is not None and not stdin.closed:
            with suppress(KeyError):
                selector.unregister(stdin)
            stdin.close()
        if stdin.closed:
            return
        with self._guard:
            cancelled, self._cancelled = self._cancelled, []
        for asked in cancelled:
            self._pass_on_cancel(asked)
        while self._ready and len(self._asked) < self._at_once and (following := self._next()) is not None:
            self._pass_on(following)
        wanted = selector.get_map().get(stdin) is not None
        if self._left and not wanted:
            selector.register(stdin, selectors.EVENT_WRITE)
        elif wanted and not self._left:
            selector.unregister(stdin)

    def _next(self) -> _Asked | None:
        with self._guard:
            return self._waiting.popleft() if self._waiting else None

    def _pass_on(self, asked: _Asked) -> None:
        if asked.job.cancelled:
            asked.job.end(CancelledError())
            return
        self._number += 1
        asked.number, limits = self._number, asked.limits
        message = {"id": asked.number, "do": asked.do, "arguments": asked.arguments, "seconds": limits.seconds}
        try:
            self._left = memoryview(bytes(self._left) + packed(message))
        except FrameError as error:
            asked.job.end(error)
            return
        if limits.seconds is not None:
            asked.deadline = time.monotonic() + limits.seconds
        if limits.memory_bytes is not None:
            asked.most_memory = _memory_bytes(self.process.pid) + limits.memory_bytes
        self._asked[asked.number] = asked

    def _pass_on_cancel(self, asked: _Asked) -> None:
        if self._asked.get(asked.number) is not asked:
            return  # it waits, and ends when its turn comes, or has ended
        self._left = memoryview(bytes(self._left) + packed({"cancel": asked.number}))
        if asked.limits.cancel_s is not None:
            asked.kill_at = time.monotonic() + asked.limits.cancel_s

    def _write(self, descriptor: int) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the end of the child is read from its output
            self._left = self._left[os.write(descriptor, self._left[:_PIECE]) :]

    def _read(self, descriptor: int) -> bool:
        """Take in what the child says; return whether it says more."""
        piece = os.read(descriptor, 2**20)
        self._got.add(piece)
        while (message := self._got.take()) is not None:
            self._take(message)
        return bool(piece)

    def _take(self, message: Message) -> None:
        if "ready" in message:
            self._ready, self._idle_since = True, time.monotonic()
            return
        asked = self._asked.get(message.get("id", 0))
        if asked is None:
            raise FrameError("A process answered what was not asked.")
        if "progress" in message:
            try:
                asked.job.tell(message["progress"])
            except StopWork:
                pass
            except (LookupError, TypeError, ValueError) as error:
                raise FrameError("A process told progress of another shape.") from error
            return
        outcome = _outcome(message, asked.read)
        del self._asked[asked.number]
        self._idle_since = time.monotonic()
        asked.job.end(outcome)

    def _look(self) -> None:
        """Raise ChildError where the child passes a limit; `_at_fault` is the request that made it."""
        now, pid = time.monotonic(), self.process.pid
        if self._closing_at is not None and now >= self._closing_at:
            raise ChildEndedError("was ended")
        if not self._ready and now > self._start_by:
            raise ChildLimitError(f"longer than {_START_S:.0f} seconds to start")
        idle = self._ready and not self._asked and not self._waiting
        if idle and self._idle_s is not None and now >= self._idle_since + self._idle_s:
            raise ChildEndedError("had nothing to do")
        for asked in self._asked.values():
            self._at_fault, limits = asked, asked.limits
            if asked.kill_at is not None and now >= asked.kill_at:
                raise ChildEndedError("was ended")
            if asked.deadline is not None and now > asked.deadline:
                if _is_stopped(pid):
                    raise ChildInterruptedError("was stopped")
                raise ChildLimitError(f"longer than {limits.seconds:.0f} seconds")
            if asked.most_memory is not None and _memory_bytes(pid) > asked.most_memory:
                most = (limits.memory_bytes or 0) / 1e9
                raise ChildLimitError(f"more than {most:.1f} GB of memory")
        self._at_fault = None

    def _take_log(self, selector: selectors.BaseSelector) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        piece = os.read(stderr.fileno(), _PIECE)
        if not piece:
            selector.unregister(stderr)
        *lines, rest = bytes(self._log + piece).split(b"\n")
        self._log = bytearray(rest[:_LOG_LINE])
        for line in lines:
            _LOG.warning("%s: %s", self._name, line.decode(errors="replace").rstrip()[:_LOG_LINE])

    def _finish(self, error: ChildError) -> None:
        """See the child end, and end what it was asked; what still waited for it is asked of another."""
        process = self.process
        with self._guard:
            self.ended = True
            waiting = list(self._waiting)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr, self._woken, self._wake):
            if stream is not None:
                stream.close()
        for asked in self._asked.values():
            own = error if self._at_fault in (None, asked) else ChildEndedError("was ended")
            asked.job.end(CancelledError() if asked.job.cancelled else own)
        again = self._ask_again() if self._ready and self._closing_at is None else None
        for asked in waiting:
            if again is not None:
                again(asked)
            else:
                asked.job.end(error)


def _ended(status: int) -> ChildEndedError:
    """Return what to say of a child that ended by itself, by its exit status."""
    if -status in _KILLED:
        return ChildInterruptedError("was killed. Perhaps memory is short")
    return ChildEndedError(f"ended unexpectedly (status {status})")


def _outcome(message: Message, read: Callable[[Any], Any]) -> Any:
    """Return what a child's last word on a request says; raises FrameError where it makes no sense."""
    try:
        if "result" in message:
            return read(message["result"])
        if "error" in message:
            error = message["error"]
            return RdchatError(str(error["message"]), str(error["hint"]))
        if message.get("cancelled") is True:
            return CancelledError()
    except RdchatError as error:
        return error
    except (LookupError, TypeError, ValueError) as error:
        raise FrameError("A process gave an answer of another shape.") from error
    raise FrameError("A process gave no answer.")


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _memory_bytes(pid: int) -> int:
    """Return a child's resident memory; 0 where it has just ended, which reading from it tells."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
