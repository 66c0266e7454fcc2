"""A child process with limits of time and memory, held from outside: it cannot block or crash this process."""

import json
import os
import selectors
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import psutil

from rdchat import host
from rdchat.inference.prompts.frames import LENGTH_BYTES, MOST_BYTES, framed

_TICK_S = 0.02  # between two looks at the child's memory and the caller's patience
_START_S = 60.0  # importing transformers takes one second, on a cold and busy machine twenty
_ALARM_S = 5.0  # after the time limit, the child ends itself where nobody does
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Waiting = Callable[[], None]


class ChildError(Exception):
    """The child ended, or was ended at a limit; `words` give the reason, as the end of a sentence."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class ChildEndedError(ChildError):
    """The child ended by itself, or could not be started."""


class WatchedProcess:
    """Runs a child that answers JSON with JSON; started with the first request, or by `start`.

    macOS does not hold a process to its limits of memory, so this side looks at what the child takes, and ends it.

    Args:
        name: One of `rdchat.children`; it says `{"ready": true}` once it listens.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._ready = False
        self._busy = threading.Lock()  # one request at a time, whichever thread asks
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The child's; None where there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the child and return at once, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                host.child_command(self._name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | _QUIET,
                bufsize=0,
            )
        except OSError as error:
            raise ChildEndedError(f"could not be started ({error.strerror})") from error
        self._end = weakref.finalize(self, _finish, self._process)
        self._ready = False
        self.starts += 1

    def close(self) -> None:
        """End the child. Idempotent; the next request starts another."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def ask(self, request: dict[str, Any], seconds: float, memory_bytes: int, waiting: Waiting) -> dict[str, Any]:
        """Have one request answered.

        Args:
            request: JSON.
            seconds: Limit of time.
            memory_bytes: Limit of the memory that the child takes in addition to what it has now.
            waiting: Called every 20 ms meanwhile; what it raises ends the child and goes on to the caller.

        Raises:
            ChildError: If the child took too long or too much; a `ChildEndedError`, if it ended by itself.
            FrameTooLongError: If the request is too long to be sent; the child goes on.
        """
        with self._busy:
            return self._ask(request, seconds, memory_bytes, waiting)

    def _ask(self, request: dict[str, Any], seconds: float, memory_bytes: int, waiting: Waiting) -> dict[str, Any]:
        sent = framed(json.dumps(request | {"seconds": seconds + _ALARM_S}).encode())
        self.start()
        try:
            if not self._ready:
                self._exchange(b"", _START_S, None, waiting)
                self._ready = True
            return self._exchange(sent, seconds, memory_bytes, waiting)
        except BaseException:
            self.close()
            raise

    def _exchange(self, sent: bytes, seconds: float, memory_bytes: int | None, waiting: Waiting) -> dict[str, Any]:
        """Send bytes and return the next answer; both are watched, since a child may not even read."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        deadline, before = time.monotonic() + seconds, _memory_bytes(process.pid)
        left, got = memoryview(sent), bytearray()
        with selectors.DefaultSelector() as selector:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ)
            if left:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while True:
                for key, _ in selector.select(_TICK_S):
                    if key.fileobj is process.stdin:
                        left = left[_written(process.stdin.fileno(), left) :]
                        if not left:
                            selector.unregister(process.stdin)
                    elif (answer := _received(process.stdout.fileno(), got)) is not None:
                        return answer
                waiting()
                if time.monotonic() > deadline:
                    raise ChildError(f"took longer than {seconds:.0f} seconds, so it was ended")
                if memory_bytes is not None and _memory_bytes(process.pid) > before + memory_bytes:
                    raise ChildError(f"took more than {memory_bytes / 1e9:.1f} GB of memory, so it was ended")


def _written(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data[: 2**16])
    except BlockingIOError:
        return 0
    except BrokenPipeError as error:
        raise ChildEndedError("crashed the process that reads it") from error


def _received(descriptor: int, got: bytearray) -> dict[str, Any] | None:
    """Take in what has come; return the answer once it is whole."""
    chunk = os.read(descriptor, 2**20)
    if not chunk:
        raise ChildEndedError("crashed the process that reads it")
    got += chunk
    if len(got) < LENGTH_BYTES:
        return None
    length = int.from_bytes(got[:LENGTH_BYTES], "big")
    if length > MOST_BYTES:
        raise ChildError("gave an answer that is too long")
    if len(got) < LENGTH_BYTES + length:
        return None
    answer: dict[str, Any] = json.loads(bytes(got[LENGTH_BYTES:]))
    return answer


def _memory_bytes(pid: int) -> int:
    """Return the child's resident memory; 0 where it has just ended, which reading from it tells."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _finish(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
