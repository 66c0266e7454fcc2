"""The child process of one rank, `rdchat --child rank`: rank 0 runs the engine, the others follow its calls.

The main thread answers requests, since MLX belongs to it. Another thread reads them, and answers at once what must not
wait for MLX. The process ends itself when its standard input closes, or when the parent has not written for long; a
call of MLX that waits for another rank for ever cannot prevent that.
"""

import os
import platform
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

from rdchat import __version__, machine
from rdchat.errors import InvalidSettingError, ModelError
from rdchat.hub import is_repository
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.inference.api import LoadProgress, OnProgress, Statistics, StoppedError
from rdchat.inference.rank_processes.ranks_engine import EVENTS, kinds_of, plain, read
from rdchat.machine import keep_awake
from rdchat.work import CancelledError, Job, ParentLink, Request, answer_one

# After so long without a message the process ends: it would stay there when the link between two Macs is lost. The
# parent pings more often.
_SILENCE_S = 90.0
# How often the silence is checked, and how often a paused reply reports that it is alive.
_BEAT_S = 1.0
# How often a reply's counters are sent with its events.
_STATISTICS_S = 0.1
# The link is measured by the quickest of so many sums, of one byte and of so many bytes.
_SUMS = 5
_LARGE = 2**25


def main() -> int:
    """Answer the parent's requests until it is gone."""
    _Rank().run()


class _Rank:
    """Answers requests on the main thread; one that comes between two events of a reply pauses the reply."""

    def __init__(self) -> None:
        self._link = ParentLink(logs=True)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._engine: Any = None
        # Replies and benchmarks that have begun, by the number that the parent chose: the paused ones, then the present
        # one. Each is the engine's iterator of events, and the job to which they are reported.
        self._streams: dict[int, tuple[Any, Job[Any]]] = {}
        # Numbers of those that the parent has stopped, perhaps before they began.
        self._stopped: set[int] = set()
        # Not set while all ranks rest. A rank that follows rank 0 waits for it, instead of for a message.
        self._going = threading.Event()
        self._going.set()
        self._beat_at = time.monotonic()
        self._heard_at = self._beat_at

    def run(self) -> NoReturn:
        for work in (self._receive, self._watch):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()
        while True:
            self._answer(*self._requests.get())

    def _receive(self) -> None:
        """Read requests: answer those that must not wait for MLX, and queue the others for the main thread.

        `count_tokens` gets a thread of its own, which answers it. The others that do not wait have an empty answer.
        """
        for job, message in self._link.requests():
            self._heard_at = time.monotonic()
            match message["do"]:
                case "ping":
                    pass
                case "wait":
                    self._going.clear()
                case "go":
                    self._going.set()
                case "stop":
                    number = message["arguments"]["number"]
                    self._stopped.add(number)
                    # `get`, because the main thread may end it at the same time.
                    if (stream := self._streams.get(number)) is not None:
                        stream[0].cancel()
                case "count_tokens":
                    threading.Thread(target=self._answer, args=(job, message), daemon=True).start()
                    continue
                case _:
                    self._requests.put((job, message))
                    continue
            job.set_outcome(None)

    def _watch(self) -> None:
        """End the process once the parent has been silent for too long."""
        while time.monotonic() - self._heard_at < _SILENCE_S:
            time.sleep(_BEAT_S)
        os._exit(1)

    def _answer(self, job: Job[Any], message: dict[str, Any]) -> None:
        """Answer a request: one of the four below, or else the call of a method of the engine."""
        do = message["do"]
        calls: dict[str, Callable[..., Any]] = {
            "hello": _hello, "fetch": _fetch, "join": self._join, "measure": _measure,
        }  # fmt: skip
        # An ssh session alone does not keep a Mac awake.
        with keep_awake():
            answer_one(job, message, calls.get(do) or partial(self._call, do))

    def _join(self, _job: Job[Any], rank: int, addresses: Sequence[str], key: str, model: str | None) -> None:
        """Make rank 0's engine, or on another rank follow rank 0 to its end. A Mac alone needs no ring."""
        from rdchat.inference.local_engine import LocalEngine  # noqa: PLC0415  MLX
        from rdchat.inference.sharding import rank_messages  # noqa: PLC0415

        ring = rank_messages.join(rank, addresses, key) if len(addresses) > 1 else None
        if ring is not None and rank:
            rank_messages.run(ring, model, self._going.wait)
        else:
            self._engine = LocalEngine(ring)

    def _call(self, method: str, job: Job[Any], *, number: int = -1, **arguments: Any) -> Any:
        """Call a method of the engine with JSON arguments; its progress is reported to the parent.

        Args:
            method: Name of a method of `Engine`.
            job: The parent's request.
            number: The number of a reply or a benchmark; -1 for a method that has no events.
            arguments: As JSON.
        """
        kinds = kinds_of(method)
        values = {name: read(kinds[name], data) for name, data in arguments.items()}
        if "on_progress" in kinds:
            values["on_progress"] = lambda progress: job.report_progress(plain(LoadProgress, progress))
        if "stopped" in kinds:
            values["stopped"] = lambda: number in self._stopped
        try:
            result = getattr(self._engine, method)(**values)
        except StoppedError:
            raise CancelledError from None
        return self._follow(job, number, result, method) if method in EVENTS else plain(kinds["return"], result)

    def _follow(self, job: Job[Any], number: int, events: Any, method: str) -> None:
        """Report the events of a reply or a benchmark, now and then with the counters so far."""
        self._streams[number] = events, job
        if number in self._stopped:
            events.cancel()
        counted_at = 0.0
        try:
            with closing(events):
                for event in events:
                    report = {"event": plain(EVENTS[method], event)}
                    now = time.monotonic()
                    if method == "generate" and now - counted_at >= _STATISTICS_S:
                        counted_at = now
                        report["statistics"] = plain(Statistics, events.statistics)
                    job.report_progress(report)
                    self._let_others_go_first(events)
        finally:
            del self._streams[number]

    def _let_others_go_first(self, reply: Any) -> None:
        """Answer the requests that came since the last event of a reply, which is paused meanwhile.

        Now and then an empty report shows the parent that the replies that were paused before are alive.
        """
        if (now := time.monotonic()) - self._beat_at > _BEAT_S:
            self._beat_at = now
            for _, paused in list(self._streams.values())[:-1]:
                paused.report_progress({})
        while not self._requests.empty():
            with reply.paused():
                self._answer(*self._requests.get())


