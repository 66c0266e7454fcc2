"""Fetches one file's bytes into its partial file, from the byte where it was, over as many connections as it takes."""

import asyncio
import re
import shutil
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.errors import StorageFullError
from rdchat.files.file_errors import file_error
from rdchat.hub.downloads.download import DownloadLimits
from rdchat.hub.downloads.partial_file import PartialFile
from rdchat.hub.downloads.running_download import RunningDownload, restart_note
from rdchat.hub.hub_client import open_answer
from rdchat.hub.hub_errors import HubError, TemporaryHubError, refusal, wait_words
from rdchat.hub.known_files import RepositoryFiles
from rdchat.hub.tokens import HubAccess

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
_DISK_LOOK_BYTES = 2**25  # between two looks at how much is free
KEPT = "What was downloaded is kept."


@dataclass(frozen=True, slots=True)
class Source:
    """Where from: a hub, and a repository at one commit."""

    access: HubAccess
    files: RepositoryFiles


class Transfer:
    """One file on its way.

    Args:
        client: Makes the connections; it follows no redirects by itself.
        source: Where from.
        partial: What, and where to; the caller holds the repository's lock.
        limits: Of times, tries and the disk.
        running: Is kept up to date.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        source: Source,
        partial: PartialFile,
        limits: DownloadLimits,
        running: RunningDownload,
    ) -> None:
        self._client = client
        self._source = source
        self._file = partial.file
        self._partial = partial
        self._limits = limits
        self._running = running

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
                self._running.note(self._file.name, error.message, wait)
                await asyncio.sleep(wait)
            except OSError as error:
                what = f"{self._file.name} cannot be written to {self._partial.path.parent}"
                raise file_error(error, what, f"Check its permissions. {KEPT}") from error
        self._running.note(self._file.name, "")

    def _wait_after(self, error: TemporaryHubError, failures: int) -> float:
        """Return the seconds to wait; raise where there is no point in it."""
        asked = error.wait_s or 0.0
        wait = self._limits.wait_s(failures, asked)
        if wait is None:
            when = wait_words(asked) if asked > self._limits.longest_retry_after_s else "later"
            raise HubError(error.message, f"{KEPT} Resume the download {when}.") from error
        return wait

    async def _fetch(self) -> None:
        """Fetch what one connection gives."""
        have, source = self._partial.size, self._source
        url = source.access.endpoint.file_url(source.files.repository, source.files.commit, self._file.name)
        try:
            response = await open_answer(self._client, url, lambda address: self._headers(address, have))
            async with aclosing(response):
                self._begin(response, have)
                await self._take(response)
        except TimeoutError as error:
            raise TemporaryHubError("The server takes too long to answer.") from error
        except httpx2.ReadTimeout as error:
            raise TemporaryHubError(f"No data for {self._limits.stall_s:g} s.") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, SOCKSError) as error:
            raise TemporaryHubError("The server cannot be reached.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError("The connection was lost.") from error

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
            words = f"The server does not go on with {self._file.name}: it begins again."
            self._running.note(restart_note(self._file), words)
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
                self._running.note(self._file.name, "")
                size += len(data)
                if size > self._file.size:
                    raise HubError(
                        f"The server sends more of {self._file.name} than it has.", f"{KEPT} Try again later."
                    )
                append(data)
                self._running.fetched_bytes += len(data)
                self._running.done[self._file.digest] = size
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
