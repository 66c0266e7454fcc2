"""Downloads one model: asks the hub for its files, fetches and checks them, and makes the snapshot."""

import asyncio
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2

from rdchat.errors import StorageFullError, StorageLockedError
from rdchat.files.atomic_file import make_folder
from rdchat.files.file_errors import file_error
from rdchat.host import flush_to_disk
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.checksums import is_intact
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState
from rdchat.hub.downloads.download_record import (
    DownloadRecord,
    give_up,
    here_bytes,
    records_of,
    remove_if_empty,
    remove_record,
    remove_strays,
)
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.downloads.running_download import RunningDownload, restart_note
from rdchat.hub.downloads.snapshot import make_snapshot
from rdchat.hub.downloads.transfer import KEPT, PartialFile, Transfer
from rdchat.hub.endpoint import check_online
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_client import make_async_client
from rdchat.hub.hub_errors import HubError, MissingError, TemporaryHubError
from rdchat.hub.known_files import HubFile, RepositoryFiles, check_names, download_command, is_commit
from rdchat.hub.tokens import HubAccess

_CHECKSUM_TRIES = 2
_LOCK_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class RepositoryDownload:
    """Downloads a model at one revision into the hub's cache.

    When it is cancelled or killed, its files stay in `.rdchat`, and the next download resumes from them.
    """

    repository: CachedRepository  # where the files go
    download: Download  # what to fetch
    access: HubAccess  # the hub
    limits: DownloadLimits
    running: RunningDownload  # is kept up to date

    async def run(self) -> Path:
        """Return the snapshot's folder, complete and checked.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses.
            StorageLockedError: If another process downloads the same model.
            StorageFullError: If the disk is full, or would be.
            StorageError: If it cannot be written.
        """
        check_names(self.repository.name, self.download.revision)
        check_online()
        try:
            with await self._lock():
                try:
                    return await self._run()
                finally:
                    remove_if_empty(self.repository)  # such as of a name that the hub does not know
        except OSError as error:
            what = f"{self.repository.folder} cannot be written"
            raise file_error(error, what, f"Check its permissions. {KEPT}") from error

    async def _lock(self) -> ExitStack:
        """Return the held lock of the repository; another program that downloads the same model is waited for."""
        end = time.monotonic() + self.limits.lock_wait_s
        while True:
            try:
                held = ExitStack()
                held.enter_context(RepositoryLock(self.repository))
            except StorageLockedError as error:
                if time.monotonic() >= end:
                    raise
                self.running.note("", f"{error.message} This one goes on after it.")
                await asyncio.sleep(_LOCK_LOOK_S)
            else:
                self.running.note("", "")
                return held

    async def _run(self) -> Path:
        record = self._kept() or await self._begun()
        remove_strays(self.repository)
        try:
            return await self._completed(record)
        except MissingError as error:
            return await self._completed(await self._renewed(record, error))

    async def _completed(self, record: DownloadRecord) -> Path:
        files = record.files
        self.running.files = files
        for folder in (self.repository.blobs, self.repository.snapshots):  # the hub's tools look for both
            make_folder(folder)
        for file in files.files:
            self.running.done[file.digest] = here_bytes(self.repository, file)
        self.running.state = DownloadState.CHECKING
        record, missing = await self._missing(record)
        if missing:
            self._check_room(missing)
            self.running.state = DownloadState.DOWNLOADING
            await self._fetch_all(record, missing)
        snapshot = make_snapshot(self.repository, files)  # also mends what leads elsewhere, or is another's copy
        remove_record(self.repository, record)
        return snapshot

    def _kept(self) -> DownloadRecord | None:
        """Return the unfinished download to resume."""
        records = records_of(self.repository)
        return next((record for record in records if record.is_of(self.download.revision, self.download.gguf)), None)

    async def _begun(self, checked: frozenset[str] = frozenset()) -> DownloadRecord:
        """Start a record of the files that the hub has now."""
        self.running.state = DownloadState.ASKING
        record = DownloadRecord(await self._files_at(self.download.revision), self.download.gguf)
        record = replace(record, checked=checked & record.digests)
        record.write(self.repository)
        return record

    async def _renewed(self, dropped: DownloadRecord, error: MissingError) -> DownloadRecord:
        """Start a record of the newest version when the hub has dropped the commit; files that recur are kept."""
        name, commit = self.repository.name, dropped.files.commit
        if await self._is_at_hub(commit):
            raise error  # it is a file of it that is not found, perhaps for now
        if is_commit(self.download.revision):
            hint = f"`{download_command(name, gguf=self.download.gguf)}` fetches what it has now."
            raise MissingError(f"The hub has commit {commit[:12]} of {name} no longer.", hint) from error
        last = self._kept() or dropped  # with what was checked since
        record = await self._begun(last.checked)
        give_up(self.repository, [last])
        self.running.note("", f"{name} has changed on the hub: its new version is fetched.")
        return record

    async def _is_at_hub(self, commit: str) -> bool:
        try:
            await self._files_at(commit)
        except MissingError:
            return False
        return True

    async def _files_at(self, revision: str) -> RepositoryFiles:
        """Return the hub's files of the model at a revision."""
        api = HubApi(self.access)
        return await self._asked(
            lambda: asyncio.to_thread(api.files, self.repository.name, revision, self.download.gguf)
        )

    async def _asked(self, ask: Callable[[], Awaitable[RepositoryFiles]]) -> RepositoryFiles:
        failures = 0
        while True:
            try:
                return await ask()
            except TemporaryHubError as error:
                failures += 1
                wait = self.limits.wait_s(failures, error.wait_s or 0.0)
                if wait is None:
                    raise
                self.running.note("", error.message, wait)
                await asyncio.sleep(wait)
            finally:
                self.running.note("", "")

    async def _missing(self, record: DownloadRecord) -> tuple[DownloadRecord, list[HubFile]]:
        """Return the files to fetch. A file that is here counts if its checksum is right, checked now or before."""
        missing, intact = [], set[str]()
        for file in record.files.contents:
            blob = self.repository.blobs / file.digest
            if not blob.exists():
                missing.append(file)
            elif file.digest in record.checked and here_bytes(self.repository, file) == file.size:
                continue
            elif await self._is_intact(blob, file):
                intact.add(file.digest)
            else:
                self.running.done[file.digest] = PartialFile(self.repository.work, file).size
                missing.append(file)
        record = record.with_checked(intact)
        record.write(self.repository)
        return record, missing

    def _check_room(self, missing: list[HubFile]) -> None:
        folder = self.repository.work
        to_come = sum(file.size - PartialFile(folder, file).size for file in missing)
        copies = 0 if _knows_links(folder) else sum(file.size for file in missing)
        needed, free = to_come + copies + self.limits.reserve_bytes, shutil.disk_usage(folder).free
        if free < needed:
            raise StorageFullError(
                f"{self.repository.name} needs {needed / 1e9:.1f} GB more, and the disk has {free / 1e9:.1f} GB free.",
                f"Free some space, or set HF_HUB_CACHE to a folder on another disk. {KEPT}",
            )

    async def _fetch_all(self, record: DownloadRecord, missing: list[HubFile]) -> None:
        places = asyncio.Semaphore(self.limits.files_at_once)

        async def fetch(client: httpx2.AsyncClient, file: HubFile) -> None:
            async with places:
                await self._fetch_file(client, record.files, file)
            record.note_checked(self.repository, file.digest)

        try:
            async with (
                make_async_client(self.limits.stall_s, self.limits.connect_s) as client,
                asyncio.TaskGroup() as together,
            ):
                for file in sorted(missing, key=lambda file: file.size):
                    together.create_task(fetch(client, file))
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _fetch_file(self, client: httpx2.AsyncClient, files: RepositoryFiles, file: HubFile) -> None:
        running = self.running
        partial = PartialFile(self.repository.work, file)
        again = restart_note(file)
        for _ in range(_CHECKSUM_TRIES):
            running.done[file.digest] = partial.size
            await Transfer(client, self.access, files, partial, self.limits, running).run()
            if await self._is_intact(partial.path, file):
                await asyncio.to_thread(flush_to_disk, partial.path)
                partial.path.replace(self.repository.blobs / file.digest)
                partial.forget_facts()
                running.done[file.digest] = file.size
                running.note(again, "")
                return
            partial.remove()
            running.note(again, f"{file.name} does not have its checksum: it begins again.")
        running.done[file.digest] = 0
        raise HubError(
            f"{file.name} came {_CHECKSUM_TRIES} times without the checksum that the hub gives for it.",
            "Check the proxy or the mirror, if there is one, and try again later.",
        )

    async def _is_intact(self, path: Path, file: HubFile) -> bool:
        """Check a file on a thread, which ends soon after this is cancelled."""
        given_up = threading.Event()

        def go_on(_count: int) -> None:
            if given_up.is_set():
                raise InterruptedError

        try:
            return await asyncio.to_thread(is_intact, path, file.size, file.digest, go_on)
        finally:
            given_up.set()


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _knows_links(folder: Path) -> bool:
    """Tell whether a disk knows symbolic links."""
    link = folder / "link"
    try:
        link.unlink(missing_ok=True)
        link.symlink_to("nowhere")
        link.unlink()
    except OSError:
        return False
    return True
