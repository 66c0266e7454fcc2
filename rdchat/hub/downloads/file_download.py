"""Downloads one file into a partial file, and resumes at the last byte after each lost connection."""

import asyncio
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from socksio import SOCKSError

from rdchat.errors import StorageFullError, file_error
from rdchat.hub.downloads.download import DownloadLimits, RunningDownload
from rdchat.hub.endpoint import LONGEST_WAIT_S, Endpoint, HubError, TemporaryHubError, refusal, wait_text
from rdchat.hub.hub_api import open_answer
from rdchat.hub.known_files import HubFile, RepositoryFiles

# The free space is checked again after this many bytes.
_DISK_CHECK_BYTES = 2**25
# First byte, and size of the file.
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
PART_STAYS = "The downloaded part is kept."


class PartialFile:
    """The first bytes of a blob, in a file named by its digest.

    It is written without a buffer, so no received byte is lost if the process is killed. Only the holder of the
    repository's lock may write to it.

    Args:
        folder: An existing folder.
        file: The file as the hub describes it, also as an attribute.

    Attributes:
        path: Where the bytes are; nothing is there before the first one.
    """

    def __init__(self, folder: Path, file: HubFile) -> None:
        self.path = folder / f"{file.digest}.part"
        self.file = file
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
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
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
    """The download of one file.

    Attributes:
        client: Follows no redirects by itself.
        endpoint: The hub.
        files: The file is one of these.
        partial: Receives the bytes; the caller holds the repository's lock.
        limits: When the connection is given up, how often it is made again, and the free space that stays.
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

    async def download_file(self) -> None:
        """Return when all bytes are on disk, in a file even if there are none; the caller checks their checksum.

        After a lost connection it tries again. A try that brought bytes counts as the first failure again.

        Raises:
            HubError: If the hub refuses, or too many tries in a row brought nothing.
            StorageFullError: If the disk is full, or nearly.
            StorageError: If it cannot be written.
        """
        failures = 0
        # The most bytes so far: a server that cannot resume makes the file begin again.
        max_size = self.partial.size
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
        start = self.partial.size
        headers = {"Accept-Encoding": "identity"}
        if start:
            # It goes without If-Range: mirrors' ETags differ, and the digest is checked.
            headers["Range"] = f"bytes={start}-"
        url = self.endpoint.file_url(self.files.repository, self.files.commit, self._file.name)
        try:
            response = await open_answer(self.client, url, self.endpoint, headers)
            async with aclosing(response):
                self._begin(response, start)
                await self._receive(response)
        except TimeoutError as error:
            raise TemporaryHubError("The server takes too long to answer.") from error
        except httpx2.ReadTimeout as error:
            raise TemporaryHubError(f"No data for {self.limits.stall_s:g} s.") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, SOCKSError) as error:
            raise TemporaryHubError("The server cannot be reached.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError("The connection was lost.") from error

    def _begin(self, response: httpx2.Response, start: int) -> None:
        """Make the partial file end where the answer's bytes begin, or raise why its bytes cannot be used.

        The answer is the rest (206, and the file stays), the whole file (200, and it begins again), a part from the
        wrong place (206 or 416, and the next try begins again), or a refusal.
        """
        status = response.status_code
        headers = response.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise HubError(
                f"The server sends {self._file.name} in an unexpected form.", "Check the proxy, if you use one."
            )
        if status == 206 and _continues(headers, start, self._file.size):
            return
        if status not in {200, 206, 416}:
            raise self._refusal(response)
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

    async def _receive(self, response: httpx2.Response) -> None:
        """Append an answer's bytes, up to the file's size."""
        unchecked = 0
        with self.partial.opened() as append:
            self._check_disk()
            size = self.partial.size
            async for data in response.aiter_raw():
                self.running.note(self._file.name, "")
                size += len(data)
                if size > self._file.size:
                    raise HubError(
                        f"The server sends more of {self._file.name} than the hub says.",
                        f"{PART_STAYS} Try again later.",
                    )
                append(data)
                self.running.fetched_bytes += len(data)
                self.running.done[self._file.digest] = size
                unchecked += len(data)
                if unchecked > _DISK_CHECK_BYTES:
                    unchecked = 0
                    self._check_disk()
        if size < self._file.size:
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
    requested_s = error.wait_s or 0.0
    if failures >= limits.tries or requested_s > LONGEST_WAIT_S:
        when = wait_text(requested_s) if requested_s > LONGEST_WAIT_S else "later"
        raise HubError(error.message, f"{PART_STAYS} Resume the download {when}.") from error
    wait_s = max(requested_s, min(limits.first_wait_s * 2.0 ** (failures - 1), limits.longest_wait_s))
    running.note(name, f"{error.message} Trying again in {math.ceil(wait_s)} s.")
    await asyncio.sleep(wait_s)


def _continues(headers: Mapping[str, str], start: int, size: int) -> bool:
    """Return whether an answer's bytes begin at `start`, in a file of this size."""
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    return match is not None and int(match[1]) == start and match[2] in {"*", str(size)}
