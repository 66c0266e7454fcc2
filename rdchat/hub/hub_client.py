"""The one way to the hub over HTTP. Every answer is opened here; every short one is read here, within limits.

Its import takes a quarter of a second, so others import it with the first question.
"""

import asyncio
import json
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.hub.endpoint import AnswerLimits
from rdchat.hub.hub_errors import HubError, TemporaryHubError, UnreachableError
from rdchat.hub.tokens import HubAccess

_STALL_S, _CONNECT_S = 30.0, 15.0
_OPENING_S = 60.0  # from the request to the answer's headers, redirects included: a server may drip them
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 10
_GZIP = 31  # zlib's window bits for gzip
_LATER = "Try again later."


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Attributes:
        status: HTTP's.
        headers: Their names may be looked up in lower case.
        body: Decompressed; empty unless the status is 200.
        next_page: Address of the list's next page; empty where there is none.
    """

    status: int
    headers: httpx2.Headers
    body: bytes = b""
    next_page: str = ""


def read_answer(access: HubAccess, url: str, limits: AnswerLimits, first_bytes: int | None = None) -> Answer:
    """Return the answer for one address.

    Args:
        access: The hub, and the token for it.
        url: The address.
        limits: Of bytes and time.
        first_bytes: Read no more than these, rather than refuse a longer answer.

    Raises:
        HubError: If there is no answer, or not within the limits.
    """
    return _within(access, limits, lambda client: _read(client, access, url, limits, first_bytes))


def read_list(access: HubAccess, url: str, limits: AnswerLimits, most: int) -> list[Any] | Answer:
    """Return the first entries of a list that may have several pages; a refusal where the hub gives no list.

    Args:
        access: The hub, and the token for it.
        url: The first page's address.
        limits: Of bytes, time and pages.
        most: How many entries.

    Raises:
        HubError: If there is no answer, or not within the limits.
        ValueError: If a page is not JSON.
        TypeError: If a page is not a list.
    """

    async def read(client: httpx2.AsyncClient) -> list[Any] | Answer:
        found: list[Any] = []
        page, seen = url, {url}
        for _ in range(limits.pages):
            answer = await _read(client, access, page, limits, None)
            if answer.status != 200:
                return answer
            entries = parsed(answer.body, limits)
            if not isinstance(entries, list):
                raise TypeError("no list")
            found += entries
            page = answer.next_page
            if not page or len(found) >= most:
                return found[:most]
            if page in seen:
                break
            seen.add(page)
        raise HubError(f"{access.endpoint.host} gives a list that does not end.", _LATER)

    return _within(access, limits, read)


def parsed(body: bytes, limits: AnswerLimits) -> Any:
    """Return what JSON holds.

    Raises:
        ValueError: If it is no JSON, or holds more values than the limits allow.
        RecursionError: If it is nested too deeply.
    """
    if sum(map(body.count, (b",", b"[", b"{"))) > limits.values:
        raise ValueError("too many values")
    # each hook lets other threads run: the parser alone would hold Python's lock, and the window stand still
    return json.loads(body.decode(), object_hook=lambda fields: fields, parse_int=_int, parse_float=_float)


def _int(digits: str) -> int:
    return int(digits)


def _float(digits: str) -> float:
    return float(digits)


async def open_answer(
    client: httpx2.AsyncClient, url: str, headers_for: Callable[[str], dict[str, str]]
) -> httpx2.Response:
    """Return the answer behind all redirects, its body unread; the caller closes it.

    Args:
        client: That `make_async_client` made.
        url: The first address.
        headers_for: Gives the headers for an address; the token is not for all of them.

    Raises:
        HubError: If a redirect leads to what is no safe address, or nowhere.
        httpx2.TransportError, SOCKSError: If there is no connection.
        TimeoutError: If the headers take too long.
    """
    async with asyncio.timeout(_OPENING_S):
        for _ in range(_MOST_REDIRECTS):
            try:
                request = client.build_request("GET", url, headers=headers_for(url))
                response = await client.send(request, stream=True)
            except (httpx2.InvalidURL, ValueError) as error:  # such as a host's name that no resolver takes
                raise HubError("The hub leads to an address that cannot be.", _LATER) from error
            if response.status_code not in _REDIRECTS:
                return response
            await response.aclose()
            url = _followed(url, response.headers.get("location", ""))
    raise HubError("The hub leads in circles.", _LATER)


def make_async_client(stall_s: float = _STALL_S, connect_s: float = _CONNECT_S) -> httpx2.AsyncClient:
    """Return a client that follows no redirects by itself.

    Args:
        stall_s: Seconds without data after which a connection is given up.
        connect_s: Seconds that making a connection may take.

    Raises:
        HubError: If the environment names a proxy that it cannot use.
    """
    try:
        timeout = httpx2.Timeout(stall_s, connect=connect_s)
        return httpx2.AsyncClient(verify=_tls_context(), timeout=timeout, follow_redirects=False)
    except ValueError as error:
        raise HubError(
            "The proxy that the environment names is of a kind that rdchat does not speak.",
            "Its address begins with http://, https://, socks5:// or socks5h://. See HTTPS_PROXY and ALL_PROXY.",
        ) from error


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the trusted certificates, read once: that takes a sixth of a second."""
    return httpx2.create_ssl_context()


