"""Reads the app's settings without changing the file, whatever state it is in."""

import json
from contextlib import suppress
from typing import Any

from rdchat import paths
from rdchat.chat.plain_data import from_plain
from rdchat.chat.settings import Settings


def stored_settings() -> Settings:
    """Return the settings of the file; those that it lacks or has wrong have their default."""
    data: Any = None
    with suppress(OSError, ValueError, RecursionError):
        data = json.loads(paths.settings_path().read_bytes())
    return from_plain(Settings(), data)[0] if isinstance(data, dict) else Settings()
