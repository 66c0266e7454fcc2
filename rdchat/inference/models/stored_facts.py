"""Keeps facts about the files of models in the cache folder.

What takes long to find out about a folder, such as the verdict of a trial, is stored until its files, rdchat or its
libraries change (`cached_fact`); a `Stamp` tells whether files have changed.
"""

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
from rdchat.files import MAX_ENTRIES, read_json, write_cache_file
from rdchat.inference.api import Capability, DraftKind

# Of stored facts: facts of another version are not used.
_FACTS_VERSION = 4
_MAX_FACTS_BYTES = 2**20


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
    """Return the stamp of a folder's files, or of one file, without opening any; links are followed.

    A broken link counts with its name alone. A folder that cannot be read has the stamp of an empty one.
    """
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


def cached_fact(kind: str, path: Path, find: Callable[[], Any]) -> Any:
    """Return a fact of a folder or file: the stored one, or else what `find` returns, which is stored then.

    A caller that needs a stamp of its own uses `stored_facts` and `store_facts`.
    """
    stamp = stamp_of(path)
    if (fact := stored_facts(kind, path, stamp)) is None:
        fact = find()
        store_facts(kind, path, stamp, fact)
    return fact


def stored_facts(kind: str, path: Path, stamp: Stamp) -> Any:
    """Return the facts stored by `store_facts`; None where nothing was stored, or something changed."""
    file = _facts_file(kind, path)
    try:
        stored = read_json(file, max_size=_MAX_FACTS_BYTES) if file.exists() else {}
        return stored.get("facts") if stored.get("stamp") == f"{stamp.digest} {_versions()}" else None
    except (ModelError, AttributeError):
        # The file is damaged.
        return None


def store_facts(kind: str, path: Path, stamp: Stamp, facts: Any) -> None:
    """Store facts, as JSON, until the folder or file changes; a failure is logged."""
    write_cache_file(
        _facts_file(kind, path), json.dumps({"stamp": f"{stamp.digest} {_versions()}", "facts": facts}) + "\n"
    )


def store_capability(folder: Path, stamp: Stamp, tried: Capability, setting: str = "") -> None:
    """Store what the model in a folder can verify; a failure is logged.

    Args:
        folder: The model's.
        stamp: Of its files when they were read.
        tried: The result.
        setting: Precision, device and versions with which it was tried.
    """
    store_facts("verification", folder, stamp, {**asdict(tried), "setting": setting})


def stored_capability(folder: Path, stamp: Stamp, setting: str | None = None) -> Capability | None:
    """Return what the model in a folder can verify; None where that was not tried, or the model has changed.

    Args:
        folder: The model's.
        stamp: Of its files.
        setting: The setting that it must have been tried with; None takes any.
    """
    # Without stored facts, reading them is a TypeError.
    try:
        facts = stored_facts("verification", folder, stamp)
        if setting not in {None, facts["setting"]}:
            return None
        return Capability(DraftKind(facts["kind"]), str(facts["reason"]), int(facts["inputs"]), dict(facts["errors"]))
    except (KeyError, TypeError, ValueError):
        return None


def _facts_file(kind: str, path: Path) -> Path:
    """Return the file for facts of a kind about a folder or file."""
    return paths.cache_dir() / "facts" / f"{kind}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"


@cache
def _versions() -> str:
    """Return the versions of the code that found the facts."""
    return f"{_FACTS_VERSION} {__version__} {version('mlx-lm')} {version('transformers')}"
