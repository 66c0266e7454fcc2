"""Makes a folder completely or not at all: it is built under another name, with a lock, and then renamed.

A process that dies at any moment, by SIGKILL or a power cut, leaves nothing that looks like the finished folder. The
next process removes what is left, which is safe because the kernel releases the lock with the process.
"""

import fcntl
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rdchat.errors import ModelError, file_errors
from rdchat.files.foreign_files import read_json
from rdchat.host import flush_to_disk

_MANIFEST = "made_from.json"
_LOCK_POLL_S = 0.2


def is_made(folder: Path, made_from: str) -> bool:
    """Return whether the folder was made from exactly this, and still has all its files in full length."""
    try:
        manifest = read_json(folder / _MANIFEST)
        return manifest["made_from"] == made_from and all(
            (folder / name).stat().st_size == size for name, size in manifest["files"].items()
        )
    except (ModelError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def build_folder(
    folder: Path, made_from: str, build: Callable[[Path], None], on_wait: Callable[[], None], needed: str
) -> Path:
    """Make a folder unless it exists.

    Args:
        folder: Its path.
        made_from: Describes its source; a folder made from another source is made again.
        build: Fills the empty folder that it gets. An exception from it leaves nothing behind.
        on_wait: Called now and then while another process makes folders here; may raise to give up.
        needed: The free space that the person should provide, such as `300 MB`.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written to.
    """
    if is_made(folder, made_from):
        return folder
    with file_errors(
        f"{folder.parent} cannot be written",
        "Check its permissions, or set RDCHAT_CACHE_DIR to a folder with write permission.",
        f"Free {needed} and try again, or set RDCHAT_CACHE_DIR to a folder on another disk.",
    ):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, on_wait):
            # Another process may have made it meanwhile.
            if not is_made(folder, made_from):
                prefix = f".{folder.name}.partial-"
                for entry in folder.parent.iterdir():
                    if entry.name.startswith(prefix):
                        shutil.rmtree(entry, ignore_errors=True)
                _build(folder, folder.parent / f"{prefix}{secrets.token_hex(4)}", made_from, build)
    return folder


@contextmanager
def _lock(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                time.sleep(_LOCK_POLL_S)
            else:
                break
        yield


def _build(folder: Path, partial: Path, made_from: str, build: Callable[[Path], None]) -> None:
    discarded = partial.with_name(partial.name + "-old")
    partial.mkdir()
    try:
        build(partial)
        files = {path.name: path.stat().st_size for path in sorted(partial.iterdir())}
        manifest = {"made_from": made_from, "files": files}
        (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for path in (*partial.iterdir(), partial):
            flush_to_disk(path)
        # A rename cannot replace a folder with content, which is damaged or from another source.
        if folder.exists():
            folder.rename(discarded)
        partial.rename(folder)
        flush_to_disk(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(discarded, ignore_errors=True)
