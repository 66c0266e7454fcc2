"""One run of a child process: the thread that writes requests, reads answers, and holds the child to its limits."""

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
from rdchat.work.child_limits import ChildEndedError, ChildError, ChildInterruptedError, ChildLimitError, Limits
from rdchat.work.frames import FrameBuffer, FrameError, Message, packed
from rdchat.work.job import CancelledError, Job, StopWork

_LOG = logging.getLogger(__name__)
_TICK_S = 0.02  # between two checks of a limit
_START_S = 60.0  # importing transformers takes one second, on a cold and busy machine twenty
_KILLED = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}  # sent by another program or the system
_EXIT_S = 1.0  # for the process to end after it closed its output
_PIECE = 2**16
_LOG_LINE = 1000  # characters


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """How a child is started and used; the fields are the arguments of `ChildProcess`."""

    name: str
    at_once: int
    environment: Mapping[str, str]
    idle_s: float | None
    umask: int


@dataclass(slots=True)
class Request:
    """A request to the child. The fields below `read` are set when the child gets it."""

    job: Job[Any]
    do: str
    arguments: Message
    limits: Limits
    read: Callable[[Any], Any]
    number: int = 0
    deadline: float | None = None
    most_memory: int | None = None
    kill_at: float | None = None


class ChildRun:
    """One run of a child, with the thread that watches it."""

    def __init__(self, settings: ChildSettings, submit_again: "weakref.WeakMethod[Any]") -> None:
        self._settings, self._submit_again = settings, submit_again
        self._idle_since = time.monotonic()
        self._guard = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._asked: dict[int, Request] = {}
        self._cancelled: list[Request] = []
        self._number = 0
        self._left = memoryview(b"")
        self._got, self._log = FrameBuffer(), bytearray()
        self._at_fault: Request | None = None
        self._ready = False
        self._start_by = time.monotonic() + _START_S
        self._closing_at: float | None = None
        self.ended = False
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                host.child_command(settings.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | settings.environment,
                umask=settings.umask,
                bufsize=0,
            )
        except OSError as error:
            raise ChildEndedError(f"could not be started ({error.strerror})") from error
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._watch, name=f"{settings.name} child", daemon=True)
        self._thread.start()

    def add(self, asked: Request) -> None:
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

    def _cancel(self, asked: Request) -> None:
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
            _LOG.exception("Following the child %s failed", self._settings.name)
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
                self._check_limits()

    def _tick(self) -> float | None:
        """Return the seconds until the next check of a limit; None where there is no limit."""
        held = any(asked.deadline or asked.most_memory or asked.kill_at for asked in self._asked.values())
        if held or not self._ready or self._closing_at is not None:
            return _TICK_S
        if self._settings.idle_s is None or self._asked:
            return None
        return max(self._idle_since + self._settings.idle_s - time.monotonic(), 0.0)

    def _prepare(self, selector: selectors.BaseSelector) -> None:
        """Queue cancellations and waiting requests for the pipe, up to `at_once` requests."""
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
        while self._ready and len(self._asked) < self._settings.at_once and (following := self._next()) is not None:
            self._pass_on(following)
        wanted = selector.get_map().get(stdin) is not None
        if self._left and not wanted:
            selector.register(stdin, selectors.EVENT_WRITE)
        elif wanted and not self._left:
            selector.unregister(stdin)

    def _next(self) -> Request | None:
        with self._guard:
            return self._waiting.popleft() if self._waiting else None

    def _pass_on(self, asked: Request) -> None:
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

    def _pass_on_cancel(self, asked: Request) -> None:
        if self._asked.get(asked.number) is not asked:
            return  # it waits, and ends when its turn comes, or has ended
        self._left = memoryview(bytes(self._left) + packed({"cancel": asked.number}))
        if asked.limits.cancel_s is not None:
            asked.kill_at = time.monotonic() + asked.limits.cancel_s

    def _write(self, descriptor: int) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the end of the child is read from its output
            self._left = self._left[os.write(descriptor, self._left[:_PIECE]) :]

    def _read(self, descriptor: int) -> bool:
        """Read from the child; return False at the end of its output."""
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
            raise FrameError("A process answered a request that it did not get.")
        if "progress" in message:
            try:
                asked.job.tell(message["progress"])
            except StopWork:
                pass
            except (LookupError, TypeError, ValueError) as error:
                raise FrameError("A process sent progress of an unexpected shape.") from error
            return
        outcome = _outcome(message, asked.read)
        del self._asked[asked.number]
        self._idle_since = time.monotonic()
        asked.job.end(outcome)

    def _check_limits(self) -> None:
        """Raise ChildError if the child passed a limit; `_at_fault` is the request that caused it."""
        now, pid = time.monotonic(), self.process.pid
        if self._closing_at is not None and now >= self._closing_at:
            raise ChildEndedError("was ended")
        if not self._ready and now > self._start_by:
            raise ChildLimitError(f"longer than {_START_S:.0f} seconds to start")
        idle = self._ready and not self._asked and not self._waiting
        if idle and self._settings.idle_s is not None and now >= self._idle_since + self._settings.idle_s:
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
            _LOG.warning("%s: %s", self._settings.name, line.decode(errors="replace").rstrip()[:_LOG_LINE])

    def _finish(self, error: ChildError) -> None:
        """Kill the child and end its requests; requests that it never got go to a new child."""
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
        again = self._submit_again() if self._ready and self._closing_at is None else None
        for asked in waiting:
            if again is not None:
                again(asked)
            else:
                asked.job.end(error)


def _ended(status: int) -> ChildEndedError:
    """Return the error for a child that ended by itself with this exit status."""
    if -status in _KILLED:
        return ChildInterruptedError("was killed. Perhaps memory is short")
    return ChildEndedError(f"ended unexpectedly (status {status})")


def _outcome(message: Message, read: Callable[[Any], Any]) -> Any:
    """Return the result or error in a child's answer; raise FrameError if it has neither."""
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
        raise FrameError("A process sent an answer of an unexpected shape.") from error
    raise FrameError("A process gave no answer.")


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _memory_bytes(pid: int) -> int:
    """Return a child's resident memory; 0 if it has just ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
