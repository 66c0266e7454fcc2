"""Copies of stored images as files, for the engine, which reads files. They are as private as the store."""

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rdchat.errors import file_errors
from rdchat.files.privacy import private_folder


class ImageFolder:
    """The folder beside a store's file. It is emptied when the store is opened and closed; any thread may use it.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-images")

    def path_of(self, digest: str, read: Callable[[], bytes]) -> Path:
        """Return the file of an image; `read` returns its data, if it is not there yet. Raises StorageError."""
        path = self._folder / _name_of(digest)
        if not path.exists():
            with file_errors(f"{self._folder} cannot be written", "Check its disk and permissions."):
                temporary = private_folder(self._folder) / secrets.token_hex(8)
                temporary.touch(0o600)
                temporary.write_bytes(read())
                temporary.replace(path)
        return path

    def keep_only(self, digests: Iterable[str]) -> None:
        """Delete the files of all other images."""
        kept = set(map(_name_of, digests))
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.name not in kept:
                    path.unlink()

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _name_of(digest: str) -> str:
    # A digest from a file that was made by hand may be any text.
    return hashlib.sha256(digest.encode("utf-8", "replace")).hexdigest()
