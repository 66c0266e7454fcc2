"""The child's side of a watched child process: takes requests from the parent, answers them."""

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdchat.errors import RdchatError
from rdchat.work.frames import Message, packed, read_message
from rdchat.work.job import CancelledError, Job
from rdchat.work.serial_thread import error_of, outcome_of

_ALARM_S = 5.0  # behind the parent's own limit: ends this process where nobody is left to do so


@dataclass(frozen=True, slots=True)
class Request:
    """What the parent asks.

    Attributes:
        job: Takes the progress and the result, and knows whether the parent cancelled.
        do: Which of the child's calls.
        arguments: Of the call.
        seconds: The parent's limit of time, or None.
    """

    job: Job[Any]
    do: str
    arguments: Mapping[str, Any]
    seconds: float | None


class ParentLink:
    """The pipe to the parent. One for a process; it takes over standard input, output and error.

    What libraries print goes nowhere. Ctrl-C is for the parent. When the parent closes the pipe, all requests are
    cancelled, and the process ends at the latest after `grace_s`.

    Args:
        grace_s: What requests get to stop in good order once the parent is gone.
        logs: Whether the log goes to the parent's; not where it could quote a stranger's file.
    """

    def __init__(self, grace_s: float = 0.0, *, logs: bool = False) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._source, self._output = os.fdopen(os.dup(0), "rb"), os.dup(1)
        log = os.fdopen(os.dup(2), "w", buffering=1, errors="replace")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if logs:
            logging.basicConfig(stream=log, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        self._grace_s = grace_s
        self._writing = threading.Lock()
        self._jobs: dict[int, Job[Any]] = {}
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()

    def requests(self) -> Iterator[Request]:
        """Say that this process is ready, and give the parent's requests until the parent has gone."""
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        self._send({"ready": True})
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        while (message := read_message(self._source)) is not None:
            self._take(message)
        jobs = list(self._jobs.values())
        if not jobs or not self._grace_s:
            os._exit(0)  # also in the midst of a call that hangs
        for job in jobs:
            job.cancel()
        self._requests.put(None)
        threading.Event().wait(self._grace_s)
        os._exit(0)

    def _take(self, message: Message) -> None:
        if "cancel" in message:
            if (cancelled := self._jobs.get(message["cancel"])) is not None:
                cancelled.cancel()
            return
        number, seconds = message["id"], message.get("seconds")

        def tell(progress: Any) -> None:
            _set_alarm(seconds)
            self._send({"id": number, "progress": progress})

        def end(outcome: Any) -> None:
            self._jobs.pop(number, None)
            self._send({"id": number, **_answer(outcome)})

        job: Job[Any] = Job(tell, end)
        self._jobs[number] = job
        self._requests.put(Request(job, message["do"], message["arguments"], seconds))

    def _send(self, message: Message) -> None:
        left = memoryview(packed(message))
        try:
            with self._writing:
                while left:
                    left = left[os.write(self._output, left) :]
        except BrokenPipeError:
            os._exit(0)  # the parent has gone


def serve(
    calls: Mapping[str, Callable[..., Any]],
    *,
    prepare: Callable[[], object] = lambda: None,
    grace_s: float = 0.0,
    logs: bool = False,
) -> int:
    """Answer the parent's requests one after the other, and return the exit status when the parent has gone.

    Args:
        calls: By name. Each is called with its `Job` and the request's arguments, and returns JSON.
        prepare: Called before this process is ready, such as imports, which no request's limit of time counts.
        grace_s: See `ParentLink`.
        logs: See `ParentLink`.
    """
    link = ParentLink(grace_s, logs=logs)
    prepare()
    for request in link.requests():
        _answer_one(request, calls[request.do])
    sys.stdout.flush()
    os._exit(0)  # threads that still wait for a disk or a hub hold nothing


async def serve_together(
    calls: Mapping[str, Callable[..., Awaitable[Any]]], *, grace_s: float = 0.0, logs: bool = False
) -> None:
    """Answer the parent's requests on one event loop, all at the same time, until the parent has gone; never returns.

    The task of a request that the parent cancels is cancelled; what its call returns then is the answer.

    Args:
        calls: As `serve`; each gives something to await.
        grace_s: See `ParentLink`.
        logs: See `ParentLink`.
    """
    link, loop = ParentLink(grace_s, logs=logs), asyncio.get_running_loop()
    gone, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    def begin(request: Request) -> None:
        task = loop.create_task(_answer_task(request, calls[request.do]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # its first step comes before a cancellation, which is scheduled behind it
        request.job.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

    def read() -> None:
        for request in link.requests():
            loop.call_soon_threadsafe(begin, request)
        loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=read, name="parent", daemon=True).start()
    await gone.wait()
    await asyncio.gather(*tasks)
    os._exit(0)  # threads that still wait for a disk or a hub hold nothing


async def _answer_task(request: Request, call: Callable[..., Awaitable[Any]]) -> None:
    try:
        outcome = await call(request.job, **request.arguments)
    except asyncio.CancelledError:
        outcome = CancelledError()
    except Exception as error:
        outcome = error_of(error, request.do)
    request.job.end(outcome)


def _answer_one(request: Request, call: Callable[..., Any]) -> None:
    _set_alarm(request.seconds)
    try:
        outcome = outcome_of(request.job, lambda job: call(job, **request.arguments), request.do)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    request.job.end(outcome)


def _set_alarm(seconds: float | None) -> None:
    """End this process a little after the parent's own limit."""
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds + _ALARM_S)


def _answer(outcome: Any) -> Message:
    if isinstance(outcome, CancelledError):
        return {"cancelled": True}
    if isinstance(outcome, RdchatError):
        return {"error": {"message": outcome.message, "hint": outcome.hint}}
    return {"result": outcome}
