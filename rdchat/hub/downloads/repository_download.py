"""Downloads or resumes one model: lists its files at the hub, fetches and checks them, and makes the snapshot.

A snapshot is links to complete files under their names, then the reference by which programs find it. The reference
comes last, so no program finds an incomplete model.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2

from rdchat.errors import ModelError, StorageError, StorageFullError, StorageLockedError, file_error, file_errors
from rdchat.files import flush_to_disk, make_folder
from rdchat.hub.cache_layout import STAGING, CachedRepository
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState, RunningDownload
from rdchat.hub.downloads.download_record import discard, record_of, remove_record, remove_unused_files, write_record
from rdchat.hub.downloads.file_download import PART_STAYS, FileDownload, PartialFile, wait_for_retry
from rdchat.hub.endpoint import Endpoint, HubError, MissingError, TemporaryHubError, check_online
from rdchat.hub.hub_api import HubApi, make_async_client
from rdchat.hub.known_files import HubFile, RepositoryFiles, check_names, is_commit
from rdchat.wording import size_text

# A file is downloaded so often until it matches its checksum.
_CHECKSUM_TRIES = 2
_LOCK_LOOK_S = 0.5


def make_snapshot(repository: CachedRepository, files: RepositoryFiles) -> Path:
    """Return the snapshot's folder, complete and referenced by its revision. All blobs must be complete and checked.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written.
    """
    snapshot = repository.snapshots / files.commit
    with file_errors(f"{snapshot} cannot be made", "Check its permissions and its disk."):
        if snapshot.is_dir() and not snapshot.is_symlink():
            # Another tool started this snapshot.
            for file in files.files:
                _add_to_snapshot(repository, snapshot, file)
        else:
            _make_at_once(repository, snapshot, files)
        if not is_commit(files.revision):
            temporary = _temporary(repository)
            temporary.write_text(files.commit, encoding="ascii")
            _replace(temporary, repository.reference(files.revision))
    return snapshot


def _make_at_once(repository: CachedRepository, snapshot: Path, files: RepositoryFiles) -> None:
    """Make the snapshot beside its place and rename it, so that it is there with all of its files or not at all."""
    staging = repository.work / f"{STAGING}{files.commit}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for file in files.files:
        _link(repository, file, staging / file.name)
    _replace(staging, snapshot)


def _add_to_snapshot(repository: CachedRepository, snapshot: Path, file: HubFile) -> None:
    """Put one file into an existing snapshot, replacing a file of the same name."""
    path = snapshot / file.name
    if repository.linked_blob(path) == file.digest:
        return
    if path.parent != snapshot and path.parent.is_symlink():
        raise StorageError(f"{path.parent} is a link, where a folder belongs.", "Delete it and try again.")
    if path.is_dir() and not path.is_symlink():
        raise StorageError(f"{path} is a folder, where a file belongs.", "Delete it and try again.")
    temporary = _temporary(repository)
    _link(repository, file, temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(path)


def _link(repository: CachedRepository, file: HubFile, target: Path) -> None:
    """Link to a blob from the file's place in a snapshot; copy it if the disk does not support links.

    The link is right in `snapshots/COMMIT`. `target` may be elsewhere, if it is moved there afterwards.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.symlink_to(Path(*[".."] * (2 + file.name.count("/")), "blobs", file.digest))
    except OSError:
        shutil.copyfile(repository.blobs / file.digest, target)
        flush_to_disk(target)


def _temporary(repository: CachedRepository) -> Path:
    """Return a free path in the work folder; a link there would lead the writer elsewhere."""
    path = repository.work / f"{STAGING}part"
    path.unlink(missing_ok=True)
    return path


