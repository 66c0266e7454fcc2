"""SHA-256 of large files, kept in the cache folder."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from rdchat import paths
from rdchat.files.atomic_file import write_cache_file

_CHUNK_BYTES = 16 * 2**20


def sha256_of(file: Path, on_progress: Callable[[float], None]) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    It is kept in the cache folder, and read from there as long as the file has the same place, size and change time.

    Args:
        file: The file.
        on_progress: Called with the part that is read, from 0 to 1; an exception from it ends the work.

    Raises:
        OSError: If the file cannot be read.
    """
    status = file.stat()
    state = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
    note = paths.cache_dir() / "digests" / hashlib.sha256(str(file.resolve()).encode("utf-8", "replace")).hexdigest()
    noted_state, _, digest = _read(note).rpartition(" ")
    if noted_state == state:
        return digest
    digest = _compute(file, status.st_size, on_progress)
    write_cache_file(note, f"{state} {digest}")
    return digest


def _compute(file: Path, size: int, on_progress: Callable[[float], None]) -> str:
    sha256, done = hashlib.sha256(), 0
    on_progress(0.0)
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            sha256.update(chunk)
            done += len(chunk)
            on_progress(min(done / max(size, 1), 1.0))
    return sha256.hexdigest()


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
