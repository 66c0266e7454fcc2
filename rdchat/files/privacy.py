"""Keeps rdchat's files private from other users of the machine.

Every entry point sets a umask (`write_privately`), so files of libraries, SQLite and child processes are private too.
Each start closes rdchat's folders to others (`close_to_others`).
"""

import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rdchat.errors import StorageError

_OTHERS = 0o077
# Everything that rdchat puts into its folders for data and for caches has such a name, perhaps with an ending.
_OUR_NAMES = re.compile(
    r"(chats|conversations|costs|digests|drafters|facts|instance|kernels|library|logs|models|part|phrases|preparation"
    r"|replies|restore|server-certificate|server-key|settings|towers|training|tried|unfinished|unsaved-replies|wired)"
    r"([.-]\S*)?"
)
# The value of `_before` until `write_privately` was called.
_NO_CHANGE = -1
_LOG = logging.getLogger(__name__)
_before = _NO_CHANGE


def write_privately() -> None:
    """Give this user alone access to all new files of this process and its children."""
    global _before  # noqa: PLW0603  the umask is the process's, so the earlier one is too
    earlier = os.umask(_OTHERS)
    if _before == _NO_CHANGE:
        _before = earlier


def persons_umask() -> int:
    """Return the umask from before `write_privately`, for files that are not rdchat's; -1 if that was not called."""
    return _before


@contextmanager
def with_persons_umask() -> Iterator[None]:
    """Use the umask from before `write_privately` inside the block, for programs started for the person."""
    if _before == _NO_CHANGE:
        yield
        return
    ours = os.umask(_before)
    try:
        yield
    finally:
        os.umask(ours)


def close_to_others(folder: Path, *, default: bool) -> None:
    """Remove other users' access to a folder of rdchat, and so to all that is in it. The owner's access stays.

    These folders are left alone: another user's, one shared by all users such as `/tmp`, one that contains the home
    folder, and one chosen by the person that has other content too (`RDCHAT_CACHE_DIR=/etc` must not close `/etc`).

    Args:
        folder: The folder.
        default: Whether it is the default folder, which is rdchat's alone.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        top = folder.resolve()
        status = top.stat()
        if not stat.S_ISDIR(status.st_mode):
            return
        # The sticky bit is on folders for all users.
        shared = status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX
        if shared or Path.home().resolve().is_relative_to(top) or not (default or _has_only_ours(top)):
            _LOG.info("%s has other content than rdchat's: its permissions are not changed", folder)
            return
        if status.st_mode & _OTHERS:
            top.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def own_entries(folder: Path, variable: str) -> list[Path]:
    """Return what rdchat put into a folder of its own; nothing if the folder is missing.

    Args:
        folder: The folder.
        variable: Names the folder if the person chose it. Files of other programs may be in it then, beside rdchat's;
            hidden ones are never rdchat's. All of the default folder is rdchat's.
    """
    default = not os.environ.get(variable)
    with suppress(OSError):
        return sorted(each for each in folder.iterdir() if default or _OUR_NAMES.fullmatch(each.name))
    return []


def _has_only_ours(top: Path) -> bool:
    with os.scandir(top) as entries:
        # Names with a dot are the system's, such as .DS_Store.
        return all(entry.name.startswith(".") or _OUR_NAMES.fullmatch(entry.name) for entry in entries)


def is_private(folder: Path) -> bool:
    """Return whether a path is a folder, no link to one, that belongs to this user and that no other can enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS


def is_ours(status: os.stat_result) -> bool:
    """Return whether only this user can write to a folder."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user can enter, or close one that no other user could write to; return it.

    Raises:
        StorageError: If it exists, and another user may have put something into it.
        OSError: If it cannot be created.
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
            "Delete it, then try again. rdchat creates it again, for you alone.",
        )
    return folder