def _replace(temporary: Path, path: Path) -> None:
    """Move a file or folder to its place; neither a crash nor a power loss leaves half of it."""
    flush_to_disk(temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(path)
    flush_to_disk(path.parent)


@dataclass(frozen=True, slots=True)
class RepositoryDownload:
    """Downloads a model at one revision into the hub's cache, or makes a drafter from some of its files.

    When it is cancelled or killed, its files stay in `.rdchat`, and the next download resumes from them.

    Attributes:
        repository: Where the files go.
        download: What to fetch.
        endpoint: The hub.
        limits: How many files come at once, how often it tries, how long it waits, and the free space that stays.
        running: Its progress, which is kept up to date.
        make_drafter: Makes the drafter of a record from its files in a folder, named by their digests; raises
            ModelError if they hold none.
    """

    repository: CachedRepository
    download: Download
    endpoint: Endpoint
    limits: DownloadLimits
    running: RunningDownload
    make_drafter: Callable[[RepositoryFiles, Path], Path]

    async def fetch_repository(self) -> Path:
        """Download, and return the complete and checked snapshot, or the folder of the drafter that was made.

        It waits while another program downloads the same model.

        Raises:
            NetworkError: If the hub cannot be reached, or refuses.
            StorageLockedError: If another program downloads the same model for too long.
            StorageFullError: If the disk is full, or would be.
            StorageError: If it cannot be written.
        """
        check_names(self.repository.name, self.download.revision)
        check_online()
        end = time.monotonic() + self.limits.lock_wait_s
        while True:
            try:
                with self.repository.locked():
                    return await self._run()
            except StorageLockedError as error:
                if time.monotonic() >= end:
                    raise
                self.running.note("", f"{error.message} This download continues after it.")
                await asyncio.sleep(_LOCK_LOOK_S)
            except OSError as error:
                what = f"{self.repository.folder} cannot be written"
                raise file_error(error, what, f"Check its permissions. {PART_STAYS}") from error

    async def _run(self) -> Path:
        """Download as the record on disk says, or as the hub lists the files now; the lock is held.

        The hub is asked where there is no record, or one that was written before the hub had answered. A drafter's
        record names its files, so without it a drafter cannot be downloaded.
        """
        self.running.note("", "")
        try:
            record = record_of(self.repository, self.download)
            if record is None and self.download.drafter:
                raise HubError(f"Nothing is left of the download for {self.download.drafter}.", "Begin it again.")
            if record is None or not record.commit:
                # `begin_record` wrote none for a download that waits for the person once it is interrupted.
                record = await self._begin(paused=record is None or record.paused)
            remove_unused_files(self.repository)
            try:
                return await self._complete(record)
            except MissingError as error:
                hint = "Try again. If this version is no longer there, discard the download and start a new one."
                raise MissingError(error.message, hint) from error
        finally:
            # It is empty, for example, if the hub does not know the repository.
            self.repository.remove_if_empty()

    async def _complete(self, files: RepositoryFiles) -> Path:
        """Fetch the files that are missing or damaged, and make the snapshot or the drafter of all.

        After the drafter is made, its files are removed; those of a model stay, and only the record is removed.
        """
        self.running.files = files
        for folder in (self.repository.blobs, self.repository.snapshots):
            # The hub's tools expect both folders.
            make_folder(folder)
        for file in files.files:
            self.running.done[file.digest] = self.repository.bytes_of(file)
        self.running.state = DownloadState.CHECKING
        blobs = self.repository.blobs
        missing = [file for file in files.contents if not await self._is_intact(blobs / file.digest, file)]
        if missing:
            partials = [PartialFile(self.repository.work, file) for file in missing]
            self._check_room(partials)
            self.running.state = DownloadState.DOWNLOADING
            await self._fetch_all(files, partials)
        if files.drafter:
            try:
                folder = self.make_drafter(files, blobs)
            except ModelError:
                # More of the same files would not help. After other errors they stay.
                discard(self.repository, self.download)
                raise
            discard(self.repository, self.download)
            return folder
        # This also repairs wrong links and copies.
        snapshot = make_snapshot(self.repository, files)
        remove_record(self.repository, files)
        return snapshot

    async def _begin(self, *, paused: bool) -> RepositoryFiles:
        """Start a new record with the files that the hub has now."""
        self.running.state = DownloadState.ASKING
        files = await self._list_files()
        record = replace(files, revision=self.download.revision, is_model=self.download.is_model, paused=paused)
        write_record(self.repository, record)
        return record

    async def _list_files(self) -> RepositoryFiles:
        """Ask the hub for the files, again and again while it does not answer."""
        api = HubApi(self.endpoint)
        failures = 0
        download = self.download
        while True:
            try:
                return await asyncio.to_thread(api.files, download.repository, download.revision)
            except TemporaryHubError as error:
                failures += 1
                await wait_for_retry(error, failures, "", self.running, self.limits)
            finally:
                self.running.note("", "")

    def _check_room(self, partials: list[PartialFile]) -> None:
        to_come = sum(partial.file.size - partial.size for partial in partials)
        needed = to_come + self.limits.reserve_bytes
        free = shutil.disk_usage(self.repository.work).free
        if free < needed:
            raise StorageFullError(
                f"{self.repository.name} needs {size_text(needed)} more, and the disk has {size_text(free)} free.",
                f"Free some space, or set HF_HUB_CACHE to a folder on another disk. {PART_STAYS}",
            )

    async def _fetch_all(self, files: RepositoryFiles, partials: list[PartialFile]) -> None:
        """Fetch the files, a few at a time, the smallest first; raise the first error, which ends all of them."""
        slots = asyncio.Semaphore(self.limits.files_at_once)

        async def fetch(client: httpx2.AsyncClient, partial: PartialFile) -> None:
            async with slots:
                await self._fetch_file(client, files, partial)

        try:
            async with (
                make_async_client(self.limits.stall_s) as client,
                asyncio.TaskGroup() as group,
            ):
                for partial in sorted(partials, key=lambda partial: partial.file.size):
                    self.running.done[partial.file.digest] = partial.size
                    group.create_task(fetch(client, partial))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _fetch_file(self, client: httpx2.AsyncClient, files: RepositoryFiles, partial: PartialFile) -> None:
        """Fetch one file into the cache's blobs, and again if its checksum is wrong."""
        running = self.running
        file = partial.file
        for _ in range(_CHECKSUM_TRIES):
            running.done[file.digest] = partial.size
            await FileDownload(client, self.endpoint, files, partial, self.limits, running).download_file()
            if await self._is_intact(partial.path, file):
                await asyncio.to_thread(flush_to_disk, partial.path)
                partial.path.replace(self.repository.blobs / file.digest)
                running.done[file.digest] = file.size
                return
            partial.remove()
            running.note(file.name, f"{file.name} does not match its checksum. It is downloaded again.")
        running.done[file.digest] = 0
        raise HubError(
            f"{file.name} was downloaded {_CHECKSUM_TRIES} times and never matched the hub's checksum.",
            "Check the proxy or mirror, if you use one, and try again later.",
        )

    async def _is_intact(self, path: Path, file: HubFile) -> bool:
        """Check a file on a thread, which ends soon after cancellation.

        InterruptedError is an OSError: `checksum` then ends as for a file that cannot be read.
        """
        cancelled = threading.Event()

        def check(_count: int) -> None:
            if cancelled.is_set():
                raise InterruptedError

        try:
            return await asyncio.to_thread(file.is_at, path, check)
        finally:
            cancelled.set()
