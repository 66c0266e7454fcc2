"""Lets only those in who have the key, and keeps web pages out."""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from rdchat.server.interfaces.api_error import ApiError
from rdchat.server.settings import ServerSettings

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Guard:
    """Checks where a request comes from and its key.

    A web page may send requests to this machine. Its browser names it in `Origin`, or, after DNS rebinding, the page's
    own name in `Host`.

    Args:
        settings: The server's.
        port: The port that it listens on.
    """

    def __init__(self, settings: ServerSettings, port: int) -> None:
        self._key = _digest(settings.key)
        self._port = port
        names = {*_LOOPBACK_NAMES, settings.host.lower()}
        self._is_local = is_loopback(settings.host)
        if not self._is_local:
            own = socket.gethostname().lower()
            names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}
        self._names = names
        self.partition = f"server-{self._key.hex()[:16]}"  # of KV caches: they are never shared between keys

    def check(self, headers: Headers) -> None:
        """Raise ApiError for a request that may not come in."""
        self._check_host(headers.getlist("host"))
        if not all(map(self._is_own, headers.getlist("origin"))):
            raise ApiError(403, "Web pages may not use this server.")
        given = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        if not hmac.compare_digest(_digest(given), self._key):
            message = "The key is wrong." if given else "The key is missing."
            raise ApiError(
                401,
                f"{message} rdchat's Settings show it, and `rdchat serve` says where it is.",
                code="invalid_api_key",
            )

    def _check_host(self, hosts: Iterable[str]) -> None:
        listed = list(hosts)
        if len(listed) != 1 or not self._knows(listed[0]):
            raise ApiError(403, "The Host header names another machine.")

    def _knows(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname, parts.port
        except ValueError:
            return False
        if name is None or (port or 80) != self._port or parts.netloc != host or "@" in host:
            return False
        return name in self._names or (not self._is_local and _is_address(name))

    def _is_own(self, origin: str) -> bool:
        scheme, separator, host = origin.partition("://")
        return scheme == "http" and separator != "" and self._knows(host)


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen on lets in this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    """Tell whether a host is an address: DNS rebinding needs a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _digest(key: str) -> bytes:
    """Return a hash of a key: hashes have one length, so comparing them tells nothing about the key's."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
