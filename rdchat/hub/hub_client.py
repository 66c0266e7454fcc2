"""The HTTP client that `huggingface_hub` is given; its import, with the first question, takes a quarter of a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from socksio import SOCKSError

from rdchat.hub.connections import tls_context
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_errors import HubError, TemporaryHubError, UnreachableError

_TIMEOUT = httpx2.Timeout(30.0, connect=15.0)


class HubClient(httpx2.Client):
    """Says at once what goes wrong, which `huggingface_hub` would try for half a minute before it says so.

    The token goes to the hub alone: `huggingface_hub` would send it wherever a list's next page is said to be.
    """

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.url.origin != httpx2.URL(find_endpoint().url).origin:
            request.headers.pop("Authorization", None)
        host = request.url.netloc.decode()
        try:
            response = super().send(request, **options)
        except httpx2.TimeoutException as error:
            raise TemporaryHubError(f"{host} does not answer.", "Check the network connection.") from error
        except (httpx2.TransportError, SOCKSError) as error:
            hint = "Check the network connection, and the proxy where there is one."
            raise UnreachableError(f"{host} cannot be reached.", hint) from error
        if response.status_code == 429 or response.is_server_error:
            response.raise_for_status()
        return response


def make_client() -> HubClient:
    """Return a client with limits of time; raises HubError where the environment names a proxy that it cannot use."""
    with _proxy_in_words():
        return HubClient(verify=tls_context(), follow_redirects=True, timeout=_TIMEOUT)


def make_async_client(timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """Return a client for the bytes of files; it follows no redirects. Raises HubError as `make_client` does."""
    with _proxy_in_words():
        return httpx2.AsyncClient(verify=tls_context(), timeout=timeout, follow_redirects=False)


@contextmanager
def _proxy_in_words() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise HubError(
            "The proxy that the environment names is of a kind that rdchat does not speak.",
            "Its address begins with http://, https://, socks5:// or socks5h://. See HTTPS_PROXY and ALL_PROXY.",
        ) from error
