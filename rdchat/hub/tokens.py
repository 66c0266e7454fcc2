"""Finds the person's hub token, and stores it in the system's keychain.

`HF_TOKEN` and the hub's own token file belong to huggingface.co. A mirror gets them only if `RDCHAT_HUB_TOKEN_HOST`
names its host; a token given for a mirror's host is sent to that host only.
"""

import logging
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.hub.endpoint import Endpoint, Token, TokenSource

HOST_VARIABLE = "RDCHAT_HUB_TOKEN_HOST"
_SERVICE = "rdchat: Hugging Face token"
_LEAST_PRIORITY = 1  # of keyring's backends: those below store tokens in plain text, or nowhere
_LOG = logging.getLogger(__name__)


class Tokens:
    """Finds tokens; those given without a keychain are kept until the app quits.

    A keychain may ask the person before it answers, so it is asked once for each host, and other calls wait meanwhile.
    Do not call this on a thread that must not wait.
    """

    def __init__(self) -> None:
        self._known: dict[str, Token] = {}  # by `Endpoint.token_key`: given, or from the keychain
        self._asking = threading.Lock()

    def access(self, endpoint: Endpoint) -> Endpoint:
        """Return a hub with the token for it, if there is one."""
        return replace(endpoint, token=self.found(endpoint))

    def found(self, endpoint: Endpoint, again: bool = False) -> Token | None:
        """Return the token for a hub.

        Args:
            endpoint: The hub.
            again: Whether to ask the keychain again, since another program may have changed it.

        Raises:
            InvalidSettingError: If the environment or the hub's file has an invalid token.
        """
        if not endpoint.is_mirror or os.environ.get(HOST_VARIABLE, "").lower() == endpoint.host:
            text = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
            if text.strip():
                return Token(text.strip(), TokenSource.ENVIRONMENT)
            if text := _from_file().strip():
                return Token(text, TokenSource.HUB_FILE)
        name = endpoint.token_key
        with self._asking:
            known = self._known.get(name)
            if known is None or (again and known.source is TokenSource.KEYCHAIN):
                self._known.pop(name, None)
                kept = _ask_keychain("get_password", name)
                if isinstance(kept, str):
                    with suppress(InvalidSettingError):
                        self._known[name] = Token(kept, TokenSource.KEYCHAIN)
            return self._known.get(name)

    def remember(self, token: Token, endpoint: Endpoint) -> bool:
        """Store a token for a hub's host; True if the keychain has it, False if it is kept until the app quits."""
        name = endpoint.token_key
        with self._asking:
            kept = _ask_keychain("set_password", name, token.reveal()) is not _FAILED
            self._known[name] = Token(token.reveal(), TokenSource.KEYCHAIN if kept else TokenSource.THIS_RUN)
        return kept

    def forget(self, endpoint: Endpoint) -> bool:
        """Forget the token for a hub's host; True if there was one."""
        name = endpoint.token_key
        with self._asking:
            known = self._known.pop(name, None)
            gone = _ask_keychain("delete_password", name) is not _FAILED
        return gone or (known is not None and known.source is TokenSource.THIS_RUN)


def hub_token_file() -> Path:
    """Return the token file of the hub's own tools."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    path = os.path.expandvars(os.environ.get("HF_TOKEN_PATH") or f"{home}/token")
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib raises for unknown users


_FAILED = object()


def _ask_keychain(method: str, *arguments: str) -> Any:
    """Call a method of the system's keychain; `_FAILED` if it is missing or refuses. Not yet tried on a Mac."""
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
        # The error's text might contain the token.
        _LOG.warning("The keychain cannot be used: %s", type(error).__name__)
        return _FAILED


def _from_file() -> str:
    """Return the token in the file of the hub's own tools; empty if there is none."""
    try:
        with hub_token_file().open(encoding="ascii") as file:
            return file.read(1000)
    except (OSError, ValueError):
        return ""