def _within[T](access: HubAccess, limits: AnswerLimits, ask: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
    """Ask, within the time limit: on a loop of its own, as only that can end a wait for a server at any place."""
    host = access.endpoint.host

    async def asked() -> T:
        async with asyncio.timeout(limits.seconds), make_async_client() as client:
            return await ask(client)

    try:
        return asyncio.run(asked())
    except TimeoutError as error:
        raise TemporaryHubError(f"{host} takes too long to answer.", "Check the network connection.") from error


async def _read(
    client: httpx2.AsyncClient, access: HubAccess, url: str, limits: AnswerLimits, first_bytes: int | None
) -> Answer:
    def headers_for(address: str) -> dict[str, str]:
        own = {"Accept-Encoding": "gzip", "User-Agent": f"rdchat/{__version__}"}
        return own | access.header_for(address)

    host = urlsplit(url).netloc
    with _unreachable_in_words(host):
        response = await open_answer(client, url, headers_for)
    async with aclosing(response):
        if response.status_code != 200:
            return Answer(response.status_code, response.headers)  # what it says besides is not read
        try:
            body = await _body(response, host, limits, first_bytes)
        except httpx2.TimeoutException as error:
            raise TemporaryHubError(f"{host} does not answer.", "Check the network connection.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise TemporaryHubError(f"{host} stopped answering.", "Check the network connection.") from error
        link = response.links.get("next", {}).get("url", "")
        return Answer(200, response.headers, body, _followed(url, link) if link else "")


async def _body(response: httpx2.Response, host: str, limits: AnswerLimits, first_bytes: int | None) -> bytes:
    """Return an answer's body; neither what is received nor what it unpacks to is more than the limit."""
    most = limits.bytes if first_bytes is None else first_bytes
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"gzip", "identity"}:
        raise HubError(f"{host} answers in a compressed form that rdchat did not ask for.", "Check the proxy.")
    unpack = zlib.decompressobj(_GZIP) if coding == "gzip" else None
    body, received = bytearray(), 0
    async for data in response.aiter_raw():
        received += len(data)
        try:
            body += unpack.decompress(data, most + 1 - len(body)) if unpack else data
        except zlib.error as error:
            raise HubError(f"{host} answers with something that is no hub's answer.", _LATER) from error
        if max(len(body), received) > most:
            if first_bytes is None:
                raise HubError(f"{host} answers with more than {most / 1e6:.0f} MB.", _LATER)
            break
    else:
        if received and unpack and not unpack.eof:
            raise TemporaryHubError(f"{host} stopped answering.", "Check the network connection.")
    return bytes(body[:most])


def _followed(url: str, location: str) -> str:
    """Return where a redirect or a link leads; never to a connection that is less safe.

    Raises:
        HubError: If it leads nowhere.
    """
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        is_address = bool(location and parts.hostname) and parts.port != 0  # which all may raise
    except ValueError:
        is_address = False
    safe = is_address and (parts.scheme == "https" or (parts.scheme == "http" == urlsplit(url).scheme))
    if not safe or parts.username:
        raise HubError("The hub leads to an address that is not safe.", _LATER)
    return target


@contextmanager
def _unreachable_in_words(host: str) -> Iterator[None]:
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TemporaryHubError(f"{host} does not answer.", "Check the network connection.") from error
    except (httpx2.TransportError, SOCKSError) as error:
        hint = "Check the network connection, and the proxy where there is one."
        raise UnreachableError(f"{host} cannot be reached.", hint) from error
