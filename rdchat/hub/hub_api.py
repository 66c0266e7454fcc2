"""Requests to the hub: searches, a model's facts and files, its card, the token's account.

Answers are read over HTTP, within limits of time and size. Each call waits for the network, so it is for threads.
Importing this takes a quarter of a second.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.hub.endpoint import AnswerLimits, Endpoint, HubError, MissingError, TemporaryHubError, check_online, refusal
from rdchat.hub.hub_model import EXPANDED_FIELDS, HubModel, SortBy, parse_model
from rdchat.hub.known_files import (
    MAX_FILE_BYTES,
    HubFile,
    RepositoryFiles,
    check_names,
    chosen_files,
    is_commit,
    is_digest,
    is_repository,
)
from rdchat.wording import size_text

_CARD = "README.md"
_MAX_CARD_BYTES = 200_000
_MAX_FILES = 10_000
_LONGEST_ACCOUNT_NAME = 100
# Files with longer names are never downloaded.
_LONGEST_FILE_NAME = 300
# The orders of a search, as the hub names them.
_SORTED_BY = {"downloads": "downloads", "likes": "likes", "last_modified": "lastModified"}
_LOG = logging.getLogger(__name__)
# A connection without data for so long is dropped.
_STALL_S = 30.0
_CONNECT_S = 15.0
# Time from the request to the answer's headers, with redirects, as a server may send them slowly.
_OPENING_S = 60.0
_REDIRECTS = {301, 302, 303, 307, 308}
_MAX_REDIRECTS = 10
_LATER = "Try again later."
_CHECK = "Check the network connection."


@dataclass(frozen=True, slots=True)
class HubReader:
    """Reads short answers of the hub. Each call waits for its answer.

    All calls raise HubError if there is no answer, a refusal, or none within the limits.

    Attributes:
        endpoint: The hub, with the person's token if there is one.
        limits: Limits of each answer.
        repository: The requested model, for the message of a refusal; empty for a search.
        revision: Its branch, tag or commit.
    """

    endpoint: Endpoint
    limits: AnswerLimits
    repository: str = ""
    revision: str = "main"

    def read_address(self, url: str, first_bytes: int | None = None) -> bytes:
        """Return the content of one address.

        Args:
            url: The address.
            first_bytes: Read only these, instead of refusing a longer answer.
        """
        return asyncio.run(self._read(url, first_bytes))

    def read_json(self, url: str) -> Any:
        """Return the JSON at one address.

        Raises:
            ValueError: If it is not JSON, or has more values than allowed.
            RecursionError: If it is nested too deeply.
        """
        body = self.read_address(url)
        if sum(map(body.count, (b",", b"[", b"{"))) > self.limits.values:
            raise ValueError("too many values")
        return json.loads(body.decode())

    async def _read(self, url: str, first_bytes: int | None) -> bytes:
        """Return an answer's content. It is a coroutine because an event loop can end a wait at any point."""
        host = urlsplit(url).netloc
        response = None
        try:
            async with (
                asyncio.timeout(self.limits.seconds),
                make_async_client() as client,
                aclosing(await open_answer(client, url, self.endpoint, {"Accept-Encoding": "gzip"})) as response,
            ):
                # The content of a refusal is not read.
                if (status := response.status_code) != 200:
                    raise refusal(status, response.headers, self.endpoint, self.repository, self.revision)
                return await _body(response, host, self.limits, first_bytes)
        except TimeoutError as error:
            raise TemporaryHubError(f"{self.endpoint.host} takes too long to answer.", _CHECK) from error
        except httpx2.TimeoutException as error:
            raise TemporaryHubError(f"{host} does not answer.", _CHECK) from error
        except (httpx2.RequestError, httpx2.StreamError, SOCKSError) as error:
            if response is not None:
                raise TemporaryHubError(f"{host} stopped answering.", _CHECK) from error
            hint = "Check the network connection, and the proxy, if you use one."
            raise HubError(f"{host} cannot be reached.", hint) from error


