"""Where rdchat keeps its files. `RDCHAT_DATA_DIR` and `RDCHAT_CACHE_DIR` move them."""

import os
from pathlib import Path

import platformdirs


def data_dir() -> Path:
    """Return the folder of what must not be lost: conversations and settings."""
    return _folder("RDCHAT_DATA_DIR", platformdirs.user_data_path("rdchat", appauthor=False))


def cache_dir() -> Path:
    """Return the folder of what can be made again: converted models, measurements, drafter data."""
    return _folder("RDCHAT_CACHE_DIR", platformdirs.user_cache_path("rdchat", appauthor=False))


def models_dir() -> Path:
    return cache_dir() / "models"


def default_model_dir() -> Path:
    return models_dir() / "smollm2-135m-instruct"


def database_path() -> Path:
    return data_dir() / "conversations.db"


def settings_path() -> Path:
    return data_dir() / "settings.json"


def log_path() -> Path:
    return data_dir() / "logs" / "rdchat.log"


def _folder(variable: str, default: Path) -> Path:
    named = os.environ.get(variable)
    return Path(named).expanduser().absolute() if named else default
