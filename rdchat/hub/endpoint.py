"""The hub, huggingface.co or the mirror in `HF_ENDPOINT`: its addresses, the person's token for it, and its refusals.

It is used by all of `hub`, and by the window and the commands for tokens; it makes no request itself.

`HF_TOKEN` and the hub's own token file belong to huggingface.co. A mirror gets them only if `RDCHAT_HUB_TOKEN_HOST`
names its host; a token given for a mirror's host is sent to that host only. Other tokens are in the system's keychain.
A refusal is an error with a remedy for the terminal, and another one for the window.
"""

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from rdchat.errors import InvalidSettingError, NetworkError, RdchatError
from rdchat.files import opened
from rdchat.keychain import FAILED, HUB_ACCESS, ask_keychain
from rdchat.web_address import is_server_address

DEFAULT_ENDPOINT = "https://huggingface.co"
# The text of a token: visible ASCII.
_TOKEN = re.compile(r"[\x21-\x7e]{1,500}")
# Values that switch a variable on; the same as in huggingface_hub.
_YES = {"1", "ON", "YES", "TRUE"}
# The longest wait before a retry, if the hub asks for one.
LONGEST_WAIT_S = 600.0
# Seconds until the limit is lifted, in the header `RateLimit`.
_RATE_LIMIT_RESET = re.compile(r"\bt=(\d{1,6})\b")

HOST_VARIABLE = "RDCHAT_HUB_TOKEN_HOST"


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one request to the hub.

    Attributes:
        seconds: Time for the whole request, with all redirects.
        bytes: Size of one answer, as received and as unpacked.
        values: Values in one answer's JSON, by its commas and brackets; each takes 100 bytes of memory or more.
    """

    seconds: float = 60.0
    bytes: int = 2**24
    values: int = 250_000


class TokenSource(StrEnum):
    """Where a token was found, in order of precedence.

    Attributes:
        ENVIRONMENT: `HF_TOKEN`.
        HUB_FILE: Written by the hub's own tools.
        THIS_RUN: Given without a keychain: kept until the app quits.
    """

    ENVIRONMENT = "environment"
    HUB_FILE = "hub file"
    KEYCHAIN = "keychain"
    THIS_RUN = "this run"


class Token:
    """A token, whose text no log, message or traceback shows. It is no dataclass: `asdict` would copy the text.

    Attributes:
        text: The token itself.
        source: Where it was found.
    """

    __slots__ = ("source", "text")

    def __init__(self, text: str, source: TokenSource = TokenSource.THIS_RUN) -> None:
        if not _TOKEN.fullmatch(text):
            raise InvalidSettingError("This is not a token: it contains spaces or other characters.", "Copy it again.")
        self.text = text
        self.source = source

    def __repr__(self) -> str:
        return "Token(...)"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A hub, and the person's token for it.

    Attributes:
        url: The address, without a slash at the end.
        token: The person's token, sent to the hub's own host only; None without one.
    """

    url: str
    token: Token | None = None

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
        return {"Authorization": f"Bearer {self.token.text}"} if self.token and self.owns(url) else {}

    def owns(self, url: str) -> bool:
        """Return whether an address has this hub's scheme, host and port."""
        ours = urlsplit(self.url)
        theirs = urlsplit(url)
        return (ours.scheme, ours.netloc.lower()) == (theirs.scheme, theirs.netloc.lower())


def find_endpoint() -> Endpoint:
    """Return the hub named in the environment.

    Raises:
        InvalidSettingError: If `HF_ENDPOINT` is not an address.
    """
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not is_server_address(url):
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
    parts = urlsplit(endpoint.url)
    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not address or proxy_bypass(parts.netloc):
        return ""
    return urlsplit(address if "//" in address else f"//{address}").netloc.rpartition("@")[2]


