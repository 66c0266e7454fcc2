"""Fetches one file into a partial file, and resumes at the last byte after each lost connection."""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.errors import RdchatError, StorageFullError
from rdchat.files.atomic_file import write_json
from rdchat.files.file_errors import file_error
from rdchat.files.foreign_files import read_json
from rdchat.hub.downloads.download import DownloadLimits
from rdchat.hub.downloads.running_download import RunningDownload, restart_note
from rdchat.hub.hub_client import open_answer
from rdchat.hub.hub_errors import HubError, TemporaryHubError, refusal, wait_words
from rdchat.hub.known_files import HubFile, RepositoryFiles
from rdchat.hub.tokens import HubAccess

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
_DISK_LOOK_BYTES = 2**25  # between two looks at how much is free
_MOST_FACTS = 10_000  # bytes of the JSON file beside a partial file
KEPT = "What was downloaded is kept."


class PartialFile:
    """The first bytes of a blob, beside a JSON file with the ETag and the size that they belong to.

    It is written without a buffer, so no received byte is lost when this process is killed. Only the holder of the
    repository's lock may write.

    Args:
        folder: An existing folder.
        file: The file as the hub describes it.
    """

    def __init__(self, folder: Path, file: HubFile) -> None:
        self.path = folder / f"{file.digest}.part"
        self._facts = folder / f"{file.digest}.json"
        self.file = file
        self.etag = self._read_etag()
        if self.etag is None or self.size > file.size or not self._is_own():
            self.path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """How many of its bytes are here."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def begin(self, etag: str) -> None:
        """Begin at the first byte of the content with this ETag, which may be empty."""
        self.path.unlink(missing_ok=True)
        write_json(self._facts, {"etag": etag, "size": self.file.size})
        self.etag = etag

    @contextmanager
    def opened(self) -> Iterator[Callable[[bytes], None]]:
        """Yield a function that appends bytes; it raises OSError if the disk does not take them all."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "ab", buffering=0) as file:

            def append(data: bytes) -> None:
                written = file.write(data)
                while written < len(data):  # a disk that is nearly full takes a part
                    written += file.write(data[written:])

            yield append

    def remove(self) -> None:
        for path in (self.path, self._facts):
            path.unlink(missing_ok=True)

    def forget_facts(self) -> None:
        """Remove the JSON file once the partial file was renamed to its blob."""
        with suppress(OSError):
            self._facts.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        """Tell whether the path is free, or a regular file without other links. Others are not written to."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return True
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def _read_etag(self) -> str | None:
        """Return the ETag of the partial file; None where it is unusable."""
        try:
            facts = read_json(self._facts, most=_MOST_FACTS)
        except (RdchatError, OSError):
            return None
        if not isinstance(facts, dict) or facts.get("size") != self.file.size or not isinstance(facts.get("etag"), str):
            return None
        return str(facts["etag"])


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of one file."""

    client: httpx2.AsyncClient  # follows no redirects by itself
    access: HubAccess  # the hub
    files: RepositoryFiles  # the file is one of these
    partial: PartialFile  # where the bytes go; the caller holds the repository's lock
    limits: DownloadLimits
    running: RunningDownload  # is kept up to date

    @property
    def _file(self) -> HubFile:
        return self.partial.file

    async def run(self) -> None:
        """Return when all bytes are here; their checksum is the caller's business.

        Raises:
            HubError: If the hub refuses, or so many tries in a row brought nothing.
            StorageFullError: If the disk is full, or nearly.
            StorageError: If it cannot be written.
        """
        failures, most = 0, self.partial.size
        while self.partial.size < self._file.size or not self.partial.path.exists():
            try:
                await self._fetch()
            except TemporaryHubError as error:
                failures = 1 if self.partial.size > most else failures + 1
                most = max(most, self.partial.size)
                wait = self._wait_after(error, failures)
                self.running.note(self._file.name, error.message, wait)
                await asyncio.sleep(wait)
            except OSError as error:
                what = f"{self._file.name} cannot be written to {self.partial.path.parent}"
                raise file_error(error, what, f"Check its permissions. {KEPT}") from error
        self.running.note(self._file.name, "")

    def _wait_after(self, error: TemporaryHubError, failures: int) -> float:
        """Return the seconds to wait; raise where there is no point in it."""
        asked = error.wait_s or 0.0
        wait = self.limits.wait_s(failures, asked)
        if wait is None:
            when = wait_words(asked) if asked > self.limits.longest_retry_after_s else "later"
            raise HubError(error.message, f"{KEPT} Resume the download {when}.") from error
        return wait

    async def _fetch(self) -> None:
        """Fetch over one connection."""
        have = self.partial.size
        url = self.access.endpoint.file_url(self.files.repository, self.files.commit, self._file.name)
        try:
            response = await open_answer(self.client, url, lambda address: self._headers(address, have))
            async with aclosing(response):
                self._begin(response, have)
                await self._take(response)
        except TimeoutError as error:
            raise TemporaryHubError("The server takes too long to answer.") from error
        except httpx2.ReadTimeout as error:
            raise TemporaryHubError(f"No data for {self.limits.stall_s:g} s.") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, SOCKSError) as error:
            raise TemporaryHubError("The server cannot be reached.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError("The connection was lost.") from error

    def _headers(self, url: str, have: int) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": f"rdchat/{__version__}"}
        if have:
            headers["Range"] = f"bytes={have}-"  # without If-Range: mirrors' ETags differ, and the digest is checked
        return headers | self.access.header_for(url)

    def _begin(self, response: httpx2.Response, have: int) -> None:
        """Make the partial file end where the answer's bytes begin."""
        status, headers = response.status_code, response.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise HubError(f"The server sends {self._file.name} in another form.", "Check the proxy, if there is one.")
        if status == 206 and have and _continues(headers, have, self._file.size):
            return
        if status not in {200, 206, 416}:
            raise self._refusal(response)
        if have:
            words = f"The server does not go on with {self._file.name}: it begins again."
            self.running.note(restart_note(self._file), words)
        self.partial.begin(headers.get("etag", ""))
        if status != 200:
            raise TemporaryHubError("The server did not go on where it should.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) != self._file.size:
            raise HubError(
                f"The server has another {self._file.name} than the hub tells of: {int(length):,} bytes, "
                f"not {self._file.size:,}.",
                "Check the proxy or the mirror, if there is one.",
            )

    def _refusal(self, response: httpx2.Response) -> HubError:
        """Return the error for a refusal. A 403 of the file store may be an expired link: the hub is asked again."""
        status = response.status_code
        ours = self.access.endpoint.owns(str(response.url))
        if not ours and status in {401, 403, 404}:
            return TemporaryHubError(f"The store of the hub's files refuses with status {status}.")
        return refusal(status, response.headers, self.access, self.files.repository, self.files.commit)

    async def _take(self, response: httpx2.Response) -> None:
        looked = 0
        with self.partial.opened() as append:
            self._check_disk()
            size = self.partial.size
            async for data in response.aiter_raw():
                self.running.note(self._file.name, "")
                size += len(data)
                if size > self._file.size:
                    raise HubError(
                        f"The server sends more of {self._file.name} than it has.", f"{KEPT} Try again later."
                    )
                append(data)
                self.running.fetched_bytes += len(data)
                self.running.done[self._file.digest] = size
                looked += len(data)
                if looked > _DISK_LOOK_BYTES:
                    looked = 0
                    self._check_disk()
        if size < self._file.size:
            raise TemporaryHubError("The connection was lost.")

    def _check_disk(self) -> None:
        folder = self.partial.path.parent
        if shutil.disk_usage(folder).free < self.limits.reserve_bytes:
            raise StorageFullError(f"The disk that holds {folder} is nearly full.", f"Free some space. {KEPT}")


def _continues(headers: Mapping[str, str], have: int, size: int) -> bool:
    told = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    return told is not None and int(told[1]) == have and told[2] in {"*", str(size)}
