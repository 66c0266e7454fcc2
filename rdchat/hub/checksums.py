"""The hub's checksums: sha256 of large files, git's sha1 of small ones. Each also is the name of the file's blob."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.files.foreign_files import opened

_CHUNK = 2**22
_SHA256_LETTERS = 64


def is_intact(path: Path, size: int, digest: str, on_bytes: Callable[[int], None] = lambda _count: None) -> bool:
    """Tell whether a file has a size and a checksum; no where it cannot be read.

    Args:
        path: The file.
        size: In bytes.
        digest: 64 letters of sha256, or 40 of git's sha1.
        on_bytes: Called with the number of bytes read since the last call; may raise to give up.
    """
    try:
        if path.stat().st_size != size:
            return False
    except OSError:
        return False
    return checksum(path, len(digest), on_bytes) == digest


def checksum(path: Path, letters: int, on_bytes: Callable[[int], None] = lambda _count: None) -> str:
    """Return a file's checksum; empty where it cannot be read.

    Args:
        path: The file.
        letters: How many it has: 64 of sha256, or 40 of git's sha1.
        on_bytes: Called with the number of bytes read since the last call; may raise to give up.
    """
    try:
        if letters == _SHA256_LETTERS:
            state = hashlib.sha256()
        else:  # git's name of a blob
            state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        with opened(path) as file:
            while chunk := file.read(_CHUNK):
                state.update(chunk)
                on_bytes(len(chunk))
    except (OSError, ModelError):
        return ""
    return state.hexdigest()
