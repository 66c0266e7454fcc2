"""The hub, huggingface.co or the mirror in `HF_ENDPOINT`: addresses, token, proxy and limits."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from rdchat.errors import InvalidSettingError, NetworkError

DEFAULT_ENDPOINT = "https://huggingface.co"
_TOKEN = re.compile(r"[\x21-\x7e]{1,500}")
_YES = {"1", "ON", "YES", "TRUE"}  # as in huggingface_hub


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one request to the hub."""

    seconds: float = 60.0  # for the whole request, with all redirects
    bytes: int = 2**24  # of one answer, as received and as unpacked
    values: int = 250_000  # in one answer's JSON, by its commas and brackets; each takes 100 bytes of memory or more


class TokenSource(StrEnum):
    """Where a token was found, in order of precedence."""

    ENVIRONMENT = "environment"  # `HF_TOKEN`
    HUB_FILE = "hub file"  # written by the hub's own tools
    KEYCHAIN = "keychain"
    THIS_RUN = "this run"  # given without a keychain: kept until the app quits


class Token:
    """A token that no log, message or traceback shows."""

    __slots__ = ("_text", "source")

    def __init__(self, text: str, source: TokenSource = TokenSource.THIS_RUN) -> None:
        if not _TOKEN.fullmatch(text):
            raise InvalidSettingError("This is not a token: it contains spaces or other characters.", "Copy it again.")
        self._text, self.source = text, source

    def __repr__(self) -> str:
        return "Token(...)"

    def reveal(self) -> str:
        """Return the token's text, for a request's header."""
        return self._text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A hub, and the person's token for it."""

    url: str  # without a slash at the end
    token: Token | None = None  # sent to the hub's own host only; None without one

    @property
    def host(self) -> str:
        """The host, with the port if it is given. Only this host gets the token."""
        return urlsplit(self.url).netloc.lower()

    @property
    def token_key(self) -> str:
        """The key of its token. It differs for HTTP, so that a token for HTTPS is never sent over HTTP."""
        return self.host if self.url.startswith("https:") else f"http://{self.host}"

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

    def header_for(self, url: str) -> dict[str, str]:
        """Return the header with the token for an address; empty for hosts other than the hub's."""
        return {"Authorization": f"Bearer {self.token.reveal()}"} if self.token and self.owns(url) else {}

    def owns(self, url: str) -> bool:
        """Return whether an address has this hub's scheme, host and port."""
        ours, theirs = urlsplit(self.url), urlsplit(url)
        return (ours.scheme, ours.netloc.lower()) == (theirs.scheme, theirs.netloc.lower())


def find_endpoint() -> Endpoint:
    """Return the hub named in the environment.

    Raises:
        InvalidSettingError: If `HF_ENDPOINT` is not an address.
    """
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    try:
        parts = urlsplit(url)
        named = parts.hostname if parts.port != 0 else None  # both may raise
    except ValueError:
        named = None
    if not named or parts.scheme not in {"http", "https"} or parts.username or parts.query or parts.fragment:
        raise InvalidSettingError(
            f"HF_ENDPOINT is not a web address: {url[:200]}.", f"Give one such as {DEFAULT_ENDPOINT}."
        )
    return Endpoint(url)


def check_online() -> None:
    """Raise NetworkError if the environment forbids requests to the hub."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in _YES:
            raise NetworkError(f"rdchat is offline because {name} is set.", f"Unset {name} to go online.")


def proxy_of(endpoint: Endpoint) -> str:
    """Return the proxy for the hub, host and port without name and password; empty without one.

    The environment or the system's settings name it. Not yet tried on a Mac.
    """
    parts, proxies = urlsplit(endpoint.url), getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not address or proxy_bypass(parts.netloc):
        return ""
    return urlsplit(address if "//" in address else f"//{address}").netloc.rpartition("@")[2]
