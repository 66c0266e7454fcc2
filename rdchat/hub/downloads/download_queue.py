"""All downloads of the downloading process: so many at once."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rdchat.errors import RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState
from rdchat.hub.downloads.download_record import discard
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.downloads.running_download import RunningDownload
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.tokens import HubAccess, Token

AWAKE_S = 120.0  # that the machine is kept awake after the last byte: a server may be slow, and one try is not all
_LOG = logging.getLogger(__name__)


class _Places:
    """Places of which so many can be taken, held as a context manager; their number may change meanwhile."""

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
        """Whether bytes come or are checked, or did a moment ago: what only waits need not keep the machine awake."""
        return bool(self._going) and time.monotonic() - self._moved < AWAKE_S

    def set_at_once(self, number: int) -> None:
        """Let so many go on at once; where more do, those go on and no other begins."""
        self._places.set_number(number)

    async def download(
        self, download: Download, token: Token | None, limits: DownloadLimits, tell: Callable[[Download], None]
    ) -> Download:
        """Download a model, or go on with it; return its record as it ended. A task that is cancelled pauses it.

        Args:
            download: What.
            token: For the hub.
            limits: Of times and the disk.
            tell: Called with the record a few times a second and at each change of state.
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
        """Stop a download and remove what it has left; what other downloads of this model need stays."""
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
