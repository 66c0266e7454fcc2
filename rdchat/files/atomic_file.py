"""Writes files completely or not at all, and lists of lines that lose at most their last line."""

import json
import logging
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rdchat.errors import StorageError, StorageFullError, file_error, file_errors
from rdchat.files.plain_data import json_or_none
from rdchat.host import flush_to_disk

_LOG = logging.getLogger(__name__)
_SAFE = "Data saved before is safe."
_HINT = f"Check the folder and its disk. {_SAFE}"
_FULL_BYTES = 1 << 20  # MLX does not say why writing failed; a disk with less is full


def temporary_of(path: Path) -> Path:
    """Return the temporary path that `atomic_file` writes to."""
    return path.with_name(f"part-{path.name}")


@contextmanager
def atomic_file(path: Path, problem: str | None = None) -> Iterator[Path]:
    """Give a path to write to; after the block the file replaces `path` at once, when it is safely on disk.

    A crash or a power loss leaves the old file or the new one, and perhaps a temporary file beside it.

    Args:
        path: The file.
        problem: The message if it cannot be written, without a full stop; None for a standard one.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be written.
    """
    temporary = temporary_of(path)
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(path)
        flush_to_disk(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise file_error(error, problem or f"{path} cannot be written", _HINT) from error
        if isinstance(error, RuntimeError):  # MLX's type for all errors of writing
            raise _mlx_error(error, path) from error
        raise


def _mlx_error(error: RuntimeError, path: Path) -> StorageError:
    with suppress(OSError):
        if shutil.disk_usage(path.parent).free < _FULL_BYTES:
            return StorageFullError(f"{path} cannot be written: the disk is full.", f"Free some space. {_SAFE}")
    return StorageError(f"{path} cannot be written: {error}.", _HINT)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a whole JSON file; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(data), encoding="utf-8")


def write_cache_file(file: Path, text: str) -> None:
    """Write a cache file, replacing an older one at once; a failure costs only time and is logged."""
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(file)
    except OSError as error:
        _LOG.warning("%s could not be cached: %s", file.name, error)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder if it does not exist.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be created.
    """
    with file_errors(f"The folder {path} cannot be created", "Check the folder above it."):
        path.mkdir(parents=True, exist_ok=True)


class JsonLines:
    """A file of JSON objects, one a line, that grows at its end; a line cut short by a crash is dropped.

    Args:
        path: Created if it does not exist.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._problem = f"{path} cannot be written"
        if path.exists() and not path.is_file():
            raise StorageError(f"{self._problem}: it is not a file.", "Choose another one.")
        with file_errors(self._problem, _HINT):
            self._file = path.open("a+b")
            self._file.seek(0)
            lines, end, _ = self._file.read().rpartition(b"\n")
            self._file.truncate(len(lines + end))

    def read(self) -> list[dict[str, Any]]:
        """Return its objects; invalid lines are left out."""
        with file_errors(self._problem, _HINT):
            self._file.seek(0)
            return [item for line in self._file if isinstance(item := json_or_none(line), dict)]

    def append(self, item: dict[str, Any]) -> None:
        """Add a line; when this returns, it survives the end of the process."""
        with file_errors(self._problem, _HINT):
            self._file.write(json.dumps(item).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file; write errors were raised before."""
        with suppress(OSError):
            self._file.close()
