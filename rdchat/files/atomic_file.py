"""Files that appear whole or not at all, and lists of lines that lose at most their last one."""

import json
import logging
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rdchat.errors import StorageError, StorageFullError
from rdchat.files.file_errors import file_error
from rdchat.host import flush_to_disk

_LOG = logging.getLogger(__name__)
_SAFE = "What was saved before is safe."
_HINT = f"Check the folder and its disk. {_SAFE}"
_FULL_BYTES = 1 << 20  # MLX does not say why it could not write: a disk with less is full


def temporary_of(path: Path) -> Path:
    """Return where `atomic_file` has a file written first."""
    return path.with_name(f"part-{path.name}")


@contextmanager
def atomic_file(path: Path, problem: str | None = None) -> Iterator[Path]:
    """Give a file to write; after the block it takes the place of `path`, at once, and only when it is on the disk.

    A crash or a power loss at any moment leaves the old file or the new one, and perhaps a temporary file beside it.

    Args:
        path: The file.
        problem: What to say where it cannot be written, without a full stop; None names the file.

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
        if isinstance(error, RuntimeError):  # MLX's word for all that goes wrong in writing
            raise _mlx_error(error, path) from error
        raise


def _mlx_error(error: RuntimeError, path: Path) -> StorageError:
    with suppress(OSError):
        if shutil.disk_usage(path.parent).free < _FULL_BYTES:
            return StorageFullError(f"{path} cannot be written: the disk is full.", f"Free some space. {_SAFE}")
    return StorageError(f"{path} cannot be written: {error}.", _HINT)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file whole; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(data), encoding="utf-8")


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


def make_folder(path: Path) -> None:
    """Make a folder where there is none.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, f"The folder {path} cannot be made", "Check the folder above it.") from error


class JsonLines:
    """A file of JSON objects, a line each, that grows at its end; a line that a crash cut short is dropped.

    Args:
        path: Made where it is not there.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists() and not path.is_file():
            raise StorageError(f"{path} cannot be written: it is no file.", "Name another one.")
        with self._in_words():
            self._file = path.open("a+b")
            self._file.seek(0)
            whole, end, _ = self._file.read().rpartition(b"\n")
            self._file.truncate(len(whole + end))

    def read(self) -> list[dict[str, Any]]:
        """Return what it holds; lines that are no JSON objects are left out."""
        with self._in_words():
            self._file.seek(0)
            return [item for line in self._file if isinstance(item := _parsed(line), dict)]

    def append(self, item: dict[str, Any]) -> None:
        """Add a line; it outlasts this process as soon as this returns."""
        with self._in_words():
            self._file.write(json.dumps(item).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Let go of the file; what could not be written was told before."""
        with suppress(OSError):
            self._file.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_error(error, f"{self._path} cannot be written", _HINT) from error


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