async def open_answer(
    client: httpx2.AsyncClient, url: str, endpoint: Endpoint, headers: dict[str, str]
) -> httpx2.Response:
    """Return the answer after all redirects, its body unread; the caller closes it.

    Args:
        client: From `make_async_client`.
        url: The first address.
        endpoint: The hub, whose token goes to its own addresses only.
        headers: Further headers of the request.

    Raises:
        HubError: If a redirect leads to an unsafe or invalid address.
        httpx2.TransportError, SOCKSError: If there is no connection.
        TimeoutError: If the headers take too long.
    """
    async with asyncio.timeout(_OPENING_S):
        for _ in range(_MAX_REDIRECTS):
            try:
                own = {"User-Agent": f"rdchat/{__version__}"} | endpoint.header_for(url)
                request = client.build_request("GET", url, headers=headers | own)
                response = await client.send(request, stream=True)
            except (httpx2.InvalidURL, ValueError) as error:
                # The host name may be invalid, for example.
                raise HubError("Hugging Face redirects to an invalid address.", _LATER) from error
            if response.status_code not in _REDIRECTS:
                return response
            await response.aclose()
            url = _followed(url, response.headers.get("location", ""))
    raise HubError("Hugging Face redirects too often.", _LATER)


def make_async_client(stall_s: float = _STALL_S) -> httpx2.AsyncClient:
    """Return a client that follows no redirects by itself.

    Args:
        stall_s: Seconds without data after which a connection is dropped.

    Raises:
        HubError: If the environment names an unsupported proxy.
    """
    try:
        timeout = httpx2.Timeout(stall_s, connect=_CONNECT_S)
        return httpx2.AsyncClient(verify=tls_context(), timeout=timeout, follow_redirects=False)
    except ValueError as error:
        raise HubError(
            "rdchat does not support this kind of proxy.",
            "Its address begins with http://, https://, socks5:// or socks5h://. See HTTPS_PROXY and ALL_PROXY.",
        ) from error


@cache
def tls_context() -> ssl.SSLContext:
    """Return the trusted certificates; they are read once, which takes a sixth of a second."""
    return httpx2.create_ssl_context()


async def _body(response: httpx2.Response, host: str, limits: AnswerLimits, first_bytes: int | None) -> bytes:
    """Return an answer's body, unpacked a piece at a time, up to the limit."""
    max_bytes = limits.bytes if first_bytes is None else first_bytes
    body = bytearray()
    async for data in response.aiter_bytes():
        body += data
        if len(body) > max_bytes:
            if first_bytes is None:
                raise HubError(f"{host} answers with more than {size_text(max_bytes)}.", _LATER)
            break
    return bytes(body[:max_bytes])


