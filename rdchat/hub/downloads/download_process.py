"""Downloads in a child process, `rdchat --child downloads`: the app's side, and the process's own.

`DownloadProcess` is the app's side, which submits requests. `main` runs in the process, where a `DownloadQueue` answers
them: each of its public coroutines is one kind of request. A record here is a `Download`; it comes back as progress
and as result. The record on disk, from which a download resumes, is a `RepositoryFiles` (`download_record`).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files import persons_umask, plain, with_persons_umask
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState, RunningDownload
from rdchat.hub.downloads.download_record import begin_record, discard
from rdchat.hub.endpoint import Token, Tokens, find_endpoint
from rdchat.hub.known_files import RepositoryFiles
from rdchat.machine import keep_awake
from rdchat.work import (
    CancelledError,
    ChildEndedError,
    ChildProcess,
    Job,
    Limits,
    SerialThread,
    StopWork,
    error_of,
    serve_together,
)

# After its input is closed, the process has this time to end by itself.
_END_S = 3.0
# The process takes this many requests, as it queues downloads above its limit itself.
_AT_ONCE = 10_000
# Paused downloads need this time to release files and locks.
_GRACE_S = 2.5
# A download takes as long as it takes, and ends in its own time when it is cancelled.
_NO_LIMITS = Limits(cancel_s=None)
# Reads the result of a request, the record.
_READ = partial(plain, Download)
OnRecord = Callable[[Download], object]
MakeDrafter = Callable[[RepositoryFiles, Path], Path]
"""See `RepositoryDownload`."""


class DownloadProcess:
    """Downloads models in a child process. Neither its crash nor its interpreter lock affects the app.

    All methods except `close` return at once: slow work, such as a keychain that asks the person, runs on threads.

    Args:
        tokens: The person's tokens.
        limits: Limits of downloads.
        resumes: Whether the app resumes downloads that have not ended when this process ends.
    """

    def __init__(
        self,
        tokens: Tokens,
        limits: DownloadLimits = DownloadLimits(),  # noqa: B008  frozen
        *,
        resumes: bool = False,
    ) -> None:
        self._tokens = tokens
        self._limits = limits
        self._resumes = resumes
        # other programs use the hub's cache too
        self._child = ChildProcess("downloads", at_once=_AT_ONCE, umask=persons_umask())
        self._starts = SerialThread("download")
        self._guard = threading.Lock()
        self._closed = False

    def start_download(self, download: Download, on_record: OnRecord) -> Job[Any]:
        """Start a download, or resume it at the last byte.

        The token is found on a thread first. A job that is cancelled meanwhile ends there, and no request is made.

        Args:
            download: Its present record.
            on_record: Called on any thread with each new record, up to the last one.

        Returns:
            The job; cancelling it pauses the download.
        """
        last = download

        def take(fields: dict[str, Any]) -> None:
            nonlocal last
            last = plain(Download, fields)
            on_record(last)

        job: Job[Any] = Job(take, lambda outcome: on_record(_ended(last, outcome)))
        job.when_cancelled(lambda: job.set_outcome(CancelledError()))
        self._starts.do(lambda _job: self._start(download, job))
        return job

    def pause(self, download: Download) -> None:
        """Note on disk that a download waits for the person.

        It does not stop the download; cancelling the job of `start_download` does.
        """
        self._submit("pause", {"record": asdict(download)})

    def discard(self, download: Download, on_record: OnRecord) -> None:
        """Stop a download and remove its files; call `on_record` with the last record."""
        self._submit(
            "discard",
            {"record": asdict(download)},
            read=_READ,
            on_end=lambda outcome: on_record(_ended(download, outcome)),
        )

    def set_at_once(self, number: int) -> None:
        """Set how many downloads run at once."""
        self._limits = replace(self._limits, at_once=number)
        if self._child.pid is not None:
            self._submit("limit", {"at_once": number})

    def close(self) -> None:
        """Pause all downloads and end the process, without waiting for a keychain that asks the person."""
        with self._guard:
            self._closed = True
        self._child.close(_END_S)
        self._starts.wait_for_jobs(0.0)

    def _start(self, download: Download, job: Job[Any]) -> None:
        """Find the token and submit a download to the process, unless it was paused meanwhile."""
        try:
            token = self._tokens.access(find_endpoint()).token
        except RdchatError as error:
            job.set_outcome(error)
            return
        arguments = {
            "record": asdict(download),
            "limits": asdict(self._limits),
            "token": token.text if token else None,
            "paused": not self._resumes,
        }
        if not job.ended:
            request = self._submit(
                "download", arguments, read=_READ, on_progress=job.report_progress, on_end=job.set_outcome
            )
            if request is not None:
                # In place of the callback of `start_download`: from here on the process ends what is cancelled.
                job.when_cancelled(request.cancel)

    def _submit(self, do: str, arguments: dict[str, Any], **callbacks: Callable[[Any], Any]) -> Job[Any] | None:
        """Send a request to the process, unless that was closed."""
        with self._guard:
            return None if self._closed else self._child.submit(do, arguments, _NO_LIMITS, **callbacks)


def _ended(download: Download, outcome: Any) -> Download:
    """Return the last record for the outcome of a request."""
    if isinstance(outcome, CancelledError):
        return download.at(DownloadState.PAUSED)
    if isinstance(outcome, Download):
        return outcome
    if isinstance(outcome, ChildEndedError):
        hint = "Resume the download to continue where it stopped."
        outcome = RdchatError(f"The downloading process {outcome.what}.", hint)
    return download.failed(outcome)


def main(make_drafter: MakeDrafter) -> int:
    """Serve the app's requests until it ends; return the exit status."""
    # Other programs use the hub's cache too.
    with with_persons_umask():
        queue = DownloadQueue(make_drafter)
        serving = serve_together(
            {"download": queue.download, "discard": queue.discard, "limit": queue.limit, "pause": queue.pause},
            grace_s=_GRACE_S,
            logs=True,
        )
        asyncio.run(serving)
    return 0


