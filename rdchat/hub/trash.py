"""Moves deleted models to the system's Trash or to rdchat's own trash, and restores them.

A single whole folder goes to the system's Trash if there is one; everything else goes to rdchat's own trash.

A journal says what goes where before anything is moved, so a crash in between loses nothing. rdchat's own trash is on
the same disk; each move into it is one rename, and its journal can undo all of them. For models in the system's Trash
the journal says where they are; that Trash can also restore them, and is emptied there.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError, RdchatError, StorageError, file_error
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.foreign_files import read_json, readable_entries

_TRASH = ".rdchat-trash"
_JOURNAL = "moved.json"
_MOST_BYTES = 2**24
_LONGEST_NAME = 1_000
_LATEST = 32e9  # seconds since 1970: the year 2984; calendars end at 9999
_TRASHES = re.compile(r"\.?trash(?:es)?(?:-\d+)?", re.IGNORECASE)  # ~/.Trash, /Volumes/X/.Trashes, .Trash-1000
_MISSING = -1  # in place of an inode
_MOVING_S = 60.0  # time in which another process may be between its journal and its move
_UNSEEN_S = 30 * 86400.0  # how long to list a model in a Trash that cannot be read; it may have emptied itself then
_HINT = "Check the permissions of the folder."

SystemTrash = Callable[[Path], Path | None]
"""Moves a folder to the system's Trash and returns its path there; None if there is no Trash."""


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A model in the trash."""

    name: str  # its former name
    deleted: float  # seconds since 1970
    size: int  # bytes that emptying the trash frees
    entry: Path  # the folder of its journal, in rdchat's own trash
    place: Path | None = None  # its path in the system's Trash; None if it is in rdchat's own
    # Inode of the folder in the system's Trash, because another one may take its path; None if unknown.
    inode: int | None = None


def move_to_trash(
    name: str, base: Path, paths: Sequence[Path], system_trash: SystemTrash | None = None
) -> TrashedModel | None:
    """Move files and folders to the trash; return what can be restored, None if only the system's Trash can do it.

    Args:
        name: The model's name for people.
        base: The folder that contains all of them, and the trash.
        paths: Paths below `base`, moved in this order.
        system_trash: Takes a single folder; None for rdchat's own trash.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If one cannot be moved; those before it were moved back.
    """
    entry = base / _TRASH / f"{int(time.time())}-{secrets.token_hex(4)}"
    make_folder(entry)
    moves = [path.relative_to(base).as_posix() for path in paths]
    deleted = time.time()
    journal = {"name": name, "deleted": deleted, "moved": moves}
    write_json(entry / _JOURNAL, journal)
    if system_trash is not None and len(paths) == 1 and paths[0].is_dir() and not paths[0].is_symlink():
        size = _size(paths[0])
        place = system_trash(paths[0])
        if place is not None:
            inode = _inode(place)
            with suppress(StorageError):  # it is in the Trash, even if that cannot be recorded
                make_folder(entry)
                write_json(entry / _JOURNAL, {**journal, "place": str(place), "inode": inode, "size": size})
            return TrashedModel(name, deleted, size, entry, place, inode)
        if not os.path.lexists(paths[0]):
            shutil.rmtree(entry, ignore_errors=True)
            return None
    try:
        for number, path in enumerate(paths):
            path.rename(entry / str(number))
    except OSError as error:
        with suppress(OSError):  # otherwise the moved part is in the trash, and can be restored
            _put_back([(entry / str(number), path) for number, path in enumerate(paths)])
            shutil.rmtree(entry, ignore_errors=True)
        raise file_error(error, f"{name} cannot be deleted", _HINT) from error
    return TrashedModel(name, deleted, _size(entry), entry)


def trashed_models(base: Path) -> list[TrashedModel]:
    """Return the trashed models of a folder, the newest first; forget those that left the Trash."""
    found: list[TrashedModel] = []
    for entry in _entries(base):
        with suppress(RdchatError, OSError, KeyError, TypeError, ValueError, OverflowError):
            found.append(_read(entry))
    here: list[TrashedModel] = []
    for model in sorted(found, key=lambda model: model.deleted, reverse=True):
        another = any(model.place and model.place == other.place for other in here)  # the Trash was emptied in between
        if _is_in_trash(model) and not another:
            here.append(model)
        elif time.time() - model.deleted > _MOVING_S:
            shutil.rmtree(model.entry, ignore_errors=True)
    return here


def restore(model: TrashedModel) -> None:
    """Restore a model; parts that the person restored by hand are left alone.

    Raises:
        ModelError: If something else has its place, or it is no longer in the trash.
        StorageError: If it cannot be moved.
    """
    gone = ModelError(f"{model.name} is no longer in the Trash.", "It may have been deleted for good.")
    if not (model.entry / _JOURNAL).exists():
        raise gone
    base = model.entry.parent.parent
    moves = _moves(model.entry)
    lies = [model.entry / str(number) for number in range(len(moves))] if model.place is None else [model.place]
    parts = [(now, base / before) for now, before in zip(lies, moves, strict=False) if _inode(now) != _MISSING]
    parts = parts if _is_in_trash(model) else []
    # a blob is named by its checksum, so one that was downloaded again is the same
    parts = [(now, before) for now, before in parts if before.parent.name != "blobs" or not before.exists()]
    if not parts and not all(os.path.lexists(base / before) for before in moves):
        raise gone
    for _, before in parts:
        if not before.parent.resolve().is_relative_to(base.resolve()):  # a link leads elsewhere
            raise ModelError(
                f"{model.name} cannot be restored: {before.parent} is a link to another place.", "Delete that link."
            )
        if os.path.lexists(before):
            raise ModelError(f"{model.name} cannot be restored: {before} already exists.", "Delete it first.")
    try:
        _put_back(parts)
    except OSError as error:
        hint = _HINT if model.place is None else "Put it back from the Trash."
        raise file_error(error, f"{model.name} cannot be restored", hint) from error
    shutil.rmtree(model.entry, ignore_errors=True)


def delete_for_good(model: TrashedModel) -> None:
    """Delete one model that is in rdchat's own trash.

    Raises:
        StorageError: If a part of it cannot be deleted.
    """
    try:
        shutil.rmtree(model.entry)
    except FileNotFoundError:
        return  # another rdchat deleted it
    except OSError as error:
        raise file_error(error, f"{model.name} cannot be deleted", _HINT) from error


def empty(base: Path) -> int:
    """Empty rdchat's own trash in a folder, and return the freed bytes."""
    kept = {model.entry for model in trashed_models(base) if model.place is not None}
    freed = 0
    for entry in _entries(base):
        if entry not in kept:
            freed += _size(entry)
            shutil.rmtree(entry, ignore_errors=True)
    if not kept:
        shutil.rmtree(base / _TRASH, ignore_errors=True)
    return freed


