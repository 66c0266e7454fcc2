"""The child process that downloads, `rdchat --child downloads`. It pauses all downloads when the app ends."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.privacy import with_persons_umask
from rdchat.host import keep_awake
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState
from rdchat.hub.downloads.download_record import discard
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.downloads.running_download import RunningDownload
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.tokens import HubAccess, Token
from rdchat.work.job import Job, StopWork
from rdchat.work.served import serve_together

AWAKE_S = 120.0  # the machine is kept awake this long after the last byte: a server may be slow
_AWAKE_LOOK_S = 1.0
_GRACE_S = 2.5  # for paused downloads to give back what they hold
_LOG = logging.getLogger(__name__)


def main() -> int:
    """Serve the app's requests until it ends; return the exit status."""
    for library in ("httpx2", "httpcore2"):  # which name addresses, and some of these are signed
        logging.getLogger(library).setLevel(logging.ERROR)
    with with_persons_umask():  # it writes into the hub's cache alone, which other programs use too
        asyncio.run(_serve())
    return 0


async def _serve() -> None:
    queue = DownloadQueue()

    async def download(
        job: Job[Any], *, record: dict[str, Any], limits: dict[str, Any], token: str | None
    ) -> dict[str, Any]:
        def tell(now: Download) -> None:
            with suppress(StopWork):  # this task is cancelled in a moment
                job.tell(now.to_dict())

        own = DownloadLimits(**limits)
        queue.set_at_once(own.at_once)
        wanted = Download.from_dict(record)
        return (await queue.download(wanted, Token(token) if token else None, own, tell)).to_dict()

    async def discard(_job: Job[Any], *, record: dict[str, Any]) -> dict[str, Any]:
        return (await queue.discard(Download.from_dict(record))).to_dict()

    async def limit(_job: Job[Any], *, at_once: int) -> None:
        queue.set_at_once(at_once)

    awake = asyncio.create_task(_stay_awake(queue))
    await serve_together({"download": download, "discard": discard, "limit": limit}, grace_s=_GRACE_S, logs=True)
    awake.cancel()


async def _stay_awake(queue: "DownloadQueue") -> None:
    """Hold off sleep and App Nap while something is downloaded. Not yet tried on a Mac."""
    with ExitStack() as held:
        holds = False
        while True:
            if queue.is_transferring and not holds:
                held.enter_context(keep_awake())
            elif holds and not queue.is_transferring:
                held.close()
            holds = queue.is_transferring
            await asyncio.sleep(_AWAKE_LOOK_S)


class _Places:
    """A semaphore whose number of places can change while it is used."""

    def __init__(self, number: int) -> None:
        self._number, self._taken = number, 0
        self._changed = asyncio.Event()

    def set_number(self, number: int) -> None:
        self._number = number
        self._changed.set()

    async def __aenter__(self) -> None:
        while self._taken >= self._number:
            self._changed.clear()
            await self._changed.wait()
        self._taken += 1

    async def __aexit__(self, *_error: object) -> None:
        self._taken -= 1
        self._changed.set()


class DownloadQueue:
    """Runs downloads on one event loop."""

    def __init__(self) -> None:
        self._places = _Places(DownloadLimits().at_once)
        self._of_repository: dict[str, asyncio.Lock] = {}
        self._going: dict[str, asyncio.Task[Any] | None] = {}
        self._moved = 0.0  # when something moved last, on the monotonic clock

    @property
    def is_transferring(self) -> bool:
        """Whether bytes were received or checked lately. Downloads that only wait let the machine sleep."""
        return bool(self._going) and time.monotonic() - self._moved < AWAKE_S

    def set_at_once(self, number: int) -> None:
        """Set how many downloads run at once. Those that run are not stopped."""
        self._places.set_number(number)

    async def download(
        self, download: Download, token: Token | None, limits: DownloadLimits, tell: Callable[[Download], None]
    ) -> Download:
        """Download or resume a model and return the record of its end. Cancelling the task pauses the download.

        Args:
            download: What to download.
            token: For the hub.
            limits: Of times and the disk.
            tell: Called with the record a few times a second.
        """
        running = RunningDownload(download)
        going = self._going[download.id] = asyncio.current_task()
        self._moved = time.monotonic()
        try:
            tell(running.record)
            lock = self._of_repository.setdefault(download.repository, asyncio.Lock())
            async with lock, self._places, asyncio.TaskGroup() as group:
                ticker = group.create_task(self._tick(running, limits.tick_s, tell))
                try:
                    access, repository = HubAccess(find_endpoint(), token), repository_of(download.repository)
                    folder = await RepositoryDownload(repository, download, access, limits, running).run()
                finally:
                    ticker.cancel()
        except asyncio.CancelledError:
            return running.ended(DownloadState.PAUSED)
        except Exception as error:
            return running.ended(DownloadState.FAILED).failed(_reason(error))
        finally:
            if self._going.get(download.id) is going:
                del self._going[download.id]
        return replace(running.ended(DownloadState.FINISHED), folder=str(folder))

    async def discard(self, download: Download) -> Download:
        """Stop a download and remove its files, except those that another download of the model needs."""
        if (going := self._going.get(download.id)) is not None:
            going.cancel()
            await asyncio.wait([going])
        repository = repository_of(download.repository)
        try:
            with RepositoryLock(repository) if repository.work.is_dir() else nullcontext():
                discard(repository, download.revision, download.gguf)
        except (RdchatError, OSError) as error:
            return download.failed(_reason(error))
        return download.at(DownloadState.REMOVED)

    async def _tick(self, running: RunningDownload, tick_s: float, tell: Callable[[Download], None]) -> None:
        fetched = 0
        while True:
            if running.fetched_bytes > fetched or running.state is DownloadState.CHECKING:
                fetched, self._moved = running.fetched_bytes, time.monotonic()
            tell(running.record)
            await asyncio.sleep(tick_s)


def _reason(error: BaseException) -> RdchatError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RdchatError):
        return error
    _LOG.error("A download failed", exc_info=error)
    return RdchatError(f"Something unexpected went wrong: {error!r}.")
