"""The child process that downloads, `rdchat --child downloads`. It pauses all downloads when the app ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.plain_data import plain
from rdchat.files.privacy import with_persons_umask
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState, RunningDownload
from rdchat.hub.downloads.download_record import begin_record, discard
from rdchat.hub.downloads.repository_download import MakeDrafter, RepositoryDownload
from rdchat.hub.endpoint import Token, find_endpoint
from rdchat.machine import keep_awake
from rdchat.work.job import Job, StopWork, error_of
from rdchat.work.served import serve_together

# Paused downloads need this time to release files and locks.
_GRACE_S = 2.5
_LOG = logging.getLogger(__name__)


def main(make_drafter: MakeDrafter) -> int:
    """Serve the app's requests until it ends; return the exit status."""
    # They log addresses, some of which are signed.
    for library in ("httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(logging.ERROR)
    # Other programs use the hub's cache too.
    with with_persons_umask():
        asyncio.run(_serve(make_drafter))
    return 0


async def _serve(make_drafter: MakeDrafter) -> None:
    queue = DownloadQueue(make_drafter)
    await serve_together(
        {"download": queue.download, "discard": queue.discard, "limit": queue.limit, "pause": queue.pause},
        grace_s=_GRACE_S,
        logs=True,
    )


class DownloadQueue:
    """Runs downloads on one event loop. Its coroutines are the app's calls.

    Args:
        make_drafter: See `RepositoryDownload`.
    """

    def __init__(self, make_drafter: MakeDrafter) -> None:
        self._make_drafter = make_drafter
        self._at_once = DownloadLimits().at_once
        self._running_repositories: set[str] = set()
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
        download = plain(Download, record)
        own = plain(DownloadLimits, limits)
        endpoint = replace(find_endpoint(), token=Token(token) if token else None)
        running = RunningDownload(download)
        task = asyncio.current_task()
        self._tasks_by_id[download.id] = task
        try:
            await self.limit(job, at_once=own.at_once)
            _report(job, running)
            repository = repository_of(download.repository)
            begin_record(repository, download, paused=paused)
            async with self._turn(download.repository):
                ticker = asyncio.create_task(_tick(job, running, own.tick_s))
                try:
                    with keep_awake():
                        request = RepositoryDownload(repository, download, endpoint, own, running, self._make_drafter)
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
    # After StopWork this task is cancelled in a moment.
    with suppress(StopWork):
        job.report_progress(asdict(running.record))