class Tokens:
    """Finds tokens; those given without a keychain are kept until the app quits.

    A keychain may ask the person before it answers, so it is asked once for each host, and other calls wait meanwhile.
    Do not call this on a thread that must not wait.
    """

    def __init__(self) -> None:
        # The tokens from the person and from the keychain, by `Endpoint.token_key`.
        self._known: dict[str, Token] = {}
        self._asking = threading.Lock()

    def access(self, endpoint: Endpoint) -> Endpoint:
        """Return a hub with the token for it, if there is one."""
        return replace(endpoint, token=self.find_token(endpoint))

    def find_token(self, endpoint: Endpoint, again: bool = False) -> Token | None:
        """Return the token for a hub: that of the environment, else of the hub's file, else of keychain or person.

        A mirror gets the first two only if `RDCHAT_HUB_TOKEN_HOST` names it.

        Args:
            endpoint: The hub.
            again: Whether to ask the keychain again, since another program may have changed it.

        Raises:
            InvalidSettingError: If the environment or the hub's file has an invalid token.
        """
        if not endpoint.is_mirror or os.environ.get(HOST_VARIABLE, "").lower() == endpoint.host:
            if text := (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_ACCESS") or "").strip():
                return Token(text, TokenSource.ENVIRONMENT)
            if text := _from_file().strip():
                return Token(text, TokenSource.HUB_FILE)
        name = endpoint.token_key
        with self._asking:
            known = self._known.get(name)
            if known is None or (again and known.source is TokenSource.KEYCHAIN):
                self._known.pop(name, None)
                stored = ask_keychain(HUB_ACCESS, "get_password", name)
                if isinstance(stored, str):
                    with suppress(InvalidSettingError):
                        self._known[name] = Token(stored, TokenSource.KEYCHAIN)
            return self._known.get(name)

    def remember(self, token: Token, endpoint: Endpoint) -> bool:
        """Store a token for a hub's host; True if the keychain has it, False if it is kept until the app quits."""
        name = endpoint.token_key
        with self._asking:
            stored = ask_keychain(HUB_ACCESS, "set_password", name, token.text) is not FAILED
            self._known[name] = Token(token.text, TokenSource.KEYCHAIN if stored else TokenSource.THIS_RUN)
        return stored

    def forget_token(self, endpoint: Endpoint) -> bool:
        """Forget the token for a hub's host; True if there was one."""
        name = endpoint.token_key
        with self._asking:
            known = self._known.pop(name, None)
            deleted = ask_keychain(HUB_ACCESS, "delete_password", name) is not FAILED
        return deleted or (known is not None and known.source is TokenSource.THIS_RUN)


def hub_path(named: str | None, in_home: str) -> Path:
    """Return a path of the hub's own tools.

    Args:
        named: The path, as an environment variable gives it; None or empty without one.
        in_home: Its usual path inside the home of these tools.
    """
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    path = os.path.expandvars(named or f"{home}/{in_home}")
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib raises for unknown users


def hub_token_file() -> Path:
    """Return the token file of the hub's own tools."""
    return hub_path(os.environ.get("HF_TOKEN_PATH"), "token")


def _from_file() -> str:
    """Return the token in the file of the hub's own tools; empty if there is none."""
    try:
        with opened(hub_token_file()) as file:
            return file.read(1000).decode("ascii")
    except (OSError, ValueError):
        return ""


class HubError(NetworkError):
    """The hub refuses, or cannot be reached.

    Attributes:
        page: The model's page, if its terms must be accepted there.
        wants_token: Whether a token may help.
    """

    page = ""
    wants_token = False


class MissingError(HubError):
    """The hub does not have this model, revision or file."""


class Lack(StrEnum):
    """The reason why the hub refuses access.

    Attributes:
        AGREEMENT: The model's authors have not given this account access.
    """

    TOKEN = "token"  # noqa: S105  none was sent; the hub does not say whether the model exists or is gated
    GOOD_TOKEN = "good token"  # noqa: S105  the one that was sent is expired or wrong
    AGREEMENT = "agreement"


class AccessRefusedError(HubError):
    """The hub refuses access: a token or the authors' agreement is missing.

    Attributes:
        lack: What is missing.
        page: The model's page.
    """

    def __init__(self, message: str, hint: str, lack: Lack, page: str) -> None:
        super().__init__(message, hint)
        self.lack = lack
        self.page = page
        self.wants_token = lack is not Lack.AGREEMENT


class TemporaryHubError(HubError):
    """The hub does not answer now; a later try may work.

    Attributes:
        wait_s: Seconds until the hub may be asked again; None if it does not say.
    """

    def __init__(self, message: str, hint: str = "", wait_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_s = wait_s


def refusal(
    status: int,
    headers: Mapping[str, str],
    endpoint: Endpoint,
    repository: str,
    revision: str = "main",
) -> HubError:
    """Return the error for an answer with another status than 200.

    Args:
        status: HTTP status.
        headers: Headers of the answer, looked up in lower case.
        endpoint: The hub, and whether a token was sent.
        repository: The requested model; empty for a search.
        revision: Its branch, tag or commit.
    """
    page = endpoint.page(repository)
    code = headers.get("x-error-code", "")
    if status in {429, 408} or status >= 500:
        text = {429: "receives too many requests", 408: "took too long"}.get(status, f"has a problem ({status})")
        wait = wait_of(headers)
        when = wait_text(wait) if wait and wait > LONGEST_WAIT_S else "in a few minutes"
        return TemporaryHubError(f"Hugging Face {text}.", f"Try again {when}.", wait)
    is_gated = code == "GatedRepo" or status == 403
    if is_gated or status == 401:
        return _access_refused(endpoint, repository, is_gated)
    if code == "RevisionNotFound":
        return MissingError(f"{repository} has no revision {revision}.", f"See {page}/tree/main for its revisions.")
    if status == 404:
        hint = f"Check the name at {endpoint.url}/models."
        return MissingError(f"{repository} is not on Hugging Face, or no longer.", hint)
    return HubError(f"Hugging Face refused the request (status {status}).", f"Check whether {page} opens in a browser.")


def _access_refused(endpoint: Endpoint, repository: str, is_gated: bool) -> AccessRefusedError:
    page = endpoint.page(repository)
    token_page = endpoint.token_page
    make_token = f"Then create a token at {token_page} and run `rdchat models token`."
    if is_gated:
        lack = Lack.TOKEN if endpoint.token is None else Lack.AGREEMENT
        message = f"{repository} is gated: you need access from its authors."
        then = make_token if endpoint.token is None else "Then try again."
        hint = f'Open {page}, sign in and click "Agree and access repository". {then}'
    elif endpoint.token is not None:
        lack = Lack.GOOD_TOKEN
        message = "Hugging Face does not accept your token."
        hint = f"It may have expired. Create a new one at {token_page} and run `rdchat models token`."
    else:
        lack = Lack.TOKEN
        message = f"{repository or 'This'} is private or no longer on Hugging Face."
        hint = f"Check the name. If it is private or gated, sign in at {page} and accept its conditions. {make_token}"
    return AccessRefusedError(message, hint, lack, page)


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds from `Retry-After` or the hub's `RateLimit`; None without either."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    reset = _RATE_LIMIT_RESET.search(headers.get("ratelimit", ""))
    return float(reset[1]) if reset else None


def wait_text(seconds: float) -> str:
    """Return when to try again: in minutes or hours, or just later if the wait is too long."""
    if seconds <= 2 * 3600:
        return f"in {max(1, round(seconds / 60))} minutes"
    return f"in {seconds / 3600:.0f} hours" if seconds <= 2 * 86_400 else "later"


WINDOW_HINTS = {
    Lack.TOKEN: (
        "If it is private or gated, sign in on its web page and click “Agree and access repository” if asked. "
        "Then enter your token here."
    ),
    Lack.GOOD_TOKEN: "It may have expired. Create a new one and enter it here.",
    Lack.AGREEMENT: (
        "On its web page, click “Agree and access repository” with the account of your token. Try again when its "
        "authors have agreed. A fine-grained token must also allow gated repositories."
    ),
}
"""The remedy for a refusal, in the window, which has buttons for the page and the token."""


def for_window(error: RdchatError) -> HubError:
    """Return an error with its hint for the window."""
    if isinstance(error, AccessRefusedError):
        return AccessRefusedError(error.message, WINDOW_HINTS[error.lack], error.lack, error.page)
    return HubError(error.message, error.hint)
