"""The folders of KV caches on disk: one for each chat, so that removing it removes all that is kept of the chat.

A file is at `top/CHAT/MODEL/FILE`, where `top` is the folder of all chats. A chat's folder also says which other texts
its caches are computed with (`note_sources`), so that it can go with each of them.
Other processes may use them at the same time, so a file or folder that is gone is no error.
"""

import ctypes
import hashlib
import os
import plistlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rdchat import host
from rdchat.files.atomic_file import PARTIAL

# Other programs' backups leave out a folder with this file: https://bford.info/cachedir
_TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# KV caches of rdchat's chats\n"
# In the folder of a chat: hashes of the texts that its caches were ever computed with, besides its own; one a line.
_SOURCES = "sources"
# Version of the folders. Those of earlier ones have no sources: they have other names, so they are removed.
_VERSION = 2
# Begins the names of folders that are being removed.
_REMOVED = "removed-"
# Age at which a partial file is removed: its writer has ended by then.
_ABANDONED_S = 24 * 3600
# All caches together take at most 1/n of the space that is free on the disk or taken by them.
_DISK_SHARE = 10


def folder_name(store: Path, chat_id: int | str, created_at: object) -> str:
    """Return the name of a chat's or a project's folder: a hash of the chats' file, and one of the chat or project.

    `remove_folders` finds the folders of one chats' file by the first hash. The date of a chat distinguishes those that
    have the same id after a backup was restored. A project has its options and the digests of its files in place of the
    date, so it gets another folder when one of them changes.
    """
    return f"{hash_of(store)}-{hash_of(f'{_VERSION}/{store}/{chat_id}/{created_at}')}"


def hash_of(name: object) -> str:
    """Return the hash that stands for a name or a text in the folders."""
    return hashlib.blake2b(os.fsencode(str(name)), digest_size=12).hexdigest()


def make_folder(folder: Path) -> None:
    """Create a chat's folder, which only this user can enter.

    Raises:
        OSError: If it cannot be created.
    """
    top = folder.parent
    if not (tag := top / _TAG).exists():
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        exclude_from_backups(top)
        tag.write_text(_TAG_TEXT)
    folder.mkdir(mode=0o700, exist_ok=True)


def note_sources(folder: Path, sources: set[str]) -> None:
    """Add hashes of texts to those of a chat's folder, before a cache that is computed with them is written.

    Raises:
        OSError: If they cannot be written.
    """
    with (folder / _SOURCES).open("a+") as file:
        file.seek(0)
        known = file.read().split()
        file.writelines(f"{each}\n" for each in sources.difference(known))


def sources_in(top: Path) -> dict[str, set[str]]:
    """Return the hashes of `note_sources` by the names of the chats' folders."""
    sources = {}
    for path in top.glob(f"*/{_SOURCES}"):
        with suppress(FileNotFoundError):
            sources[path.parent.name] = set(path.read_text().split())
    return sources


def exclude_from_backups(folder: Path) -> None:
    """Leave a folder out of Time Machine's backups; macOS only. Not yet tried on a Mac.

    It sets the attribute that `tmutil addexclusion` sets: a property list with the name of the excluding program.
    """
    if host.MACOS:
        value = plistlib.dumps("com.apple.backupd", fmt=plistlib.FMT_BINARY)
        name = b"com.apple.metadata:com_apple_backup_excludeItem"
        arguments = os.fsencode(folder), name, value, ctypes.c_size_t(len(value)), ctypes.c_uint32(0), ctypes.c_int(0)
        host.ask_macos(lambda: ctypes.CDLL(None).setxattr(*arguments), "A folder of caches may be in backups")


def remove_folder(folder: Path) -> None:
    """Remove a chat's folder with everything in it, partial files included; whoever writes into it cannot go on."""
    shutil.rmtree(set_apart(folder), ignore_errors=True)


def set_apart(folder: Path) -> Path:
    """Give a folder the name of one that is being removed, by which `remove_folders` finds it, and return its path."""
    removed = folder.with_name(_REMOVED + secrets.token_hex(8))
    with suppress(OSError):
        folder.rename(removed)
    return removed


def remove_folders(top: Path, store: Path | None = None, names_to_keep: Callable[[], Iterable[str]] = tuple) -> None:
    """Remove the folders of chats, and remains of interrupted removals and writes.

    Args:
        top: The folder of all chats.
        store: Only those of the chats in this file; None for all. Remains are removed in any case.
        names_to_keep: Returns the names of folders that stay; called once the folders are listed, so that it knows new
            chats.
    """
    # For all stores this is empty, and every name begins with that.
    ours = "" if store is None else hash_of(store)
    folders = list(top.glob("*"))
    spared = set(names_to_keep())
    for folder in folders:
        if folder.name not in spared and folder.name.startswith((ours, _REMOVED)) and folder.is_dir():
            remove_folder(folder)
    for partial in list(top.glob(f"*/*/{PARTIAL}*")):
        with suppress(OSError):
            if partial.lstat().st_mtime < time.time() - _ABANDONED_S:
                partial.unlink()


def used_bytes(top: Path) -> int:
    """Return the size of all caches."""
    sizes = 0
    for path in top.glob("*/*/*"):
        with suppress(OSError):
            sizes += path.lstat().st_size
    return sizes


def make_room(top: Path, limit_bytes: int, added: int = 0, spared: Path | None = None) -> bool:
    """Remove the least recently used caches until all, with `added` bytes more, are within the limit.

    A cache is a folder: that of a model in the folder of a chat. Its time is that of its last use.

    Args:
        top: The folder of all chats.
        limit_bytes: The limit; a tenth of the disk's space may be less.
        added: Size of a file that is about to be written.
        spared: This cache stays.

    Returns:
        Whether there is room.

    Raises:
        OSError: If the disk cannot be asked.
    """
    held = used_bytes(top)
    limit = min(limit_bytes, (shutil.disk_usage(top).free + held) // _DISK_SHARE) - added
    for cache in sorted(top.glob("*/*"), key=_used_at):
        if held > limit and cache != spared:
            shutil.rmtree(cache, ignore_errors=True)
            held = used_bytes(top)
    return held <= limit


def _used_at(cache: Path) -> float:
    with suppress(OSError):
        return cache.lstat().st_mtime
    return 0.0
