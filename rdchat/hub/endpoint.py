"""Which hub is asked: huggingface.co, or the mirror that `HF_ENDPOINT` names."""

import os
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from rdchat.errors import InvalidSettingError, NetworkError

DEFAULT_ENDPOINT = "https://huggingface.co"
_YES = {"1", "ON", "YES", "TRUE"}  # huggingface_hub's words


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A hub's address.

    Attributes:
        url: Without a slash at its end.
    """

    url: str

    @property
    def host(self) -> str:
        """The host and, where it is named, the port: who may be sent the token of this hub."""
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
        """Tell whether an address is this hub's own: its scheme, its host and its port."""
        ours, theirs = urlsplit(self.url), urlsplit(url)
        return (ours.scheme, ours.netloc.lower()) == (theirs.scheme, theirs.netloc.lower())


def find_endpoint() -> Endpoint:
    """Return the hub that the environment asks for.

    Raises:
        InvalidSettingError: If `HF_ENDPOINT` is no address.
    """
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    try:
        parts = urlsplit(url)
        named = parts.hostname if parts.port != 0 else None  # which both may raise
    except ValueError:
        named = None
    if not named or parts.scheme not in {"http", "https"} or parts.username or parts.query or parts.fragment:
        raise InvalidSettingError(f"HF_ENDPOINT cannot be {url[:200]}.", f"Give an address as {DEFAULT_ENDPOINT} is.")
    return Endpoint(url)


def check_online() -> None:
    """Refuse to ask the hub where the environment says that it must not be.

    Raises:
        NetworkError: If `HF_HUB_OFFLINE` is set.
    """
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in _YES:
            raise NetworkError(f"The hub is not asked, as {name} is set.", f"Unset {name} to go online.")
