"""Files and folders that are complete or not there, lists of lines that lose at most their last one, and file locks.

`atomic_file` and `build_folder` write under another name and rename at the end. A process that dies at any moment, by
SIGKILL or a power cut, leaves nothing that looks finished. What it leaves is removed later, which is safe because the
system releases a `FileLock` with its process; temporary folders are locked for that. `cache_folders` removes what
`write_unflushed` leaves. `set_aside` renames a file that is damaged, with its companions.
"""

import fcntl
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, StorageError, StorageFullError, StorageLockedError, file_error, file_errors
from rdchat.files.foreign_files import json_or_none, read_json

_LOG = logging.getLogger(__name__)
_SAFE = "Data saved before is safe."
_HINT = f"Check the folder and its disk. {_SAFE}"
_FULL_BYTES = 1 << 20  # MLX does not say why writing failed; a disk with less is full
# In a folder of `build_folder`: what it was made from, and the sizes of its files.
_MANIFEST = "made_from.json"
_LOCK_POLL_S = 0.2
# Begins the names of temporary folders.
_PREFIX = "rdchat-private-"
PARTIAL = "part-"
"""Begins the names of files that are being written."""


def flush_to_disk(path: Path) -> None:
    """Flush a file or a folder's entries to disk, so that they survive a power loss.

    Raises:
        OSError: If it cannot be flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # On macOS, fsync leaves data in the drive's memory.
        if sys.platform == "darwin":
            # Not every file system supports it.
            with suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_of(path: Path) -> Path:
    """Return the temporary path that `atomic_file` writes to."""
    return path.with_name(f"{PARTIAL}{path.name}")


@contextmanager
def atomic_file(path: Path, problem: str | None = None, temporary: Path | None = None) -> Iterator[Path]:
    """Give a path to write to; after the block the file replaces `path` at once, when it is safely on disk.

    A crash or a power loss leaves the old file or the new one, and perhaps a temporary file beside it.

    Args:
        path: The file.
        problem: The message if it cannot be written, without a full stop; None for a standard one.
        temporary: The path to write to, on the same disk; None for one beside it.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be written.
    """
    temporary = temporary or temporary_of(path)
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


def write_unflushed(path: Path, *parts: bytes) -> None:
    """Write a file of a cache, completely or not at all: a kill leaves at most a partial file of another name.

    It is not flushed to the drive, so a power loss may leave a file that is not complete.

    Raises:
        OSError: If it cannot be written; nothing is left then.
    """
    partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for part in parts:
                file.write(part)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_cache_file(file: Path, text: str) -> None:
    """Write a cache file, replacing an older one at once; a failure costs only time and is logged."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_unflushed(file, text.encode("utf-8", "replace"))
    except OSError as error:
        _LOG.warning("%s could not be cached: %s", file.name, error)


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

    def read_objects(self) -> list[dict[str, Any]]:
        """Return its objects; invalid lines are left out."""
        with file_errors(self._problem, _HINT):
            self._file.seek(0)
            return [item for line in self._file if isinstance(item := json_or_none(line), dict)]

    def append_line(self, item: dict[str, Any]) -> None:
        """Add a line; when this returns, it survives the end of the process."""
        with file_errors(self._problem, _HINT):
            self._file.write(json.dumps(item).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file; write errors were raised before."""
        with suppress(OSError):
            self._file.close()


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


class FileLock(AbstractContextManager["FileLock"]):
    """Holds `path`, created if necessary, until `release` or the end of a `with` block.

    The file stays: deleting it would race with the next holder, which has to ask whether its lock `is_current`.

    Args:
        path: Its folder exists.
        what: Name of the protected thing, for people.
        hint: What to do if another process holds it.
        flags: Open it; `os.O_DIRECTORY` for a folder.

    Raises:
        StorageLockedError: If another process holds it.
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be created or locked.
    """

    def __init__(
        self,
        path: Path,
        what: str = "the chats",
        hint: str = "Quit rdchat first, or use its open window.",
        *,
        flags: int = os.O_RDWR | os.O_CREAT,
    ) -> None:
        self._path = path
        problem = f"rdchat cannot write to its folder {path.parent}"
        with file_errors(problem, "Check that the folder belongs to you and its disk is not read-only."):
            self._descriptor: int | None = os.open(path, flags | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise StorageLockedError(f"Another rdchat is using {what} in {path.parent}.", hint) from error
        except OSError as error:
            self.release()
            problem = f"{what.capitalize()} in {path.parent} cannot be locked"
            raise file_error(
                error, problem, "Keep rdchat's data on a disk of this machine, not on a network share."
            ) from error

    def is_current(self) -> bool:
        """Return whether `path` is still the locked file: if it was deleted, others can lock a new one."""
        try:
            return self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_error: object) -> None:
        self.release()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a folder that only this user can enter, and that ends with the block."""
    folder, lock = _locked_folder()
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder() -> tuple[Path, FileLock]:
    """Make a temporary folder and lock it; before that, `remove_abandoned` of another process may have removed it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = FileLock(folder, flags=os.O_DIRECTORY)
        except StorageError as error:
            if folder.exists() and not isinstance(error, StorageLockedError):
                raise
            continue
        if lock.is_current():
            return folder, lock
        lock.release()


def remove_abandoned() -> None:
    """Remove the temporary folders whose processes have ended. One that runs has locked its folder, which stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(StorageError), FileLock(folder, flags=os.O_DIRECTORY):
            shutil.rmtree(folder, ignore_errors=True)


def set_aside(path: Path, label: str, companions: tuple[str, ...] = ()) -> Path:
    """Rename `path` to `STEM-LABEL-DATE-TIME.SUFFIX` in its folder.

    Args:
        path: The file.
        label: What is wrong with it, in one word, such as `damaged`.
        companions: Endings of its companion files, such as `-wal` for `chats.db-wal`; they are moved too.

    Returns:
        Its new path.

    Raises:
        StorageError: If it cannot be renamed; then nothing was moved.
    """
    target = _free_name(path, label, companions)
    # The file itself comes last: if the process dies in between, the next start moves the rest.
    moves = [(companion(path, ending), companion(target, ending)) for ending in (*companions, "")]
    done: list[tuple[Path, Path]] = []
    try:
        for source, destination in moves:
            if source.exists():
                source.rename(destination)
                done.append((source, destination))
    except OSError as error:
        for source, destination in done:
            destination.rename(source)
        what = f"{path} is {label}, and rdchat cannot move it"
        raise file_error(error, what, "Move or rename the file yourself, then start again.") from error
    return target


def _free_name(path: Path, label: str, companions: tuple[str, ...]) -> Path:
    """Return the first path for `set_aside` at which there is nothing, companions included."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    again = chain([""], (f"-{number}" for number in count(2)))
    targets = (path.with_name(f"{path.stem}-{label}-{stamp}{each}{path.suffix}") for each in again)
    return next(each for each in targets if not any(companion(each, end).exists() for end in (*companions, "")))


def companion(path: Path, ending: str) -> Path:
    """Return the path of a companion file, such as `chats.db-wal`."""
    return path.with_name(path.name + ending)
