"""Moves deleted models to the system's Trash or to rdchat's own trash, and restores them.

One whole folder goes to the system's Trash where there is one, everything else to rdchat's own.

The journal says what goes where before anything is moved, so a crash in between loses nothing. rdchat's own trash lies
on the same disk; each move into it is one rename, and its journal puts everything back. Of what is in the system's
Trash the journal says where it lies there; that Trash can put it back as well, and empties it.
"""

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError, RdchatError, StorageError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.file_errors import file_error
from rdchat.files.foreign_files import entries_of, read_json

_TRASH = ".rdchat-trash"
_JOURNAL = "moved.json"
_MOST_BYTES = 2**24
_LONGEST_NAME = 1_000
_LATEST = 32e9  # seconds since 1970: the year 2984; calendars end at 9999
_TRASHES = re.compile(r"\.?trash(?:es)?(?:-\d+)?", re.IGNORECASE)  # ~/.Trash, /Volumes/X/.Trashes, .Trash-1000
_MOVING_S = 60.0  # in which another process may be between its journal and its move
_UNSEEN_S = 30 * 86400.0  # that a model is listed which a Trash does not let us see; then that may empty itself
_HINT = "Check the permissions of the folder."

SystemTrash = Callable[[Path], Path | None]
"""Moves a folder to the system's Trash and returns where it lies there; None where it has none."""


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A model in the trash.

    Attributes:
        name: As it was called.
        deleted: Seconds since 1970.
        size: Bytes that emptying the trash frees.
        entry: The folder of its journal, in rdchat's own trash.
        place: Where it lies in the system's Trash; None where it is in rdchat's own.
        inode: Of the folder in the system's Trash, as another one may take that place; None where it is not known.
    """

    name: str
    deleted: float
    size: int
    entry: Path
    place: Path | None = None
    inode: int | None = None


def move_to_trash(
    name: str, base: Path, paths: Sequence[Path], system_trash: SystemTrash | None = None
) -> TrashedModel | None:
    """Move files and folders aside; return what can be restored, None where the system's Trash alone can do that.

    Args:
        name: What people call the model.
        base: The folder that all of them are in, and that the trash is in.
        paths: Below `base`; in this order.
        system_trash: Takes what is one folder; None for rdchat's own trash.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If one cannot be moved; those before it have been moved back.
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
            with suppress(StorageError):  # it is in the Trash, whoever notes that
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
        with suppress(OSError):  # else it is in the trash as far as it got, and can be restored
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
    """Put a model back; parts that the person has put back by hand are left alone.

    Raises:
        ModelError: If something else is there by now, or the model has left the trash.
        StorageError: If it cannot be moved.
    """
    gone = ModelError(f"{model.name} is not in the trash any more.", "Perhaps it was deleted there for good.")
    if not (model.entry / _JOURNAL).exists():
        raise gone
    base = model.entry.parent.parent
    moves = _moves(model.entry)
    lies = [model.entry / str(number) for number in range(len(moves))] if model.place is None else [model.place]
    parts = [(now, base / before) for now, before in zip(lies, moves, strict=False) if _is_there(now) is not False]
    parts = parts if _is_in_trash(model) else []
    # what is named by its checksum and was fetched again is the same
    parts = [(now, before) for now, before in parts if before.parent.name != "blobs" or not before.exists()]
    if not parts and not all(os.path.lexists(base / before) for before in moves):
        raise gone
    for _, before in parts:
        if not before.parent.resolve().is_relative_to(base.resolve()):  # through a link
            raise ModelError(f"{model.name} cannot be restored: {before.parent} leads elsewhere.", "Delete that link.")
        if os.path.lexists(before):
            raise ModelError(f"{model.name} cannot be restored: {before} is there.", "Delete that first.")
    try:
        _put_back(parts)
    except OSError as error:
        hint = _HINT if model.place is None else "Put it back from the Trash."
        raise file_error(error, f"{model.name} cannot be restored", hint) from error
    shutil.rmtree(model.entry, ignore_errors=True)


def delete_for_good(model: TrashedModel) -> None:
    """Delete one model that is in rdchat's own trash.

    Raises:
        StorageError: If something of it cannot be deleted.
    """
    try:
        shutil.rmtree(model.entry)
    except FileNotFoundError:
        return  # another rdchat did
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
    """Rename each from where it lies to where it was, the last one first."""
    for now, before in reversed(parts):
        if _is_there(now) is not False:
            before.parent.mkdir(parents=True, exist_ok=True)
            now.rename(before)
            if now.parent.name == "files":  # of the freedesktop's Trash, which describes it beside that
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
    there = _is_there(model.place or model.entry / "0")  # which is moved first, and put back last
    if there is None:
        return time.time() - model.deleted < _UNSEEN_S
    another = model.place is not None and model.inode is not None and _inode(model.place) != model.inode
    return there and not another


def _inode(path: Path) -> int | None:
    """Return the inode, which moves on one disk do not change; None where it cannot be read."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _is_there(path: Path) -> bool | None:
    """Tell whether the path exists; None where that cannot be read, as perhaps in a Mac's Trash."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    return True


def _moves(entry: Path) -> list[str]:
    """Return where an entry's parts were; only places below the folder that the trash is in."""
    try:
        moves = read_json(entry / _JOURNAL, most=_MOST_BYTES)["moved"]
        if all(
            isinstance(place, str) and not Path(place).is_absolute() and ".." not in Path(place).parts
            for place in moves
        ) and isinstance(moves, list):
            return moves
    except (RdchatError, KeyError, TypeError, json.JSONDecodeError):
        pass
    raise StorageError(f"{entry} cannot be restored: what it says of itself is damaged.", "Move its files by hand.")


def _entries(base: Path) -> list[Path]:
    try:
        return [path for path in entries_of(base / _TRASH) if path.is_dir() and not path.is_symlink()]
    except (RdchatError, OSError):
        return []


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_size
            except OSError:
                continue
    return total
