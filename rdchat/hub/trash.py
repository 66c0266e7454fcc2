"""Deleted models, until the trash is emptied: moved aside on the same disk, to be restored from a journal.

The journal says what goes where before anything is moved, so a crash in between leaves an entry that is restored as any
other. Each move is one rename.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError, RdchatError, StorageError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.file_errors import file_error
from rdchat.files.foreign_files import entries_of, read_json

_TRASH = ".rdchat-trash"
_JOURNAL = "moved.json"
_MOST_BYTES = 2**24
_HINT = "Check the permissions of the folder."


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A model in the trash.

    Attributes:
        name: As it was called.
        deleted: Seconds since 1970.
        size: Bytes that emptying the trash frees.
        entry: Its folder in the trash.
    """

    name: str
    deleted: float
    size: int
    entry: Path


def move_to_trash(name: str, base: Path, paths: Sequence[Path]) -> TrashedModel:
    """Move files and folders aside.

    Args:
        name: What people call the model.
        base: The folder that all of them are in, and that the trash is in.
        paths: Below `base`; in this order.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If one cannot be moved; those before it have been moved back.
    """
    entry = base / _TRASH / f"{int(time.time())}-{secrets.token_hex(4)}"
    make_folder(entry)
    moves = [path.relative_to(base).as_posix() for path in paths]
    journal = {"name": name, "deleted": time.time(), "moved": moves}
    write_json(entry / _JOURNAL, journal)
    try:
        for number, path in enumerate(paths):
            path.rename(entry / str(number))
    except OSError as error:
        _restore(base, entry, moves)
        raise file_error(error, f"{name} cannot be deleted", _HINT) from error
    return TrashedModel(name, float(str(journal["deleted"])), _size(entry), entry)


def trashed_models(base: Path) -> list[TrashedModel]:
    """Return what the trash in a folder holds, the last one first."""
    found = []
    for entry in _entries(base):
        try:
            journal = read_json(entry / _JOURNAL, most=_MOST_BYTES)
            found.append(TrashedModel(str(journal["name"]), float(journal["deleted"]), _size(entry), entry))
        except (RdchatError, OSError, KeyError, TypeError, ValueError):
            continue
    return sorted(found, key=lambda model: model.deleted, reverse=True)


def restore(model: TrashedModel) -> None:
    """Put a model back where it was.

    Raises:
        ModelError: If something else is there by now.
        StorageError: If it cannot be moved.
    """
    base = model.entry.parent.parent
    moves = _moves(model.entry)
    for number, place in enumerate(moves):
        if (model.entry / str(number)).exists() and os.path.lexists(base / place):
            raise ModelError(f"{model.name} cannot be restored: {base / place} is there.", "Delete that first.")
    try:
        _restore(base, model.entry, moves)
    except OSError as error:
        raise file_error(error, f"{model.name} cannot be restored", _HINT) from error


def delete_for_good(model: TrashedModel) -> None:
    """Delete one model that is in the trash.

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
    """Delete for good what the trash in a folder holds; return the bytes that this frees."""
    freed = sum(_size(entry) for entry in _entries(base))
    shutil.rmtree(base / _TRASH, ignore_errors=True)
    return freed


def _restore(base: Path, entry: Path, moves: Sequence[str]) -> None:
    for number, place in reversed(list(enumerate(moves))):
        if os.path.lexists(entry / str(number)):
            (base / place).parent.mkdir(parents=True, exist_ok=True)
            (entry / str(number)).rename(base / place)
    shutil.rmtree(entry, ignore_errors=True)


def _moves(entry: Path) -> list[str]:
    """Return where an entry's parts were; only places below the folder that the trash is in."""
    try:
        moves = read_json(entry / _JOURNAL, most=_MOST_BYTES)["moved"]
        if all(
            isinstance(place, str) and not Path(place).is_absolute() and ".." not in Path(place).parts
            for place in moves
        ):
            return list(moves)
    except (RdchatError, KeyError, TypeError, json.JSONDecodeError):
        pass
    raise StorageError(f"{entry} cannot be restored: what it says of itself is damaged.", "Move its files by hand.")


def _entries(base: Path) -> list[Path]:
    try:
        return [path for path in entries_of(base / _TRASH) if path.is_dir()]
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
