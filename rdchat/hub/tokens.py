"""The person's token of the hub: found, kept in the system's keychain, shown to nobody.

`HF_TOKEN` and the hub's own token file are huggingface.co's. A mirror is sent them only where `RDCHAT_HUB_TOKEN_HOST`
names its host; a token that was given for a mirror's host is that host's alone.
"""

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.hub.endpoint import Endpoint

HOST_VARIABLE = "RDCHAT_HUB_TOKEN_HOST"
_SERVICE = "rdchat: Hugging Face token"
_LEAST_PRIORITY = 1  # of keyring's backends: those below keep it in plain text, or nowhere
_TOKEN = re.compile(r"[\x21-\x7e]{1,500}")
_LOG = logging.getLogger(__name__)


class Token:
    """A token that no log, message or traceback shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not _TOKEN.fullmatch(text):
            raise InvalidSettingError("That is no token: it has spaces or other letters in it.", "Copy it once more.")
        self._text = text

    def __repr__(self) -> str:
        return "Token(...)"

    def reveal(self) -> str:
        """Return the token itself, for a request's header."""
        return self._text


@dataclass(frozen=True, slots=True)
class HubAccess:
    """Whom to ask, and as whom.

    Attributes:
        endpoint: The hub.
        token: The person's token, sent to the hub's own host only; None where there is none for it.
    """

    endpoint: Endpoint
    token: Token | None = None

    def header_for(self, url: str) -> dict[str, str]:
        """Return the header that tells an address who asks; empty for any host but the hub's."""
        return {"Authorization": f"Bearer {self.token.reveal()}"} if self.token and self.endpoint.owns(url) else {}


class Tokens:
    """Where tokens are looked for, and those that were given while there is no keychain: until the app quits."""

    def __init__(self) -> None:
        self._given: dict[str, Token] = {}

    def access(self, endpoint: Endpoint) -> HubAccess:
        """Return a hub with the token for it."""
        return HubAccess(endpoint, self.find(endpoint))

    def find(self, endpoint: Endpoint) -> Token | None:
        """Return the token for a hub; None where the person has given none for its host."""
        if not endpoint.is_mirror or os.environ.get(HOST_VARIABLE, "").lower() == endpoint.host:
            text = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or _from_file()
            if text.strip():
                return Token(text.strip())
        if endpoint.host in self._given:
            return self._given[endpoint.host]
        kept = _ask_keychain("get_password", endpoint.host)
        return Token(kept) if isinstance(kept, str) and _TOKEN.fullmatch(kept) else None

    def remember(self, token: Token, endpoint: Endpoint) -> bool:
        """Keep a token for a hub's host; True if the keychain does, False if it is forgotten when the app quits."""
        self._given[endpoint.host] = token
        return _ask_keychain("set_password", endpoint.host, token.reveal()) is not _FAILED

    def forget(self, endpoint: Endpoint) -> bool:
        """Forget what was given for a hub's host; True if there was something."""
        given = self._given.pop(endpoint.host, None)
        return _ask_keychain("delete_password", endpoint.host) is not _FAILED or given is not None


_FAILED = object()


def _ask_keychain(method: str, *arguments: str) -> Any:
    """Call a method of the system's keychain; `_FAILED` where there is none, or it refuses. Not yet tried on a Mac."""
    import keyring  # noqa: PLC0415  slow to import
    import keyring.errors  # noqa: PLC0415

    try:
        backend = keyring.get_keyring()
        if backend.priority < _LEAST_PRIORITY:
            return _FAILED
        return getattr(backend, method)(_SERVICE, *arguments)
    except keyring.errors.PasswordDeleteError:
        return _FAILED
    except Exception as error:  # foreign code, over D-Bus or the keychain's own interface
        _LOG.warning("The keychain cannot be used: %s", type(error).__name__)  # its words might hold the token
        return _FAILED


def _from_file() -> str:
    """Return what the hub's own tools keep; empty where they keep nothing."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    path = os.path.expandvars(os.environ.get("HF_TOKEN_PATH") or f"{home}/token")
    try:
        with Path(os.path.expanduser(path)).open(encoding="ascii") as file:  # noqa: PTH111  pathlib raises
            return file.read(1000)
    except (OSError, ValueError):
        return ""
