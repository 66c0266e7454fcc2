"""Downloads one file into a partial file, and resumes at the last byte after each lost connection."""

import asyncio
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from socksio import SOCKSError

from rdchat.errors import StorageFullError, file_error
from rdchat.hub.downloads.download import DownloadLimits, RunningDownload
from rdchat.hub.endpoint import Endpoint
from rdchat.hub.hub_client import AnsweredRange, open_answer
from rdchat.hub.hub_errors import ChangedFileError, HubError, TemporaryHubError, refusal, wait_text
from rdchat.hub.known_files import FilePart, HubFile, RepositoryFiles

# The free space is checked again after this many bytes.
_DISK_LOOK_BYTES = 2**25
PART_STAYS = "The downloaded part is kept."


class PartialFile:
    """The first bytes of a blob, in a file named by its digest.

    It is written without a buffer, so no received byte is lost if the process is killed. Only the holder of the
    repository's lock may write to it.

    Args:
        folder: An existing folder.
        file: The file as the hub describes it.
        mode: The permissions that it is made with; the umask may remove some.
    """

    def __init__(self, folder: Path, file: HubFile, mode: int = 0o666) -> None:
        self.path = folder / f"{file.digest}.part"
        self.file = file
        self._mode = mode
        if self.size > file.size or not self._is_own():
            self.remove()

    @property
    def size(self) -> int:
        """Number of bytes on disk."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def opened(self) -> Iterator[Callable[[bytes], None]]:
        """Yield a function that appends bytes; it raises OSError if the disk cannot store all of them."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, self._mode)
        with os.fdopen(descriptor, "ab", buffering=0) as file:

            def append(data: bytes) -> None:
                written = file.write(data)
                while written < len(data):
                    # A nearly full disk may store only a part.
                    written += file.write(data[written:])

            yield append

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        """Return whether the path is free, or a regular file with a single link; others are never written to."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return True
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


@dataclass(frozen=True, slots=True)
class FileDownload:
    """The download of one file, or of one that consists of parts of files.

    Attributes:
        client: Follows no redirects by itself.
        endpoint: The hub.
        files: The file is one of these.
        partial: Receives the bytes; the caller holds the repository's lock.
        running: Its progress, which is kept up to date.
    """

    client: httpx2.AsyncClient
    endpoint: Endpoint
    files: RepositoryFiles
    partial: PartialFile
    limits: DownloadLimits
    running: RunningDownload

    @property
    def _file(self) -> HubFile:
        return self.partial.file

    async def run(self) -> None:
        """Return when all bytes are on disk; the caller checks their checksum, if there is one.

        Raises:
            ChangedFileError: If a file is no longer the one of which parts were chosen.
            HubError: If the hub refuses, or too many tries in a row brought nothing.
            StorageFullError: If the disk is full, or nearly.
            StorageError: If it cannot be written.
        """
        failures, max_size = 0, self.partial.size
        while self.partial.size < self._file.size or not self.partial.path.exists():
            try:
                await self._fetch()
            except TemporaryHubError as error:
                failures = 1 if self.partial.size > max_size else failures + 1
                max_size = max(max_size, self.partial.size)
                await wait_for_retry(error, failures, self._file.name, self.running, self.limits)
            except OSError as error:
                what = f"{self._file.name} cannot be written to {self.partial.path.parent}"
                raise file_error(error, what, f"Check its permissions. {PART_STAYS}") from error
        self.running.note(self._file.name, "")

    async def _fetch(self) -> None:
        """Receive data over one connection."""
        head = self._file.head
        if head is not None and (self.partial.size < len(head) or not self.partial.path.exists()):
            self.partial.remove()
            with self.partial.opened() as append:
                append(head)
            if not self._file.parts:
                return
        part, start, end = self._part_at(self.partial.size)
        headers = {"Accept-Encoding": "identity"}
        if start or part.stop < part.size:
            # without If-Range: mirrors' ETags differ, and a whole file's digest is checked
            headers["Range"] = f"bytes={start}-{part.stop - 1 if part.stop < part.size else ''}"
        url = self.endpoint.file_url(self.files.repository, self.files.commit, part.name)
        try:
            response = await open_answer(self.client, url, self.endpoint, headers)
            async with aclosing(response):
                self._begin(response, part, start)
                await self._take(response, end)
        except TimeoutError as error:
            raise TemporaryHubError("The server takes too long to answer.") from error
        except httpx2.ReadTimeout as error:
            raise TemporaryHubError(f"No data for {self.limits.stall_s:g} s.") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, SOCKSError) as error:
            raise TemporaryHubError("The server cannot be reached.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError("The connection was lost.") from error

    def _part_at(self, have: int) -> tuple[FilePart, int, int]:
        """Return the part that the next byte is from, that byte's place in its file, and the part's end in ours."""
        end, size = len(self._file.head or b""), self._file.size
        for part in self._file.parts or (FilePart(self._file.name, 0, size, size),):
            end += part.bytes
            if have < end:
                break
        return part, part.stop - (end - have), end

    def _begin(self, response: httpx2.Response, part: FilePart, start: int) -> None:
        """Make the partial file end where the answer's bytes begin."""
        status, headers = response.status_code, response.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise HubError(
                f"The server sends {self._file.name} in an unexpected form.", "Check the proxy, if you use one."
            )
        answered = AnsweredRange.of(headers)
        if self._file.parts and (status == 416 or (answered and not _is_same(answered, part))):
            raise ChangedFileError(f"{part.name} is no longer the file whose parts were chosen.", "Get them again.")
        if status == 206 and answered and answered.start == start and answered.size in {None, part.size}:
            return
        if status not in {200, 206, 416}:
            raise self._refusal(response)
        if self._file.parts:
            text = f"{urlsplit(str(response.url)).netloc} does not send parts of files."
            raise HubError(text, f"Check the proxy or mirror, if you use one. {PART_STAYS}")
        if start:
            text = f"The server cannot resume {self._file.name}. It starts again."
            self.running.note(self._file.name, text)
        self.partial.remove()
        if status != 200:
            raise TemporaryHubError("The server resumed at the wrong place.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) != self._file.size:
            raise HubError(
                f"The server has {int(length):,} bytes of {self._file.name}. The hub says {self._file.size:,}.",
                "Check the proxy or mirror, if you use one.",
            )

    def _refusal(self, response: httpx2.Response) -> HubError:
        """Return the error for a refusal. A 403 of the file store may be an expired link, so the hub is asked again."""
        status = response.status_code
        ours = self.endpoint.owns(str(response.url))
        if not ours and status in {401, 403, 404}:
            return TemporaryHubError(f"The file server refused the request (status {status}).")
        return refusal(status, response.headers, self.endpoint, self.files.repository, self.files.commit)

    async def _take(self, response: httpx2.Response, end: int) -> None:
        """Append an answer's bytes, up to a size of the partial file."""
        looked = 0
        with self.partial.opened() as append:
            self._check_disk()
            size = self.partial.size
            async for data in response.aiter_raw():
                self.running.note(self._file.name, "")
                size += len(data)
                if size > end:
                    raise HubError(
                        f"The server sends more of {self._file.name} than the hub says.",
                        f"{PART_STAYS} Try again later.",
                    )
                append(data)
                self.running.fetched_bytes += len(data)
                self.running.done[self._file.digest] = size
                looked += len(data)
                if looked > _DISK_LOOK_BYTES:
                    looked = 0
                    self._check_disk()
        if size < end:
            raise TemporaryHubError("The connection was lost.")

    def _check_disk(self) -> None:
        folder = self.partial.path.parent
        if shutil.disk_usage(folder).free < self.limits.reserve_bytes:
            raise StorageFullError(f"The disk that holds {folder} is nearly full.", f"Free some space. {PART_STAYS}")


async def wait_for_retry(
    error: TemporaryHubError, failures: int, name: str, running: RunningDownload, limits: DownloadLimits
) -> None:
    """Wait before the next try, with a note.

    Args:
        error: The error of the last try.
        failures: Tries in a row that brought nothing.
        name: Name of the file; empty for requests to the hub.
        running: Receives the note.
        limits: The number of tries and the longest wait.

    Raises:
        HubError: If there were too many tries, or the hub asks for too long a wait.
    """
    requested_s, patient_s = error.wait_s or 0.0, limits.longest_retry_after_s
    if failures >= limits.tries or requested_s > patient_s:
        when = wait_text(requested_s) if requested_s > patient_s else "later"
        raise HubError(error.message, f"{PART_STAYS} Resume the download {when}.") from error
    wait_s = max(requested_s, min(limits.first_wait_s * 2.0 ** (failures - 1), limits.longest_wait_s))
    running.note(name, f"{error.message} Trying again in {math.ceil(wait_s)} s.")
    await asyncio.sleep(wait_s)


def _is_same(answered: AnsweredRange, part: FilePart) -> bool:
    """Return whether an answer is from the file that a part was chosen from."""
    return answered.size in {None, part.size} and part.etag in {"", answered.etag}
