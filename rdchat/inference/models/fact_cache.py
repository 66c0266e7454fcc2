"""Caches facts about model files on disk until the files, rdchat or its libraries change."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rdchat import __version__, paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import write_cache_file
from rdchat.files.foreign_files import MAX_ENTRIES, opened, read_json
from rdchat.inference.api.model_facts import Capability, DraftKind

_FORMAT = 4
_MAX_BYTES = 2**20
_CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Stamp:
    """Changes whenever a folder or a file changes.

    Attributes:
        digest: Hash of names, sizes and times of its files.
        disk_bytes: Sum of their sizes.
        changed: Latest of the times, in seconds since 1970.
    """

    digest: str
    disk_bytes: int
    changed: float


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a folder's files, or of one file, without opening any; links are followed."""
    seen = []
    size = 0
    changed = 0.0
    try:
        entries = [path] if path.is_file() else [Path(entry.path) for entry in os.scandir(path)]
        for entry in sorted(entries)[:MAX_ENTRIES]:
            try:
                status = entry.stat()
            except OSError:
                seen.append([entry.name, -1, 0])
                continue
            seen.append([entry.name, status.st_size, status.st_mtime_ns])
            if not entry.is_dir():
                size = size + status.st_size
                changed = max(changed, status.st_mtime)
    except OSError:
        pass
    return Stamp(hashlib.sha256(json.dumps(seen).encode("utf-8", "replace")).hexdigest()[:32], size, changed)


def cached_facts(kind: str, path: Path, stamp: Stamp) -> Any:
    """Return the facts stored by `cache_facts`; None where nothing was stored, or something changed."""
    file = _file(kind, path)
    try:
        stored = read_json(file, max_size=_MAX_BYTES) if file.exists() else {}
        return stored.get("facts") if stored.get("stamp") == f"{stamp.digest} {_versions()}" else None
    except (ModelError, AttributeError):
        # The file is damaged.
        return None


def cache_facts(kind: str, path: Path, stamp: Stamp, facts: Any) -> None:
    """Store facts, as JSON, until the folder or file changes; a failure is logged."""
    write_cache_file(_file(kind, path), json.dumps({"stamp": f"{stamp.digest} {_versions()}", "facts": facts}) + "\n")


def store_capability(folder: Path, stamp: Stamp, tried: Capability, setting: str = "") -> None:
    """Store what the model in a folder can verify; a failure is logged.

    Args:
        folder: The model's.
        stamp: Of its files when they were read.
        tried: The result.
        setting: Precision, device and versions with which it was tried.
    """
    cache_facts("verification", folder, stamp, {**asdict(tried), "setting": setting})


def stored_capability(folder: Path, stamp: Stamp, setting: str | None = None) -> Capability | None:
    """Return what the model in a folder can verify; None where that was not tried, or the model has changed.

    Args:
        folder: The model's.
        stamp: Of its files.
        setting: The setting that it must have been tried with; None takes any.
    """
    try:
        facts = cached_facts("verification", folder, stamp)
        tried = int(facts["inputs"]), dict(facts["errors"])
        found = Capability(DraftKind(facts["kind"]), str(facts["reason"]), *tried)
        return found if setting in {None, facts["setting"]} else None
    except (KeyError, TypeError, ValueError):
        return None


def _file(kind: str, path: Path) -> Path:
    return paths.cache_dir() / "facts" / f"{kind}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"


@cache
def _versions() -> str:
    return f"{_FORMAT} {__version__} {version('mlx-lm')} {version('transformers')}"


def kept(kind: str, path: Path, find: Callable[[], Any]) -> Any:
    """Return a fact of a folder or file that takes long to find; it is kept until the files change."""
    stamp = stamp_of(path)
    if (fact := cached_facts(kind, path, stamp)) is None:
        fact = find()
        cache_facts(kind, path, stamp, fact)
    return fact


def sha256_of(file: Path, on_progress: Callable[[float], None]) -> str:
    """Return the SHA-256 of a file, in hexadecimal; it is cached.

    Args:
        file: The file.
        on_progress: Called with the fraction read, from 0 to 1; an exception from it ends the work.

    Raises:
        OSError: If the file cannot be read.
    """

    def find() -> str:
        sha256 = hashlib.sha256()
        done = 0
        size = max(file.stat().st_size, 1)
        on_progress(0.0)
        with opened(file) as source:
            while chunk := source.read(_CHUNK_BYTES):
                sha256.update(chunk)
                done += len(chunk)
                on_progress(min(done / size, 1.0))
        return sha256.hexdigest()

    return str(kept("sha256", file, find))
