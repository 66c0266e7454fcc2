"""Refuses requests without the key and requests of web pages, by their headers alone."""

import hashlib
import hmac
import ipaddress
import re
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from rdchat.server.interfaces.fields import ApiError
from rdchat.server.server_settings import ServerSettings

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# Origins of desktop apps and browser extensions: no web page has one of these schemes.
_APP_ORIGIN = re.compile(
    r"(app|capacitor|electron|ionic|tauri|wails|vscode-(file|webview)|(chrome|moz|safari-web)-extension)://[!-~]+",
    re.IGNORECASE,
)
_HEADER_NAMES = re.compile(r"[\w-]+( ?, ?[\w-]+)*", re.ASCII)


class Guard:
    """Checks where a request comes from, and its key.

    Any web page can make its browser send requests to this machine. The browser then names the page in `Origin`. Where
    the page's own host name leads to this machine (DNS rebinding), that name stands in `Host`. So both headers must
    name this server. An app with an origin of its own scheme, such as `app://obsidian.md`, is no web page.

    Args:
        settings: The server's settings.
        port: The port that it listens on.
    """

    def __init__(self, settings: ServerSettings, port: int) -> None:
        self._key = _digest(settings.key)
        self._port = port
        self._host_names = {*_LOOPBACK_NAMES, settings.host.lower(), *settings.allowed_hosts}
        self._only_this_machine = is_loopback(settings.host)
        if not self._only_this_machine:
            own = socket.gethostname().lower()
            self._host_names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}

    def check_request(self, headers: Headers) -> None:
        """Raise ApiError for a request of a web page, or without the key. One right key among several is enough."""
        self._check_origin(headers)
        given = [*headers.getlist("x-api-key"), *map(_bearer, headers.getlist("authorization"))]
        # All keys are compared, in constant time.
        right = [hmac.compare_digest(_digest(key), self._key) for key in given]
        if not any(right):
            message = "The key is wrong." if any(given) else "The key is missing."
            raise ApiError(
                401,
                f"{message} rdchat's Settings show it, and `rdchat serve` says where it is.",
                code="invalid_api_key",
            )

    def preflight(self, headers: Headers) -> dict[str, str]:
        """Return the headers that answer a CORS preflight: an app asks, without a key, whether it may send a request.

        Raises:
            ApiError: If it is a web page, or the request comes from elsewhere.
        """
        self._check_origin(headers)
        names = headers.get("access-control-request-headers", "")
        allowed = {"access-control-allow-methods": "GET, POST", "access-control-allow-private-network": "true"}
        if _HEADER_NAMES.fullmatch(names):
            allowed["access-control-allow-headers"] = names
        return cors_headers(headers) | allowed

    def _check_origin(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_this_server(hosts[0]):
            raise ApiError(403, "The Host header names another machine. `rdchat serve --allow-host` adds a name.")
        if not _app_origin(headers) and not all(map(self._is_own_origin, headers.getlist("origin"))):
            raise ApiError(403, "Web pages may not use this server.")

    def _is_this_server(self, host: str) -> bool:
        """Return whether the value of a `Host` header, such as `localhost:8817`, names this server and its port."""
        try:
            parts = urlsplit(f"//{host}")
            name = parts.hostname
            port = parts.port
        except ValueError:
            return False
        if name is None or (port or 80) != self._port or parts.netloc != host or "@" in host:
            return False
        # Other machines may use any address of this one: DNS rebinding needs a name.
        return name.removesuffix(".") in self._host_names or (
            not self._only_this_machine and _address(name) is not None
        )

    def _is_own_origin(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self._is_this_server(host)


def cors_headers(headers: Headers) -> dict[str, str]:
    """Return the headers that let an app with an origin of its own read an answer; none for other clients."""
    if origin := _app_origin(headers):
        own = "x-rdchat-ignored, x-rdchat-model-substituted, x-rdchat-unenforced"
        exposed = f"request-id, retry-after, {own}, x-request-id"
        return {"access-control-allow-origin": origin, "access-control-expose-headers": exposed, "vary": "Origin"}
    return {}


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on lets in this machine only."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _app_origin(headers: Headers) -> str:
    """Return the origin of an app with a scheme of its own; empty for other clients."""
    origins = headers.getlist("origin")
    return origins[0] if len(origins) == 1 and _APP_ORIGIN.fullmatch(origins[0]) else ""


def _bearer(authorization: str) -> str:
    """Return the key in `Bearer KEY`; empty for another scheme."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _digest(key: str) -> bytes:
    """Return a hash of a key: hashes have one length, so comparing them tells nothing about the key's."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
