"""Fetches one file's bytes into its partial file, from the byte where it was, over as many connections as it takes."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.errors import StorageFullError
from rdchat.files.file_errors import file_error
from rdchat.hub.downloads.download_progress import DownloadLimits
from rdchat.hub.downloads.partial_file import PartialFile
from rdchat.hub.hub_errors import HubError, TemporaryHubError, refusal
from rdchat.hub.known_files import RepositoryFiles
from rdchat.hub.tokens import HubAccess

_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 10
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
_DISK_LOOK_BYTES = 2**25  # between two looks at how much is free
KEPT = "What was downloaded is kept."


@dataclass(frozen=True, slots=True)
class Source:
    """Where from: a hub, and a repository at one commit."""

    access: HubAccess
    files: RepositoryFiles


@dataclass(frozen=True, slots=True)
class TransferWatcher:
    """Who is told what happens to a transfer.

    Attributes:
        on_bytes: Called with the number of bytes that came.
        on_note: Called with what happens to the connection and the seconds until the next try; with no words, once
            data comes again.
        on_restart: Called with the reason why the file begins again at its first byte.
    """

    on_bytes: Callable[[int], None]
    on_note: Callable[[str, float], None]
    on_restart: Callable[[str], None]


class Transfer:
    """One file on its way.

    Args:
        client: Makes the connections; it follows no redirects by itself.
        source: Where from.
        partial: What, and where to; the caller holds the repository's lock.
        limits: Of times, tries and the disk.
        watcher: Is told how it goes.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        source: Source,
        partial: PartialFile,
        limits: DownloadLimits,
        watcher: TransferWatcher,
    ) -> None:
        self._client = client
        self._source = source
        self._file = partial.file
        self._partial = partial
        self._limits = limits
        self._watcher = watcher

    async def run(self) -> None:
        """Return when all bytes are here; their checksum is the caller's business.

        Raises:
            HubError: If the hub refuses, or so many tries in a row brought nothing.
            StorageFullError: If the disk is full, or nearly.
            StorageError: If it cannot be written.
        """
        failures, most = 0, self._partial.size
        while self._partial.size < self._file.size or not self._partial.path.exists():
            try:
                await self._fetch()
            except TemporaryHubError as error:
                failures = 1 if self._partial.size > most else failures + 1
                most = max(most, self._partial.size)
                wait = self._wait_after(error, failures)
                self._watcher.on_note(error.message, wait)
                await asyncio.sleep(wait)
            except OSError as error:
                what = f"{self._file.name} cannot be written to {self._partial.path.parent}"
                raise file_error(error, what, f"Check its permissions. {KEPT}") from error
        self._watcher.on_note("", 0.0)

    def _wait_after(self, error: TemporaryHubError, failures: int) -> float:
        """Return the seconds to wait; raise where there is no point in it."""
        limits = self._limits
        asked = error.wait_s or 0.0
        if failures >= limits.tries or asked > limits.longest_retry_after_s:
            when = f"in {asked / 60:.0f} minutes" if asked > limits.longest_retry_after_s else "later"
            raise HubError(error.message, f"{KEPT} Resume the download {when}.") from error
        return max(asked, min(limits.first_wait_s * 2.0 ** (failures - 1), limits.longest_wait_s))

    async def _fetch(self) -> None:
        """Fetch what one connection gives."""
        have = self._partial.size
        try:
            async with self._answer(have) as response:
                self._begin(response, have)
                await self._take(response)
        except httpx2.ReadTimeout as error:
            raise TemporaryHubError(f"No data for {self._limits.stall_s:g} s.") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, SOCKSError) as error:
            raise TemporaryHubError("The server cannot be reached.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError("The connection was lost.") from error
        except httpx2.InvalidURL as error:
            raise HubError("The hub leads to an address that cannot be.", f"{KEPT} Try again later.") from error

    @asynccontextmanager
    async def _answer(self, have: int) -> AsyncIterator[httpx2.Response]:
        """Give the answer that has the bytes, behind all redirects."""
        source = self._source
        url = source.access.endpoint.file_url(source.files.repository, source.files.commit, self._file.name)
        for _ in range(_MOST_REDIRECTS):
            request = self._client.build_request("GET", url, headers=self._headers(url, have))
            response = await self._client.send(request, stream=True)
            try:
                if response.status_code not in _REDIRECTS:
                    yield response
                    return
                url = _redirected(url, response.headers.get("location", ""))
            finally:
                await response.aclose()
        raise HubError("The hub leads in circles.", f"{KEPT} Try again later.")

    def _headers(self, url: str, have: int) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": f"rdchat/{__version__}"}
        if have:
            headers["Range"] = f"bytes={have}-"  # without If-Range: mirrors' ETags differ, and the digest is checked
        return headers | self._source.access.header_for(url)

    def _begin(self, response: httpx2.Response, have: int) -> None:
        """Have the partial file end where the answer's bytes begin."""
        status, headers = response.status_code, response.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise HubError(f"The server sends {self._file.name} in another form.", "Check the proxy, if there is one.")
        if status == 206 and have and _continues(headers, have, self._file.size):
            return
        if status not in {200, 206, 416}:
            raise self._refusal(response)
        if have:
            self._watcher.on_restart(f"The server does not go on with {self._file.name}: it begins again.")
        self._partial.begin(headers.get("etag", ""))
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
        """Say what the server refuses; a store's own 403 may be a link that has run out, so the hub is asked anew."""
        source, status = self._source, response.status_code
        ours = source.access.endpoint.owns(str(response.url))
        if not ours and status in {401, 403, 404}:
            return TemporaryHubError(f"The store of the hub's files refuses with status {status}.")
        files = source.files
        return refusal(status, response.headers, source.access, files.repository, files.commit)

    async def _take(self, response: httpx2.Response) -> None:
        looked = 0
        with self._partial.opened() as append:
            self._check_disk()
            size = self._partial.size
            async for data in response.aiter_raw():
                self._watcher.on_note("", 0.0)
                size += len(data)
                if size > self._file.size:
                    raise HubError(
                        f"The server sends more of {self._file.name} than it has.", f"{KEPT} Try again later."
                    )
                append(data)
                self._watcher.on_bytes(len(data))
                looked += len(data)
                if looked > _DISK_LOOK_BYTES:
                    looked = 0
                    self._check_disk()
        if size < self._file.size:
            raise TemporaryHubError("The connection was lost.")

    def _check_disk(self) -> None:
        folder = self._partial.path.parent
        if shutil.disk_usage(folder).free < self._limits.reserve_bytes:
            raise StorageFullError(f"The disk that holds {folder} is nearly full.", f"Free some space. {KEPT}")


def _continues(headers: Mapping[str, str], have: int, size: int) -> bool:
    told = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    return told is not None and int(told[1]) == have and told[2] in {"*", str(size)}


def _redirected(url: str, location: str) -> str:
    """Return where a redirect leads; never to a connection that is less safe.

    Raises:
        HubError: If it leads nowhere.
    """
    target = urljoin(url, location)
    parts = urlsplit(target)
    safe = parts.scheme == "https" or (parts.scheme == "http" and urlsplit(url).scheme == "http")
    if not location or not safe or not parts.hostname or parts.username:
        raise HubError("The hub leads to an address that is not safe.", f"{KEPT} Try again later.")
    return target
