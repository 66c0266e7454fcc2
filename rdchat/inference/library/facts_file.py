"""Caches of facts about model folders, since reading two hundred takes seconds, and of what models can verify."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rdchat import __version__, paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import write_cache_file
from rdchat.files.foreign_files import MOST_ENTRIES, read_json
from rdchat.inference.api.model_card import TriedOut, Verifies
from rdchat.inference.library.folder_facts import FolderFacts, parsed_facts

_FORMAT = 2
_MOST_BYTES = 2**24
_MOST_KEPT = 3000
_MOST_TRIED_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp that differs after a change of the folder.

    Attributes:
        digest: Of names, sizes and times of its files.
        disk_bytes: Their sizes in sum.
        changed: The latest of the times, in seconds since 1970.
    """

    digest: str
    disk_bytes: int
    changed: float


def stamp_of(path: Path) -> Stamp:
    """Look at the files of a folder, or at one file, without opening any; links are followed."""
    seen, size, changed = [], 0, 0.0
    try:
        entries = [path] if path.is_file() else [Path(entry.path) for entry in os.scandir(path)]
        for entry in sorted(entries)[:MOST_ENTRIES]:
            try:
                status = entry.stat()
            except OSError:
                seen.append([entry.name, -1, 0])
                continue
            seen.append([entry.name, status.st_size, status.st_mtime_ns])
            if not entry.is_dir():
                size, changed = size + status.st_size, max(changed, status.st_mtime)
    except OSError:
        pass
    return Stamp(hashlib.sha256(json.dumps(seen).encode("utf-8", "replace")).hexdigest()[:32], size, changed)


class FactsFile:
    """Facts by path. Those of another version of rdchat or mlx-lm are read again, as it knows other models.

    Args:
        read: Reads a folder or a file that is not known, or was changed.
    """

    def __init__(self, read: Callable[[Path], FolderFacts]) -> None:
        self._read_facts = read
        self._path = paths.cache_dir() / "library.json"
        self._known = self._load()
        self._used: dict[str, dict[str, Any]] = {}
        self._changed = False

    def facts_of(self, path: Path, stamp: Stamp) -> FolderFacts:
        """Return the facts about a folder or a file."""
        entry = self._known.get(str(path), {})
        if entry.get("digest") == stamp.digest:
            with suppress(TypeError, KeyError, ValueError):  # damaged facts are read again
                facts = parsed_facts(entry["facts"])
                self._used[str(path)] = entry
                return facts
        facts = self._read_facts(path)
        self._used[str(path)] = {"digest": stamp.digest, "facts": asdict(facts)}
        self._changed = True
        return facts

    def keep(self, *, all_seen: bool) -> None:
        """Write the facts that were used; with `all_seen` forget the others."""
        if self._changed or (all_seen and self._used.keys() != self._known.keys()):
            unseen = {} if all_seen else {path: each for path, each in self._known.items() if path not in self._used}
            kept = dict(list((self._used | unseen).items())[:_MOST_KEPT])
            write_cache_file(self._path, json.dumps({"versions": _versions(), "folders": kept}) + "\n")

    def _load(self) -> dict[str, dict[str, Any]]:
        if not self._path.exists():
            return {}
        try:
            data = read_json(self._path, most=_MOST_BYTES)
            folders = data["folders"] if data["versions"] == _versions() else {}
            return {str(path): entry for path, entry in folders.items() if isinstance(entry, dict)}
        except (ModelError, TypeError, KeyError, AttributeError):
            return {}  # it is read anew


@cache
def _versions() -> str:
    try:
        return f"{_FORMAT} {__version__} {version('mlx-lm')}"
    except PackageNotFoundError:
        return f"{_FORMAT} {__version__}"


def remember_tried(folder: Path, tried: TriedOut) -> None:
    """Keep what the model in a folder can verify; a failure is logged."""
    fields = {"verifies": tried.verifies.value, "reason": tried.reason}
    write_cache_file(_tried_file(folder), json.dumps(fields) + "\n")


def tried_out(folder: Path) -> TriedOut | None:
    """Return what the model in a folder can verify; None where that was not tried, or the model has changed."""
    file = _tried_file(folder)
    if not file.exists():
        return None
    try:
        fields = read_json(file, most=_MOST_TRIED_BYTES)
        return TriedOut(Verifies(fields["verifies"]), str(fields["reason"]))
    except (ModelError, KeyError, TypeError, ValueError):
        return None


def _tried_file(folder: Path) -> Path:
    """Name the cache file by the folder and the sizes and times of its configuration and weights."""
    seen = [str(folder.resolve())]
    try:
        for path in sorted([folder / "config.json", *folder.glob("model*.safetensors")]):
            status = path.stat()
            seen.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    except OSError:
        seen.append("incomplete")
    digest = hashlib.sha256("\n".join(seen).encode("utf-8", "surrogateescape")).hexdigest()
    return paths.cache_dir() / "tried" / f"{digest[:32]}.json"
