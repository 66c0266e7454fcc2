"""The hub's cache on this disk, as all of the hub's tools use it: `models--ORG--NAME`, each with three folders.

`blobs` holds each content once, by its checksum; `snapshots/COMMIT` holds links to them by the files' names;
`refs/REVISION` names a commit. What rdchat has not finished lies beside them in `.rdchat`.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of, opened
from rdchat.hub.known_files import is_commit, is_digest, is_repository, is_revision

WORK = ".rdchat"
_COMMIT_BYTES = 200  # of a reference: a hash of 40 letters


def hub_cache() -> Path:
    """Return the hub's cache as `huggingface_hub.constants` finds it, whose import takes a third of a second."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _expanded(named)
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return _expanded(os.environ.get("HF_HOME", f"{cache}/huggingface")) / "hub"


def free_bytes() -> int | None:
    """Return how much is free on the disk that holds the cache; None where it does not say. A disk may take long."""
    folder = hub_cache()
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue  # it is made when something is downloaded
        except OSError:
            return None
    return None


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """A model's folder in the hub's cache, which may not be there.

    Attributes:
        name: The hub id.
        folder: The folder.
    """

    name: str
    folder: Path

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @property
    def snapshots(self) -> Path:
        return self.folder / "snapshots"

    @property
    def work(self) -> Path:
        """Where rdchat keeps what it has not finished."""
        return self.folder / WORK

    def reference(self, revision: str) -> Path:
        return self.folder / "refs" / revision

    def commit_of(self, revision: str) -> str:
        """Return the commit that a revision stands for here; empty where it is not known."""
        if is_commit(revision):
            return revision
        if not is_revision(revision):
            return ""
        try:
            with opened(self.reference(revision)) as file:
                commit = file.read(_COMMIT_BYTES).decode("ascii").strip()
        except (ModelError, OSError, ValueError):
            return ""  # only another revision was fetched, or nothing yet
        return commit if commit.isalnum() else ""

    def references(self) -> dict[str, list[str]]:
        """Return the names of the revisions that stand for each commit."""
        found: dict[str, list[str]] = {}
        base = self.folder / "refs"
        for folder, _, names in os.walk(base):
            for name in names:
                revision = (Path(folder) / name).relative_to(base).as_posix()
                if commit := self.commit_of(revision):
                    found.setdefault(commit, []).append(revision)
        return {commit: sorted(names) for commit, names in found.items()}

    def commits(self) -> list[str]:
        """Return the commits of which there is a snapshot."""
        return [folder.name for folder in folders_in(self.snapshots)]

    def blobs_of(self, commit: str) -> dict[str, str]:
        """Return the blob's name for each file of a snapshot that is a link into this repository's `blobs`."""
        snapshot = self.snapshots / commit
        found = {}
        for folder, _, names in os.walk(snapshot):
            for name in names:
                path = Path(folder) / name
                if digest := self.linked_blob(path):
                    found[path.relative_to(snapshot).as_posix()] = digest
        return found

    def linked_blob(self, path: Path) -> str:
        """Return the name of the blob that a link leads to; empty where it leads elsewhere, or is no link."""
        try:
            target = Path(os.path.normpath(path.parent / path.readlink()))
        except OSError:
            return ""
        return target.name if target.parent == self.blobs and is_digest(target.name) else ""


def repository_of(name: str) -> CachedRepository:
    """Return the place of a model in the hub's cache; other tools keep the hub's first models as NAME alone.

    Raises:
        ModelError: If it is no hub id.
    """
    if not is_repository(name if "/" in name else f"first/{name}"):
        raise ModelError(f"{name[:200]} is no model's name on the hub.", "Such a name is ORG/NAME.")
    return CachedRepository(name, hub_cache() / f"models--{name.replace('/', '--')}")


def cached_repositories() -> Iterator[CachedRepository]:
    """Yield the models that the hub's cache holds, or some of."""
    for folder in folders_in(hub_cache()):
        kind, *words = folder.name.split("--")
        if kind == "models" and words:
            yield CachedRepository("/".join(words), folder)


def snapshot_of(name: str, revision: str = "main") -> Path | None:
    """Return the folder of a model that is in the hub's cache; None where it is not."""
    repository = CachedRepository(name, hub_cache() / f"models--{name.replace('/', '--')}")
    commit = repository.commit_of(revision)
    snapshot = repository.snapshots / commit
    return snapshot if commit and snapshot.is_dir() else None


def downloaded_repositories() -> tuple[str, ...]:
    """Return the hub ids in the cache whose main snapshot has weights: other tools fetch configurations alone."""
    return tuple(each.name for each in cached_repositories() if _has_weights(snapshot_of(each.name)))


def _has_weights(snapshot: Path | None) -> bool:
    try:
        entries = [] if snapshot is None else entries_of(snapshot)
        return any(path.suffix.lower() in {".safetensors", ".gguf"} and path.is_file() for path in entries)
    except (ModelError, OSError):
        return False


def folders_in(parent: Path) -> list[Path]:
    """Return the folders in one, by name, without hidden ones; none where it is missing or cannot be read."""
    try:
        return [path for path in entries_of(parent) if not path.name.startswith(".") and path.is_dir()]
    except (ModelError, OSError):
        return []


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(path)))  # noqa: PTH111  pathlib raises for unknown users
