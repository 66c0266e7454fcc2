"""Finds the person's hub token, and keeps it in the system's keychain.

`HF_TOKEN` and the hub's own token file are huggingface.co's. A mirror is sent them only where `RDCHAT_HUB_TOKEN_HOST`
names its host; a token that was given for a mirror's host is that host's alone.
"""

import logging
import os
import re
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


class TokenSource(StrEnum):
    """Where a token was found, the first of these that has one."""

    ENVIRONMENT = "environment"  # `HF_TOKEN`
    HUB_FILE = "hub file"  # that the hub's own tools keep
    KEYCHAIN = "keychain"
    THIS_RUN = "this run"  # given while there is no keychain: until the app quits


@dataclass(frozen=True, slots=True)
class FoundToken:
    """A token, and where it was found."""

    token: Token
    source: TokenSource


class Tokens:
    """Where tokens are looked for, and those that were given while there is no keychain: until the app quits.

    A keychain may ask the person before it answers, and is asked once for each host; others wait meanwhile, so nobody
    asks on a thread that must not wait.
    """

    def __init__(self) -> None:
        self._known: dict[str, FoundToken] = {}  # by `_kept_as`: what was given, or what the keychain said
        self._asking = threading.Lock()

    def access(self, endpoint: Endpoint) -> HubAccess:
        """Return a hub with the token for it."""
        return HubAccess(endpoint, self.find(endpoint))

    def find(self, endpoint: Endpoint) -> Token | None:
        """Return the token for a hub; None where the person has given none for its host."""
        found = self.found(endpoint)
        return found.token if found else None

    def found(self, endpoint: Endpoint, again: bool = False) -> FoundToken | None:
        """Return the token for a hub and where it comes from.

        Args:
            endpoint: The hub.
            again: Whether the keychain is asked although it was before: another program may have changed it.

        Raises:
            InvalidSettingError: If what the environment or the hub's file holds is no token.
        """
        if not endpoint.is_mirror or os.environ.get(HOST_VARIABLE, "").lower() == endpoint.host:
            text = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
            if text.strip():
                return FoundToken(Token(text.strip()), TokenSource.ENVIRONMENT)
            if text := _from_file().strip():
                return FoundToken(Token(text), TokenSource.HUB_FILE)
        name = _kept_as(endpoint)
        with self._asking:
            known = self._known.get(name)
            if known is None or (again and known.source is TokenSource.KEYCHAIN):
                self._known.pop(name, None)
                kept = _ask_keychain("get_password", name)
                if isinstance(kept, str) and _TOKEN.fullmatch(kept):
                    self._known[name] = FoundToken(Token(kept), TokenSource.KEYCHAIN)
            return self._known.get(name)

    def remember(self, token: Token, endpoint: Endpoint) -> bool:
        """Keep a token for a hub's host; True if the keychain does, False if it is forgotten when the app quits."""
        name = _kept_as(endpoint)
        with self._asking:
            kept = _ask_keychain("set_password", name, token.reveal()) is not _FAILED
            source = TokenSource.KEYCHAIN if kept else TokenSource.THIS_RUN
            self._known[name] = FoundToken(token, source)
        return kept

    def forget(self, endpoint: Endpoint) -> bool:
        """Forget the token for a hub's host; True if there was one."""
        name = _kept_as(endpoint)
        with self._asking:
            known = self._known.pop(name, None)
            gone = _ask_keychain("delete_password", name) is not _FAILED
        return gone or (known is not None and known.source is TokenSource.THIS_RUN)


def hub_token_file() -> Path:
    """Return where the hub's own tools keep their token."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    path = os.path.expandvars(os.environ.get("HF_TOKEN_PATH") or f"{home}/token")
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib raises for unknown users


_FAILED = object()


def _kept_as(endpoint: Endpoint) -> str:
    """Return the key of a hub's token. It differs for HTTP, so that a token for HTTPS is never sent over HTTP."""
    return endpoint.host if urlsplit(endpoint.url).scheme == "https" else f"http://{endpoint.host}"


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
    """Return the token in the file of the hub's own tools; empty where there is none."""
    try:
        with hub_token_file().open(encoding="ascii") as file:
            return file.read(1000)
    except (OSError, ValueError):
        return ""
