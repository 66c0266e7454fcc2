"""Keeps rdchat's files from the other users of the machine.

Each entry point takes all rights of others from what its process makes from then on (`write_privately`): one decision
covers libraries, SQLite and children, and none of the many places that write can forget it. What an earlier version
left open is closed at each start (`mend`).
"""

import logging
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rdchat.errors import StorageError

_OTHERS = 0o077
_MOST_ENTRIES = 2_000  # looked at, at some 5 µs each; the folder, which is closed itself, guards the rest
# how all begins that rdchat puts into its two folders; what begins with a dot is a system's, such as .DS_Store
_OUR_NAMES = (
    ".", "conversations", "costs", "digests", "downloads.json", "drafters", "instance.lock", "kernels", "library.json",
    "logs", "models", "part-", "restore", "settings", "training", "tried", "unsaved-replies-",
)  # fmt: skip
_NO_CHANGE = -1  # as `subprocess.Popen` has it
_LOG = logging.getLogger(__name__)
_before = _NO_CHANGE


def write_privately() -> None:
    """Have only this user read and write what this process and its children make from now on."""
    global _before  # noqa: PLW0603  of the process, as what it remembers
    earlier = os.umask(_OTHERS)
    if _before == _NO_CHANGE:
        _before = earlier


def persons_umask() -> int:
    """Return the umask from before `write_privately`, for what is not rdchat's; -1 where that was not called."""
    return _before


@contextmanager
def with_persons_umask() -> Iterator[None]:
    """Use the umask from before `write_privately` inside: for programs that are started for the person."""
    if _before == _NO_CHANGE:
        yield
        return
    ours = os.umask(_before)
    try:
        yield
    finally:
        os.umask(ours)


def mend(folder: Path, *, default: bool, but: Path | None = None) -> None:
    """Take the rights of others from a folder of rdchat's and from what is in it: some ms.

    Links are not followed, and the rights of the owner stay. Left alone are a folder of another user, one that is
    shared by all as `/tmp` is, one that holds the person's home, and one that a person named and that holds other
    things too: `RDCHAT_CACHE_DIR=/etc` must not close `/etc`. What cannot be changed stays as it is.

    Args:
        folder: The folder.
        default: Whether it is the one that nobody named, and so is rdchat's alone.
        but: A folder in it that stays as it is, since it is to tell whether others could write into it.
    """
    with suppress(OSError, RuntimeError):  # the latter: there is no home
        top = folder.resolve()
        status = top.stat()
        if not stat.S_ISDIR(status.st_mode):
            return
        shared = status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX
        if shared or Path.home().resolve().is_relative_to(top) or not (default or _has_only_ours(top)):
            _LOG.info("%s is not for rdchat alone: its rights stay as they are", folder)
            return
        _close(top, status)
        _mend_entries(top, str(but.resolve()) if but else "")


def _has_only_ours(top: Path) -> bool:
    with os.scandir(top) as entries:
        return all(entry.name.startswith(_OUR_NAMES) for entry in entries)


def _mend_entries(top: Path, but: str) -> None:
    folders, count = deque([str(top)]), 0
    while folders:
        with suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                count += 1
                if count > _MOST_ENTRIES:
                    return
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode) or entry.path == but:
                    continue
                _close(entry, status)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)


def _close(path: "Path | os.DirEntry[str]", status: os.stat_result) -> None:
    if not status.st_mode & _OTHERS or status.st_uid != os.geteuid():
        return
    # a file with two names may be one from elsewhere, linked here while others could write here
    if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
        with suppress(OSError):  # on a disk that is read only
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)  # noqa: PTH101  a `DirEntry` has no method


def is_private(folder: Path) -> bool:
    """Tell whether a path is a folder, no link to one, that belongs to this user and that no other can enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS


def is_ours(status: os.stat_result) -> bool:
    """Tell of a folder whether only this user could put something into it."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def private_folder(folder: Path) -> Path:
    """Make a folder that no other user can enter, or close one that no other could write to; return it.

    Raises:
        StorageError: If it is there, but another user may have put something into it.
        OSError: If it cannot be made.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not is_private(folder) and is_ours(status):
        folder.chmod(0o700)
    if not is_private(folder):
        raise StorageError(
            f"{folder} is not used: another user of this machine may have put something into it.",
            "Delete it, then try again. rdchat makes it anew, for you alone.",
        )
    return folder
