"""The child's side of a watched child process: reads the parent's requests, and answers them.

A child calls `serve` or `serve_together` with its functions. The parent's side is `work.child_process`, which uses the
same messages: four bytes of length, big-endian, then a JSON object. The parent sends
`{"id": 1, "do": "read", "arguments": {...}, "seconds": 10}`, `{"cancel": 1}` or `{"hold": 1, "on": true}`, and gets
`{"ready": true}` once, `{"id": 1, "progress": ...}` any number of times, and last `{"id": 1, "result": ...}`, or
`"error"` or `"cancelled"` in place of the result.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, BinaryIO

from rdchat.errors import RdchatError
from rdchat.log import log_to_parent
from rdchat.work.job import CancelledError, Job, error_of, outcome_of

MAX_BYTES = 2**28
"""The longest message."""
_LENGTH_BYTES = 4
Message = dict[str, Any]
# The parent enforces a request's time; so much later the child ends itself, in case the parent is gone.
_ALARM_S = 5.0
Request = tuple[Job[Any], Message]
"""A job, through which progress and result are sent and cancellation is seen, and the parent's message."""


class FrameError(RdchatError):
    """A message is too long, or is not a JSON object."""


def packed(message: Message) -> bytes:
    """Return the bytes that carry a message.

    Raises:
        FrameError: If it is longer than `MAX_BYTES`.
    """
    content = json.dumps(message).encode()
    if len(content) > MAX_BYTES:
        raise FrameError(f"{len(content):,} bytes are too many for one message.")
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def read_message(source: BinaryIO) -> Message | None:
    """Wait for the next message of a blocking stream; None if the other side closed it.

    Raises:
        FrameError: If it is longer than `MAX_BYTES`, or not a JSON object.
    """
    length = source.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    number = int.from_bytes(length, "big")
    if number > MAX_BYTES:
        raise FrameError("A process sent a message that is too long.")
    content = source.read(number)
    if len(content) < number:
        return None
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FrameError("A process sent what is not JSON.") from error
    if not isinstance(message, dict):
        raise FrameError("A process sent JSON that is not an object.")
    return message


class ParentLink:
    """The pipe to the parent. Each process has one; it takes over standard input, output and error.

    Output of libraries is discarded. Ctrl-C is left to the parent. When the parent closes the pipe, all requests are
    cancelled, and the process ends after at most `grace_s`.

    Args:
        grace_s: Time for requests to stop in good order after the parent is gone; 0 ends them at once.
        logs: Whether the parent logs the child's messages.
    """

    def __init__(self, grace_s: float = 0.0, *, logs: bool) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # Copies of the pipes; standard output and error themselves lead nowhere from now on.
        self._source = os.fdopen(os.dup(0), "rb")
        self._output = os.dup(1)
        log = os.fdopen(os.dup(2), "w", buffering=1, errors="replace")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if logs:
            log_to_parent(log)
        self._grace_s = grace_s
        self._writing = threading.Lock()
        self._jobs: dict[int, Job[Any]] = {}
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()

    def requests(self) -> Iterator[Request]:
        """Report that this process is ready, and yield the parent's requests until the parent is gone."""
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        self._send({"ready": True})
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        """Take the parent's messages until it closes the pipe, then end this process; on a thread of its own.

        Without grace or running requests it ends at once. Otherwise the requests are cancelled and `requests` ends,
        after which `serve` ends the process; this thread does so when the grace has passed.
        """
        try:
            while (message := read_message(self._source)) is not None:
                self._receive(message)
        except (FrameError, LookupError, TypeError):
            # What writes there is not rdchat.
            os._exit(1)
        jobs = list(self._jobs.values())
        if not jobs or not self._grace_s:
            # This ends even a call that hangs.
            os._exit(0)
        for job in jobs:
            job.cancel()
        self._requests.put(None)
        threading.Event().wait(self._grace_s)
        os._exit(0)

    def _receive(self, message: Message) -> None:
        """Cancel, hold or queue a request, as a message of the parent says."""
        if "cancel" in message:
            if (cancelled := self._jobs.get(message["cancel"])) is not None:
                cancelled.cancel()
            return
        if "hold" in message:
            if (held := self._jobs.get(message["hold"])) is not None:
                held.hold(message["on"])
            return
        number = message["id"]
        seconds = message.get("seconds")

        def report(progress: Any) -> None:
            # The time of a request begins anew with each progress.
            _set_alarm(seconds)
            self._send({"id": number, "progress": progress})

        def end(outcome: Any) -> None:
            self._jobs.pop(number, None)
            self._send({"id": number, **_answer_fields(outcome)})

        job: Job[Any] = Job(report, end)
        self._jobs[number] = job
        self._requests.put((job, message))

    def _send(self, message: Message) -> None:
        left = memoryview(packed(message))
        try:
            with self._writing:
                while left:
                    left = left[os.write(self._output, left) :]
        except BrokenPipeError:
            os._exit(0)


