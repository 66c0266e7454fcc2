"""The hub to ask, huggingface.co or the mirror in `HF_ENDPOINT`: its addresses, the proxy on the way, and limits."""

import os
from dataclasses import dataclass
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from rdchat.errors import InvalidSettingError, NetworkError

DEFAULT_ENDPOINT = "https://huggingface.co"
_YES = {"1", "ON", "YES", "TRUE"}  # huggingface_hub's words


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one question to the hub."""

    seconds: float = 60.0  # of the whole question, with all redirects and pages
    bytes: int = 2**24  # of one answer, as it is received and again as it is unpacked
    values: int = 250_000  # of one answer's JSON, by its commas and brackets; each takes 100 bytes of memory or more
    pages: int = 20  # of a list


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A hub."""

    url: str  # without a slash at its end

    @property
    def host(self) -> str:
        """The host and, where it is named, the port. The hub's token is sent to it alone."""
        return urlsplit(self.url).netloc.lower()

    @property
    def is_mirror(self) -> bool:
        return self.url != DEFAULT_ENDPOINT

    @property
    def token_page(self) -> str:
        return f"{self.url}/settings/tokens"

    def page(self, repository: str) -> str:
        return f"{self.url}/{repository}"

    def file_url(self, repository: str, commit: str, name: str) -> str:
        return f"{self.url}/{repository}/resolve/{commit}/{quote(name)}"

    def owns(self, url: str) -> bool:
        """Tell whether an address has this hub's scheme, host and port."""
        ours, theirs = urlsplit(self.url), urlsplit(url)
        return (ours.scheme, ours.netloc.lower()) == (theirs.scheme, theirs.netloc.lower())


def find_endpoint() -> Endpoint:
    """Return the hub that the environment names.

    Raises:
        InvalidSettingError: If `HF_ENDPOINT` is no address.
    """
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    try:
        parts = urlsplit(url)
        named = parts.hostname if parts.port != 0 else None  # both may raise
    except ValueError:
        named = None
    if not named or parts.scheme not in {"http", "https"} or parts.username or parts.query or parts.fragment:
        raise InvalidSettingError(f"HF_ENDPOINT cannot be {url[:200]}.", f"Give an address as {DEFAULT_ENDPOINT} is.")
    return Endpoint(url)


def check_online() -> None:
    """Raise NetworkError if the environment forbids to ask the hub."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in _YES:
            raise NetworkError(f"The hub is not asked, as {name} is set.", f"Unset {name} to go online.")


@dataclass(frozen=True, slots=True)
class Route:
    """How connections reach the hub, for messages."""

    host: str  # the hub's
    is_mirror: bool  # whether `HF_ENDPOINT` names it
    proxy: str = ""  # host and port, without name and password; empty where there is none
    proxy_variable: str = ""  # the environment variable that names the proxy; empty where the system's settings do


def find_route(endpoint: Endpoint) -> Route:
    """Return how connections reach a hub now, by the environment and the system's settings.

    Not for the main thread: a Mac may take a moment to answer. Not yet tried on a Mac.
    """
    parts = urlsplit(endpoint.url)
    proxies = getproxies()
    scheme = next((name for name in (parts.scheme, "all") if proxies.get(name)), "")
    if not scheme or proxy_bypass(parts.netloc):
        return Route(endpoint.host, endpoint.is_mirror)
    address = proxies[scheme]
    proxy = urlsplit(address if "//" in address else f"//{address}").netloc.rpartition("@")[2]
    variable = f"{scheme}_proxy"
    named = next((name for name in (variable, variable.upper()) if os.environ.get(name)), "")
    return Route(endpoint.host, endpoint.is_mirror, proxy, named)
