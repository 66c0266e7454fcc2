"""Small files in the cache folder that keep what was found out, so that it need not be found out again."""

import logging
import secrets
from contextlib import suppress
from pathlib import Path

_LOG = logging.getLogger(__name__)


def write_cache_file(file: Path, text: str) -> None:
    """Write a file, replacing an older one at once; where that fails, only time is lost, and the log says so."""
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(file)
    except OSError as error:
        _LOG.warning("%s could not be kept: %s", file.name, error)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