def serve(
    calls: Mapping[str, Callable[..., Any]],
    *,
    prepare: Callable[[], object] = lambda: None,
    grace_s: float = 0.0,
    logs: bool = False,
) -> int:
    """Answer the parent's requests one after another until the parent is gone; never returns, as the process ends.

    Args:
        calls: By name. Each gets its `Job` and the request's arguments, and returns JSON.
        prepare: Called before this process is ready, for example for imports, which no request's time limit includes.
        grace_s: See `ParentLink`.
        logs: See `ParentLink`.
    """
    link = ParentLink(grace_s, logs=logs)
    prepare()
    for job, message in link.requests():
        answer_one(job, message, calls[message["do"]])
    sys.stdout.flush()
    # Not `return`: that would wait for threads that wait for a disk or a hub; nothing is lost with them.
    os._exit(0)


async def serve_together(
    calls: Mapping[str, Callable[..., Awaitable[Any]]], *, grace_s: float, logs: bool = False
) -> None:
    """Answer the parent's requests concurrently on one event loop until the parent is gone; never returns.

    Cancelling a request cancels its task. The answer is then `"cancelled"`, or what its call returns all the same.

    Args:
        calls: As in `serve`; each returns an awaitable.
        grace_s: See `ParentLink`.
        logs: See `ParentLink`.
    """
    import asyncio  # noqa: PLC0415  slow to import

    link = ParentLink(grace_s, logs=logs)
    loop = asyncio.get_running_loop()
    parent_ended = asyncio.Event()
    tasks = set[asyncio.Task[None]]()

    def begin(request: Request) -> None:
        job, message = request
        task = loop.create_task(_answer_task(job, message, calls[message["do"]]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # A cancellation is scheduled behind the task's first step, so the call always begins.
        job.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

    def read() -> None:
        for request in link.requests():
            loop.call_soon_threadsafe(begin, request)
        loop.call_soon_threadsafe(parent_ended.set)

    threading.Thread(target=read, name="parent", daemon=True).start()
    await parent_ended.wait()
    await asyncio.gather(*tasks)
    # Not `return`: that would wait for threads that wait for a disk or a hub; nothing is lost with them.
    os._exit(0)


async def _answer_task(job: Job[Any], message: Message, call: Callable[..., Awaitable[Any]]) -> None:
    import asyncio  # noqa: PLC0415

    try:
        outcome = await call(job, **message["arguments"])
    except asyncio.CancelledError:
        outcome = CancelledError()
    except Exception as error:
        outcome = error_of(error, message["do"])
    job.set_outcome(outcome)


def answer_one(job: Job[Any], message: Message, call: Callable[..., Any]) -> None:
    """Run the call of a request, and end its job with the result or the error, which sends the answer."""
    _set_alarm(message.get("seconds"))
    try:
        outcome = outcome_of(job, lambda job: call(job, **message["arguments"]), message["do"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    job.set_outcome(outcome)


def _set_alarm(seconds: float | None) -> None:
    """End this process a little after the parent's own limit."""
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds + _ALARM_S)


def _answer_fields(outcome: Any) -> Message:
    """Return the fields of an answer that carry a result or an error."""
    if isinstance(outcome, CancelledError):
        return {"cancelled": True}
    if isinstance(outcome, RdchatError):
        return {"error": {"kind": type(outcome).__name__, "message": outcome.message, "hint": outcome.hint}}
    return {"result": outcome}
