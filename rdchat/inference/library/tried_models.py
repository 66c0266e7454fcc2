"""A cache of what models can verify, found when they were loaded."""

import hashlib
import json
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import write_cache_file
from rdchat.files.foreign_files import read_json
from rdchat.inference.api.model_card import TriedOut, Verifies

_MOST_BYTES = 2**16


def remember_tried(folder: Path, tried: TriedOut) -> None:
    """Keep what the model in a folder can verify; a failure is logged."""
    fields = {"verifies": tried.verifies.value, "reason": tried.reason}
    write_cache_file(_file(folder), json.dumps(fields) + "\n")


def tried_out(folder: Path) -> TriedOut | None:
    """Return what the model in a folder can verify; None where that was not tried, or the model has changed."""
    file = _file(folder)
    if not file.exists():
        return None
    try:
        fields = read_json(file, most=_MOST_BYTES)
        return TriedOut(Verifies(fields["verifies"]), str(fields["reason"]))
    except (ModelError, KeyError, TypeError, ValueError):
        return None


def _file(folder: Path) -> Path:
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
