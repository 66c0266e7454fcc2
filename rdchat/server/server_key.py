"""The key that every request to the server must have: made at first use, kept in the keychain or in a private file."""

import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from rdchat import paths
from rdchat.errors import InvalidSettingError, StorageError, file_errors
from rdchat.files.atomic_file import atomic_file, make_folder
from rdchat.keychain import FAILED, ask_keychain

_SERVICE = "rdchat: server key"
_NAME = "server"
# Bytes of randomness.
_BYTES = 32
# Limit of a key file's bytes.
_LONGEST = 1000
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The key, and where it is stored.

    Attributes:
        location: Where the key is, for people, such as "the keychain".
    """

    text: str = field(repr=False)
    location: str


def find_key(file: Path | None = None) -> ServerKey:
    """Return the key, made if there is none yet. A keychain may ask the person first: call it where waiting is allowed.

    Args:
        file: Where a person keeps it; None is the keychain, or a file of rdchat's own without a keychain.

    Raises:
        InvalidSettingError: If other users can read the file, or it holds no key.
        StorageError: If it cannot be read or written.
    """
    if file is None:
        stored = ask_keychain(_SERVICE, "get_password", _NAME)
        if isinstance(stored, str) and stored:
            return ServerKey(stored, "the keychain")
        # There is a keychain, without the key.
        if stored is None:
            return replace_key()
        file = paths.server_key_path()
    return ServerKey(_read(file) if file.exists() else write_private(file, new_key()), str(file))


def replace_key() -> ServerKey:
    """Make a new key in place of the present one, which is of no use once the server runs with the new one.

    Raises:
        StorageError: If it cannot be written.
    """
    key = new_key()
    if ask_keychain(_SERVICE, "set_password", _NAME, key) is not FAILED:
        return ServerKey(key, "the keychain")
    # An old key would come back at the next start.
    if isinstance(ask_keychain(_SERVICE, "get_password", _NAME), str):
        raise StorageError(
            "The keychain did not store a new key for the server.", "The old key stays. Switch the server on again."
        )
    file = paths.server_key_path()
    return ServerKey(write_private(file, key), str(file))


def new_key() -> str:
    """Return a random key."""
    return f"rdchat-{secrets.token_urlsafe(_BYTES)}"


def _read(file: Path) -> str:
    problem = f"The server's key {file} cannot be read"
    with (
        file_errors(problem, "Check the path."),
        # A pipe would wait for a writer.
        open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened,
    ):
        mode = os.fstat(opened.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise InvalidSettingError(f"The server's key {file} is not a file.", "Choose another path.")
        if mode & _OTHERS:
            raise InvalidSettingError(
                f"Other users of this machine can read the server's key {file}.", f"Run: chmod 600 {file}"
            )
        key = opened.read(_LONGEST + 1).decode("ascii", "replace").strip()
    if not 8 <= len(key) <= _LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidSettingError(
            f"{file} holds no key: one line of 8 to {_LONGEST} letters and digits.", "Delete it, and rdchat makes one."
        )
    return key


def write_private(file: Path, key: str, what: str = "key") -> str:
    """Write a key, or something else with one, for this user alone, and return it. Raises StorageError."""
    make_folder(file.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with (
        atomic_file(file, f"The server's {what} {file} cannot be written") as temporary,
        os.fdopen(os.open(temporary, flags, stat.S_IRUSR | stat.S_IWUSR), "w", encoding="ascii") as opened,
    ):
        os.fchmod(opened.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        opened.write(f"{key}\n")
    return key