def _followed(url: str, location: str) -> str:
    """Return the target of a redirect; never a less safe connection.

    Raises:
        HubError: If it leads nowhere.
    """
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        # Both `hostname` and `port` may raise ValueError.
        is_address = bool(location and parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    safe = is_address and (parts.scheme == "https" or (parts.scheme == "http" == urlsplit(url).scheme))
    if not safe or parts.username:
        raise HubError("Hugging Face redirects to an address that is not safe.", _LATER)
    return target


class HubApi:
    """Sends requests to one hub. Each call waits for its answer.

    Args:
        endpoint: The hub, with the person's token if there is one.
        limits: Limits of each request.
    """

    def __init__(self, endpoint: Endpoint, limits: AnswerLimits = AnswerLimits()) -> None:  # noqa: B008  frozen
        self._endpoint = endpoint
        self._limits = limits

    def search_models(
        self, text: str, *, sort: SortBy = "downloads", limit: int = 30, tag: str = "mlx"
    ) -> tuple[HubModel, ...]:
        """Return the models whose names contain the words of a text, sorted by `sort`.

        Args:
            text: Words in the names.
            sort: The order.
            limit: Maximum number of results.
            tag: A tag that the models have, such as `mlx`; empty for all models.

        Raises:
            NetworkError: If the hub cannot be reached, or refuses.
        """
        parameters = [("search", text), ("filter", tag), ("sort", _SORTED_BY[sort]), ("limit", str(limit))]
        query = [(key, value) for key, value in parameters if value] + [("expand", field) for field in EXPANDED_FIELDS]
        with self._checked() as reader:
            listed = reader.read_json(f"{self._endpoint.url}/api/models?{urlencode(query)}")
            if not isinstance(listed, list):
                raise TypeError("no list")
            models = [each for each in listed if isinstance(each, dict) and is_repository(str(each.get("id")))]
            # The hub may list one twice.
            models_by_id = {each["id"]: each for each in models[:limit]}
            return tuple(parse_model(name, answer) for name, answer in models_by_id.items())

    def account(self) -> str:
        """Return the name of the token's account.

        Raises:
            NetworkError: If the hub cannot be reached, or does not accept the token.
        """
        with self._checked() as reader:
            return _text(reader.read_json(f"{self._endpoint.url}/api/whoami-v2")["name"])[:_LONGEST_ACCOUNT_NAME]

    def files(self, repository: str, revision: str = "main") -> RepositoryFiles:
        """Return the files of a model to download.

        Args:
            repository: The hub id.
            revision: A branch, tag or commit.

        Raises:
            NetworkError: If the hub cannot be reached, refuses, or gives impossible values.
        """
        model = self.look_at(repository, revision)
        try:
            files, left_out = chosen_files(model.files, model.packed)
        except HubError as error:
            raise HubError(f"{repository} cannot be fetched. {error.message}", error.hint) from error
        return RepositoryFiles(repository, revision, model.commit, files, left_out)

    def look_at(self, repository: str, revision: str = "main") -> HubModel:
        """Return a model's facts and all its files, with the hub's names; raises as `files`."""
        check_names(repository, revision)
        url = f"{self._endpoint.url}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        with self._checked(repository, revision) as reader:
            answer = reader.read_json(url)
            siblings = answer.get("siblings") or []
            commit = _text(answer["sha"])
            if not is_commit(commit) or len(siblings) > _MAX_FILES:
                raise HubError(f"Hugging Face sent an invalid answer about {repository}.", _LATER)
            return replace(parse_model(repository, answer), commit=commit, files=tuple(map(_file, siblings)))

    def card(self, repository: str, commit: str) -> str:
        """Return the text of a model's card, up to 200 kB; empty if it has none.

        Raises:
            NetworkError: If the hub cannot be reached, or refuses.
        """
        check_names(repository, commit)
        url = self._endpoint.file_url(repository, commit, _CARD)
        with self._checked(repository, commit) as reader, suppress(MissingError):
            return reader.read_address(url, _MAX_CARD_BYTES).decode("utf-8", "replace")
        return ""

    def document(self, repository: str, commit: str, name: str) -> Any:
        """Return the JSON in a repository's file, such as its index of weights.

        Raises:
            NetworkError: If the hub cannot be reached, refuses, or the file is too long or no JSON.
        """
        with self._checked(repository, commit) as reader:
            return reader.read_json(self._endpoint.file_url(repository, commit, name))

    @contextmanager
    def _checked(self, repository: str = "", revision: str = "main") -> Iterator[HubReader]:
        """Give a reader of the hub's answers, for the block that also parses them.

        Raises:
            HubError: If an answer is not a hub's, as its parsing fails.
            NetworkError: If the environment forbids requests.
        """
        check_online()
        try:
            yield HubReader(self._endpoint, self._limits, repository, revision)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _LOG.info("The hub's answer was not understood", exc_info=True)
            host = self._endpoint.host
            raise HubError(f"{host} sent an answer that rdchat does not understand.", _LATER) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _file(answer: dict[str, Any]) -> HubFile:
    """Parse a file; raises HubError if size or checksum is missing."""
    name = _text(answer["rfilename"])[:_LONGEST_FILE_NAME]
    # The hub keeps large files in git LFS, by their sha256, and others in git, by its sha1.
    lfs = answer.get("lfs")
    size = (lfs or answer).get("size")
    digest = lfs.get("sha256") if lfs else answer.get("blobId")
    if not (isinstance(size, int) and 0 <= size <= MAX_FILE_BYTES and isinstance(digest, str) and is_digest(digest)):
        raise HubError(f"Hugging Face gives no size or checksum for {name[:200]}.", _LATER)
    return HubFile(name, size, digest)
