"""The keys that remote servers want, in the system's keychain or in the environment."""

import os
import re

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.api import RemoteServer
from rdchat.keychain import FAILED, REMOTE_KEY, ask_keychain

_KEY = re.compile(r"[\x21-\x7e]{1,500}")
# Keys by address, until rdchat quits: without a keychain they are here only.
_KEYS: dict[str, str] = {}


def key_of(server: RemoteServer) -> str:
    """Return the key for a server's address; empty without one. The keychain may ask the person first.

    The environment variable counts first, then a key that was read or given before, then the keychain.
    """
    if given := os.environ.get(server.key_variable) or _KEYS.get(server.address):
        return given
    stored = ask_keychain(REMOTE_KEY, "get_password", server.address)
    # Remembered, because the keychain may ask the person each time.
    _KEYS[server.address] = stored if isinstance(stored, str) else ""
    return _KEYS[server.address]


def store_key(server: RemoteServer, key: str, *, until_quit: bool = True) -> None:
    """Store the key for a server's address in the keychain, or remove it if it is empty.

    Args:
        server: The server.
        key: The key.
        until_quit: Whether to keep it in memory where there is no keychain.

    Raises:
        InvalidSettingError: If it cannot be a key.
        StorageError: If there is no keychain, and it is not kept in memory.
    """
    if key and not _KEY.fullmatch(key):
        raise InvalidSettingError("This is not a key: it contains spaces or other characters.", "Copy it again.")
    # `key_of` reads the keychain anew.
    _KEYS.pop(server.address, None)
    if not key:
        ask_keychain(REMOTE_KEY, "delete_password", server.address)
        return
    if ask_keychain(REMOTE_KEY, "set_password", server.address, key) is FAILED:
        if not until_quit:
            hint = f"Set {server.key_variable} to the key instead."
            raise StorageError("This computer has no keychain for the key.", hint)
        _KEYS[server.address] = key