class DownloadQueue:
    """Runs downloads on one event loop. Its coroutines are the app's calls.

    Args:
        make_drafter: See `RepositoryDownload`.
    """

    def __init__(self, make_drafter: MakeDrafter) -> None:
        self._make_drafter = make_drafter
        self._at_once = DownloadLimits().at_once
        self._running_repositories: set[str] = set()
        # Downloads wait here for their turn.
        self._turns = asyncio.Condition()
        self._tasks_by_id: dict[str, asyncio.Task[Any] | None] = {}

    async def limit(self, _job: Job[Any], *, at_once: int) -> None:
        """Set how many downloads run at once. Running ones are not stopped."""
        async with self._turns:
            self._at_once = at_once
            self._turns.notify_all()

    async def download(
        self, job: Job[Any], *, record: dict[str, Any], limits: dict[str, Any], token: str | None, paused: bool
    ) -> dict[str, Any]:
        """Download or resume a model, and return its last record. Cancelling the task pauses the download.

        Args:
            job: Receives the record a few times a second.
            record: The `Download`.
            limits: The `DownloadLimits`.
            token: The hub's token.
            paused: Whether it waits for the person when this process has ended; otherwise the app resumes it.
        """
        from rdchat.hub.downloads.repository_download import RepositoryDownload  # noqa: PLC0415  HTTP, for the child alone

        download = plain(Download, record)
        download_limits = plain(DownloadLimits, limits)
        endpoint = replace(find_endpoint(), token=Token(token) if token else None)
        running = RunningDownload(download)
        task = asyncio.current_task()
        self._tasks_by_id[download.id] = task
        try:
            await self.limit(job, at_once=download_limits.at_once)
            _report(job, running)
            repository = repository_of(download.repository)
            begin_record(repository, download, paused=paused)
            async with self._turn(download.repository):
                ticker = asyncio.create_task(_tick(job, running, download_limits.tick_s))
                try:
                    with keep_awake():
                        request = RepositoryDownload(
                            repository, download, endpoint, download_limits, running, self._make_drafter
                        )
                        folder = await request.fetch_repository()
                finally:
                    ticker.cancel()
            return asdict(replace(running.ended(DownloadState.FINISHED), folder=str(folder)))
        except asyncio.CancelledError:
            return asdict(running.ended(DownloadState.PAUSED))
        except Exception as error:
            # Before the app hears of it, as the person may try again at once.
            self._note_paused(download)
            return asdict(running.ended(DownloadState.FAILED).failed(error_of(error, "a download")))
        finally:
            if self._tasks_by_id.get(download.id) is task:
                del self._tasks_by_id[download.id]

    async def pause(self, _job: Job[Any], *, record: dict[str, Any]) -> None:
        """Note that a download waits for the person, also after the next start of the app; failed ones do anyway."""
        self._note_paused(plain(Download, record))

    def _note_paused(self, download: Download) -> None:
        """Write into the download's record that it waits for the person, if there is a record."""
        # Without the note the download is resumed, at worst.
        with suppress(RdchatError, OSError):
            repository = repository_of(download.repository)
            if download.repository in self._running_repositories:
                # The running download holds the lock.
                begin_record(repository, download, paused=True)
            elif repository.work.is_dir():
                with repository.locked():
                    begin_record(repository, download, paused=True)
                    # The lock made the folder again if it was deleted just now.
                    repository.remove_if_empty()

    async def discard(self, _job: Job[Any], *, record: dict[str, Any]) -> dict[str, Any]:
        """Stop a download and remove its files, except those that another download of the model needs."""
        download = plain(Download, record)
        if (task := self._tasks_by_id.get(download.id)) is not None:
            task.cancel()
            await asyncio.wait([task])
        try:
            repository = repository_of(download.repository)
            with repository.locked() if repository.work.is_dir() else nullcontext():
                discard(repository, download)
        except (RdchatError, OSError) as error:
            return asdict(download.failed(error_of(error, "a download")))
        return asdict(download.at(DownloadState.REMOVED))

    @asynccontextmanager
    async def _turn(self, repository: str) -> AsyncIterator[None]:
        """Wait until there is room for another download, and none of the same repository runs."""
        async with self._turns:
            await self._turns.wait_for(
                lambda: len(self._running_repositories) < self._at_once and repository not in self._running_repositories
            )
            self._running_repositories.add(repository)
        try:
            yield
        finally:
            self._running_repositories.remove(repository)
            async with self._turns:
                self._turns.notify_all()


async def _tick(job: Job[Any], running: RunningDownload, tick_s: float) -> None:
    """Report progress a few times a second."""
    while True:
        _report(job, running)
        await asyncio.sleep(tick_s)


def _report(job: Job[Any], running: RunningDownload) -> None:
    # StopWork says that the job was cancelled; this task is, too, in a moment.
    with suppress(StopWork):
        job.report_progress(asdict(running.record))
