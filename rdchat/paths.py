"""The folders of rdchat's files. `RDCHAT_DATA_DIR` and `RDCHAT_CACHE_DIR` move them.

Each function raises `InvalidSettingError` where such a variable cannot be a path.
"""

import os
from pathlib import Path

import platformdirs

from rdchat.errors import InvalidSettingError

DATA_VARIABLE = "RDCHAT_DATA_DIR"
CACHE_VARIABLE = "RDCHAT_CACHE_DIR"


def data_dir() -> Path:
    """Return the folder for data that must not be lost: chats and settings."""
    return _folder(DATA_VARIABLE, platformdirs.user_data_path("rdchat", appauthor=False))


def cache_dir() -> Path:
    """Return the folder for data that can be made again: converted models, measurements, training data."""
    return _folder(CACHE_VARIABLE, platformdirs.user_cache_path("rdchat", appauthor=False))


def models_dir() -> Path:
    return cache_dir() / "models"


def kernels_dir() -> Path:
    """Return the folder for the kernels that MLX compiles for the CPU."""
    return cache_dir() / "kernels"


def chat_caches_dir() -> Path:
    """Return the folder for the KV caches of chats."""
    return cache_dir() / "chats"


def drafters_dir() -> Path:
    """Return the folder of the drafters trained or put together here."""
    return data_dir() / "drafters"


def towers_dir() -> Path:
    """Return the folder of the vision towers that were fetched for models without one."""
    return data_dir() / "towers"


def default_model_dir() -> Path:
    return models_dir() / "smollm2-135m-instruct"


def database_path() -> Path:
    return data_dir() / "conversations.db"


def settings_path() -> Path:
    return data_dir() / "settings.json"


def server_key_path() -> Path:
    """Return the file of the server's key on a machine without a keychain."""
    return data_dir() / "server-key"


def server_certificate_path() -> Path:
    """Return the file of the server's self-signed certificate and its key."""
    return data_dir() / "server-certificate.pem"


def log_path() -> Path:
    return data_dir() / "logs" / "rdchat.log"


def expanded(name: str, what: str) -> Path:
    """Return the path that a person gave, with `~` and `~user` replaced by home folders.

    Args:
        name: The given path.
        what: What it is, which begins the message: "The drafter".

    Raises:
        InvalidSettingError: If it begins with an unknown user's name.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        home = name.split("/", maxsplit=1)[0]
        raise InvalidSettingError(
            f"{what} cannot be {name[:200]}: there is no home folder {home[:100]}.", "Give the full path."
        ) from error


def is_utf8(path: Path) -> bool:
    """Return whether a path is UTF-8 text. On Linux it can be any bytes, but MLX opens UTF-8 paths only."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _folder(variable: str, default: Path) -> Path:
    """Return the folder that a variable names, or the default one."""
    named = os.environ.get(variable)
    folder = expanded(named, variable).absolute() if named else default
    if not is_utf8(folder):
        raise InvalidSettingError(
            f"rdchat cannot keep files in {str(folder)[:200]}: the path is not UTF-8 text.",
            f"Set {variable} to another folder.",
        )
    return folder
