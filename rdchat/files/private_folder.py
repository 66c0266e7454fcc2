"""Temporary folders with something of a person; the next start removes those of a process that was killed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rdchat.errors import StorageError
from rdchat.files.atomic_file import FileLock

_PREFIX = "rdchat-private-"
_LOCK = "lock"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Give a folder that only this user can enter, and that ends with the block."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        new = folder / "new"
        with FileLock(new):
            # It is held before `remove_abandoned` can find it.
            new.rename(folder / _LOCK)
            yield folder


def remove_abandoned() -> None:
    """Remove the private folders whose processes have ended."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(StorageError), FileLock(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)