def _put_back(parts: Sequence[tuple[Path, Path]]) -> None:
    """Rename each part from its present to its former path, the last one first."""
    for now, before in reversed(parts):
        if _inode(now) != _MISSING:
            before.parent.mkdir(parents=True, exist_ok=True)
            now.rename(before)
            if now.parent.name == "files":  # in the freedesktop Trash, which describes it in a file beside it
                (now.parent.parent / "info" / f"{now.name}.trashinfo").unlink(missing_ok=True)


def _read(entry: Path) -> TrashedModel:
    """Read an entry's journal; a damaged one may raise anything."""
    journal = read_json(entry / _JOURNAL, most=_MOST_BYTES)
    name, deleted = str(journal["name"])[:_LONGEST_NAME], float(journal["deleted"])
    if not 0 <= deleted <= _LATEST:
        raise ValueError("no time")
    if "place" not in journal:
        return TrashedModel(name, deleted, _size(entry), entry)
    place = Path(journal["place"])
    in_trash = any(map(_TRASHES.fullmatch, place.parent.parts))
    if not place.is_absolute() or ".." in place.parts or not in_trash:
        raise ValueError(f"{place} is in no Trash")
    inode = journal.get("inode")
    return TrashedModel(name, deleted, int(journal["size"]), entry, place, inode if isinstance(inode, int) else None)


def _is_in_trash(model: TrashedModel) -> bool:
    inode = _inode(model.place or model.entry / "0")  # the first part to move, and the last to restore
    if inode is None:
        return time.time() - model.deleted < _UNSEEN_S
    return inode != _MISSING and (model.inode is None or model.inode == inode)


def _inode(path: Path) -> int | None:
    """Return the inode, which a move within a disk does not change; `_MISSING` if there is no file.

    None if it cannot be read, as may happen in a Mac's Trash.
    """
    try:
        return path.lstat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except OSError:
        return None


def _moves(entry: Path) -> list[Path]:
    """Return the former paths of an entry's parts; only paths below the trash's folder."""
    with suppress(RdchatError, KeyError, TypeError):
        moves = read_json(entry / _JOURNAL, most=_MOST_BYTES)["moved"]
        if isinstance(moves, list):
            places = [Path(place) for place in moves]
            if not any(place.is_absolute() or ".." in place.parts for place in places):
                return places
    raise StorageError(f"{entry} cannot be restored: its record is damaged.", "Move its files by hand.")


def _entries(base: Path) -> list[Path]:
    return [path for path in readable_entries(base / _TRASH) if path.is_dir() and not path.is_symlink()]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += 0 if path.is_dir() else path.lstat().st_size
    return total