def _hello(_job: Job[Any], rank: int, ips: Sequence[str]) -> dict[str, Any]:
    """Return versions, memory, and a free port of this rank's address."""
    from rdchat.inference.device import machine_memory  # noqa: PLC0415  MLX

    try:
        with socket.create_server((ips[rank], 0)) as server:
            port = server.getsockname()[1]
    except OSError as error:
        raise InvalidSettingError(
            f"{ips[rank]} is not an address of this machine ({error.strerror}).", "Remove the Mac, and add it again."
        ) from error
    return {
        "versions": {"rdchat": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}
        | {name: version(name) for name in ("mlx", "mlx-lm")},
        "free_bytes": machine.available_bytes(),
        "limit_bytes": machine_memory().total_room.limit_bytes,
        "port": port,
    }


def _fetch(job: Job[Any], rank: int, model: str | None, ranks: int) -> None:
    """On rank 0, check that a model can be split over so many ranks; on the others, download it if it is missing."""
    from rdchat.inference.models.model_files import resolve_model  # noqa: PLC0415  slow to import
    from rdchat.inference.sharding.model_split import split_of  # noqa: PLC0415

    def report(progress: LoadProgress) -> None:
        job.report_progress(plain(LoadProgress, progress))

    try:
        folder = resolve_model(model, report)
    except ModelError as error:
        if not rank:
            raise
        if model is None or not is_repository(model):
            raise ModelError(error.message, "Copy it there.") from error
        _download(model, report)
        return
    if not rank and ranks > 1:
        split_of(folder, ranks)


def _download(repository: str, report: OnProgress) -> None:
    from rdchat.hub import Tokens  # noqa: PLC0415
    from rdchat.hub.downloads.download_process import DownloadProcess  # noqa: PLC0415  as above

    records: queue.SimpleQueue[Download] = queue.SimpleQueue()
    with closing(DownloadProcess(Tokens())) as process:
        process.start_download(Download(repository), records.put)
        while not (record := records.get()).state.has_ended:
            share = record.done_bytes / record.total_bytes if record.total_bytes else None
            report(LoadProgress(f"Downloading {repository}", share))
    if record.state is not DownloadState.FINISHED:
        raise ModelError(record.problem, record.hint)


def _measure(_job: Job[Any], rank: int, addresses: Sequence[str], key: str) -> dict[str, float]:
    """Return milliseconds of a small sum over the ring, and bytes a second of large ones."""
    import mlx.core as mx  # noqa: PLC0415

    from rdchat.inference.sharding import rank_messages  # noqa: PLC0415

    ring = rank_messages.join(rank, addresses, key)

    def seconds(size: int) -> float:
        def add() -> float:
            began = time.perf_counter()
            mx.eval(mx.distributed.all_sum(mx.ones(size, mx.uint8), group=ring, stream=mx.cpu))
            return time.perf_counter() - began

        return min(add() for _ in range(_SUMS))

    return {"latency_ms": 1000 * seconds(1), "bytes_per_s": _LARGE / seconds(_LARGE)}
