"""All downloads of the downloading process: so many at once, each paused, resumed and given up by its id."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from rdchat.errors import RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download_progress import (
    DownloadLimits,
    DownloadProgress,
    DownloadRequest,
    DownloadState,
    FileProgress,
)
from rdchat.hub.downloads.download_record import discard
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.downloads.standing import Standing
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_errors import AccessRefusedError
from rdchat.hub.tokens import HubAccess, Token

AWAKE_S = 120.0  # that the machine is kept awake after the last byte: a server may be slow, and one try is not all
_SPEED_S = 5.0  # over which the speed is measured
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Speed:
    """Bytes per second over the last seconds."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def update(self, fetched: int) -> float | None:
        now = time.monotonic()
        self.seen.append((now, fetched))
        while len(self.seen) > 2 and now - self.seen[0][0] > _SPEED_S:
            self.seen.popleft()
        (start, before), (end, after) = self.seen[0], self.seen[-1]
        return (after - before) / (end - start) if end > start else None


class _FileSpeeds:
    """The speed of each file that is under way, by its name."""

    def __init__(self) -> None:
        self._speeds: dict[str, _Speed] = {}

    def update(self, progress: DownloadProgress) -> DownloadProgress:
        """Return the progress with the speed of each file whose bytes come."""
        return replace(progress, files=tuple(map(self._with_speed, progress.files)))

    def _with_speed(self, file: FileProgress) -> FileProgress:
        if not 0 < file.done_bytes < file.size:
            return file
        return replace(file, bytes_per_second=self._speeds.setdefault(file.name, _Speed()).update(file.done_bytes))


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
    """Runs downloads on one event loop.

    Args:
        tell: Called with the progress of each, a few times a second and at each change of state.
        limits: Of downloads at once, times and the disk.
    """

    def __init__(self, tell: Callable[[DownloadProgress], None], limits: DownloadLimits) -> None:
        self._tell = tell
        self._limits = limits
        self._places = _Places(limits.at_once)
        self._of_repository: dict[str, asyncio.Lock] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._discarded: set[str] = set()
        self._moved = 0.0  # when something moved last, in seconds of the monotonic clock

    @property
    def is_transferring(self) -> bool:
        """Whether bytes come or are checked, or did a moment ago: what only waits need not keep the machine awake."""
        return bool(self._tasks) and time.monotonic() - self._moved < AWAKE_S

    def start(self, request: DownloadRequest, token: Token | None) -> None:
        """Begin a download, or go on with it; nothing where it goes on already."""
        if request.id not in self._tasks:
            self._discarded.discard(request.id)
            self._moved = time.monotonic()
            task = asyncio.create_task(self._run(request, token), name=request.id)
            self._tasks[request.id] = task
            task.add_done_callback(lambda _task: self._forget(request, task))

    def _forget(self, request: DownloadRequest, task: asyncio.Task[None]) -> None:
        del self._tasks[request.id]
        if task.cancelled():  # before its first step
            self._tell(self._stopped(request, Standing()))

    def pause(self, download: str) -> None:
        """Stop a download at once; what it has stays."""
        if task := self._tasks.get(download):
            task.cancel()

    def discard(self, request: DownloadRequest) -> None:
        """Stop a download at once, and remove what it has left; what other downloads of this model need stays."""
        self._discarded.add(request.id)
        if request.id in self._tasks:
            self.pause(request.id)
        else:
            self._tell(self._stopped(request, Standing()))

    def set_at_once(self, number: int) -> None:
        """Let so many go on at once; where more do, those go on and no other begins."""
        self._places.set_number(number)

    async def close(self) -> None:
        """Pause all."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, request: DownloadRequest, token: Token | None) -> None:
        standing, speed = Standing(), _Speed()
        try:
            self._tell(_progress(request, standing, None))
            lock = self._of_repository.setdefault(request.repository, asyncio.Lock())
            async with lock, self._places, asyncio.TaskGroup() as group:
                ticker = group.create_task(self._tick(request, standing, speed))
                try:
                    folder = await self._download(request, token, standing)
                finally:
                    ticker.cancel()
            self._tell(replace(_ended(request, standing, DownloadState.FINISHED), folder=folder))
        except asyncio.CancelledError:
            self._tell(self._stopped(request, standing))
        except Exception as error:
            self._tell(_failed(request, standing, error))

    async def _download(self, request: DownloadRequest, token: Token | None, standing: Standing) -> str:
        access = HubAccess(find_endpoint(), token)
        download = RepositoryDownload(repository_of(request.repository), request, access, self._limits, standing)
        return str(await download.run())

    async def _tick(self, request: DownloadRequest, standing: Standing, speed: _Speed) -> None:
        fetched, of_files = 0, _FileSpeeds()
        while True:
            fetching = standing.state is DownloadState.DOWNLOADING
            if standing.fetched_bytes > fetched or standing.state is DownloadState.CHECKING:
                fetched, self._moved = standing.fetched_bytes, time.monotonic()
            progress = _progress(request, standing, speed.update(standing.fetched_bytes) if fetching else None)
            self._tell(of_files.update(progress) if fetching else progress)
            await asyncio.sleep(self._limits.tick_s)

    def _stopped(self, request: DownloadRequest, standing: Standing) -> DownloadProgress:
        if request.id not in self._discarded:
            return _ended(request, standing, DownloadState.PAUSED)
        self._discarded.discard(request.id)
        try:
            repository = repository_of(request.repository)
            with RepositoryLock(repository) if repository.work.is_dir() else nullcontext():
                discard(repository, request.revision, request.gguf)
        except (RdchatError, OSError) as error:
            return _failed(request, standing, error)
        return DownloadProgress(
            request.id, request.repository, request.revision, DownloadState.REMOVED, gguf=request.gguf
        )


def _progress(request: DownloadRequest, standing: Standing, speed: float | None) -> DownloadProgress:
    files = standing.files
    return DownloadProgress(
        id=request.id,
        repository=request.repository,
        revision=request.revision,
        state=standing.state,
        commit=files.commit if files else "",
        files=standing.file_progress(),
        left_out=len(files.left_out) if files else 0,
        fetched_bytes=standing.fetched_bytes,
        bytes_per_second=speed,
        notes=standing.all_notes(),
        gguf=request.gguf,
    )


def _ended(request: DownloadRequest, standing: Standing, state: DownloadState) -> DownloadProgress:
    standing.state = state
    standing.notes.clear()
    return _progress(request, standing, None)


def _failed(request: DownloadRequest, standing: Standing, error: BaseException) -> DownloadProgress:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    failed = _ended(request, standing, DownloadState.FAILED)
    if isinstance(error, AccessRefusedError):
        failed = replace(failed, lack=error.lack, page=error.page)
    if isinstance(error, RdchatError):
        return replace(failed, problem=error.message, hint=error.hint)
    _LOG.error("A download failed", exc_info=error)
    return replace(failed, problem=f"Something unexpected went wrong: {error!r}.")
