"""Writes files and folders where the person chose to; what a killed process left there goes at the next start.

They are made in a folder of a random name beside them. A note in rdchat's own folder names it before it is made, and is
locked as long as the process lives: so nothing else is ever removed.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rdchat import paths
from rdchat.errors import StorageError, file_errors
from rdchat.files.atomic_file import PARTIAL, FileLock, atomic_file, flush_to_disk

_NOTES = "unfinished"


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Give a new folder beside a path, for what is moved there once it is complete; the rest goes with the block.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be made.
    """
    folder = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    with ExitStack() as stack:
        # A full disk of rdchat's own keeps nobody from a backup to another one.
        with suppress(OSError, StorageError):
            stack.enter_context(_noted(folder))
        with file_errors(f"{path} cannot be written", "Choose another folder."):
            folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _noted(folder: Path) -> Iterator[None]:
    notes = paths.data_dir() / _NOTES
    notes.mkdir(parents=True, exist_ok=True)
    note = notes / folder.name
    with FileLock(note):
        note.write_bytes(os.fsencode(folder.absolute()))
        flush_to_disk(note)
        flush_to_disk(notes)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def chosen_file(path: Path) -> Iterator[Path]:
    """Give a path in a `folder_beside` the file; see `atomic_file`. Other files may be made beside it meanwhile."""
    with folder_beside(path) as folder, atomic_file(path, temporary=folder / "new") as temporary:
        yield temporary


def remove_unfinished() -> None:
    """Remove what killed processes left beside chosen files; on a disk that is not there now, at a later start."""
    for note in (paths.data_dir() / _NOTES).glob(f"{PARTIAL}*"):
        with suppress(OSError, StorageError), FileLock(note):
            folder = Path(os.fsdecode(note.read_bytes()))
            # A note that was not written whole names nothing: it comes before the folder.
            if folder.name == note.name and not folder.parent.is_dir():
                continue
            if folder.name == note.name and folder.exists():
                shutil.rmtree(folder)
            note.unlink()
