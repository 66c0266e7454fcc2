"""The layout of the Hugging Face cache: `models--ORG--NAME`, each with three folders.

`blobs` has each content once, by its checksum; `snapshots/COMMIT` has links to them under the files' names;
`refs/REVISION` names a commit. rdchat's unfinished downloads are beside them in `.rdchat`.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError, StorageError, StorageLockedError
from rdchat.files import FileLock, make_folder, opened, readable_entries
from rdchat.hub.endpoint import hub_path
from rdchat.hub.known_files import HubFile, RepositoryFiles, is_commit, is_digest, is_repository, is_revision

WORK = ".rdchat"
# The name of a snapshot's temporary folder begins with this.
STAGING = "snapshot-"
# A reference holds a hash of 40 letters; no more bytes than these are read.
_COMMIT_BYTES = 200
_LOCK_RETRY_S = 0.05
_LOCK_ATTEMPTS = 5


def hub_cache() -> Path:
    """Return the hub's cache as `huggingface_hub.constants` does; importing that takes a third of a second."""
    return hub_path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"), "hub")


def free_bytes() -> int | None:
    """Return the free bytes on the cache's disk; None where unknown. A slow disk may block."""
    cache = hub_cache()
    try:
        return shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """A model's folder in the hub's cache; it may not exist.

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
        """The folder of rdchat's unfinished downloads."""
        return self.folder / WORK

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the folder's lock while writing to it. The system releases it if this process dies.

        Args:
            wait_s: Seconds to wait for another process that writes to it.

        Raises:
            StorageLockedError: If another process writes to it.
            StorageError: If the folder cannot be written.
        """
        until = time.monotonic() + wait_s
        failures = 0
        while True:
            try:
                make_folder(self.work)
                lock = FileLock(self.work / "lock")
            except StorageLockedError as error:
                if time.monotonic() < until:
                    time.sleep(_LOCK_RETRY_S)
                    continue
                raise StorageLockedError(
                    f"Another program is downloading {self.name}.", "Wait for it, or pause it there."
                ) from error
            except StorageError:
                # The lock's last holder may have removed the folder meanwhile.
                failures += 1
                if failures == _LOCK_ATTEMPTS:
                    raise
                continue
            if lock.is_current():
                break
            # The lock's last holder removed the folder.
            lock.release()
        with lock:
            yield

    def reference(self, revision: str) -> Path:
        return self.folder / "refs" / revision

    def commit_of(self, revision: str) -> str:
        """Return the commit of a revision in this cache; empty if unknown.

        A download of a commit leaves no reference, and other tools move `main` to a commit of which they fetch only the
        configuration, or nothing. So where the snapshot of `main` has no weights, it is the newest one without a name
        that has some. Without any, and without a reference, it is the newest one without a name.
        """
        if is_commit(revision):
            return revision
        commit = self._referenced(revision)
        if revision != "main" or _weights_in(self.snapshots / commit):
            return commit
        named = self.references()
        unnamed = [folder for folder in folders_in(self.snapshots) if folder.name not in named]
        newest = max(unnamed, key=lambda folder: (bool(_weights_in(folder)), folder.stat().st_mtime), default=None)
        return newest.name if newest and (not commit or _weights_in(newest)) else commit

    def _referenced(self, revision: str) -> str:
        """Return the commit that a reference holds; empty where it is missing or damaged."""
        if not is_revision(revision):
            return ""
        try:
            with opened(self.reference(revision)) as file:
                commit = file.read(_COMMIT_BYTES).decode("ascii").strip()
        except (OSError, ValueError):
            return ""
        # It becomes a path.
        return commit if commit.isalnum() else ""

    def references(self) -> dict[str, list[str]]:
        """Return the names of the revisions of each commit."""
        revisions: dict[str, list[str]] = {}
        base = self.folder / "refs"
        for path in base.rglob("*"):
            revision = path.relative_to(base).as_posix()
            if commit := self._referenced(revision):
                revisions.setdefault(commit, []).append(revision)
        return {commit: sorted(names) for commit, names in revisions.items()}

    def commits(self) -> list[str]:
        """Return the commits with a snapshot."""
        return [folder.name for folder in folders_in(self.snapshots)]

    def blobs_of(self, commit: str) -> dict[str, str]:
        """Return the name of the blob for each file of a snapshot that is a link into this repository's `blobs`."""
        snapshot = self.snapshots / commit
        blobs = {path.relative_to(snapshot).as_posix(): self.linked_blob(path) for path in snapshot.rglob("*")}
        return {name: digest for name, digest in blobs.items() if digest}

    def holds(self, files: RepositoryFiles) -> bool:
        """Return whether the snapshot has each of these files in its size, and the revision names the snapshot."""
        snapshot = self.snapshots / files.commit
        try:
            return self.commit_of(files.revision) == files.commit and all(
                (snapshot / file.name).stat().st_size == file.size for file in files.files
            )
        except OSError:
            return False

    def bytes_of(self, file: HubFile) -> int:
        """Return how many bytes of a file are on disk, whole or in part, by size alone."""
        for path in (self.blobs / file.digest, self.work / f"{file.digest}.part"):
            with suppress(OSError):
                if (size := path.stat().st_size) <= file.size:
                    return size
        return 0

    def remove_if_empty(self) -> None:
        """Remove the folder if it holds no model and no download. The caller holds the lock."""
        # A folder with content cannot be removed.
        with suppress(OSError):
            if any(path.name != "lock" for path in self.work.iterdir()):
                return
            for folder in (self.blobs, self.snapshots, self.folder / "refs"):
                if folder.is_dir():
                    folder.rmdir()
            (self.work / "lock").unlink(missing_ok=True)
            self.work.rmdir()
            self.folder.rmdir()

    def linked_blob(self, path: Path) -> str:
        """Return the name of the blob that a link points to; empty for other links and files."""
        try:
            target = Path(os.path.normpath(path.parent / path.readlink()))
        except OSError:
            return ""
        return target.name if target.parent == self.blobs and is_digest(target.name) else ""


def repository_of(name: str) -> CachedRepository:
    """Return a model's folder in the hub's cache; other tools store the hub's first models as NAME only.

    Raises:
        ModelError: If it is not a hub id.
    """
    if not is_repository(name if "/" in name else f"first/{name}"):
        raise ModelError(f"{name[:200]} is not the name of a model on Hugging Face.", "Write it as ORG/NAME.")
    return _folder_of(name)


def _folder_of(name: str) -> CachedRepository:
    return CachedRepository(name, hub_cache() / f"models--{name.replace('/', '--')}")


def cached_repositories() -> Iterator[CachedRepository]:
    """Yield the models in the hub's cache, complete or not."""
    for folder in folders_in(hub_cache()):
        kind, *parts = folder.name.split("--")
        if kind == "models" and parts:
            yield CachedRepository("/".join(parts), folder)


def snapshot_of(name: str) -> Path | None:
    """Return the main snapshot's folder of a model in the hub's cache; None if it is not there."""
    repository = _folder_of(name)
    commit = repository.commit_of("main")
    snapshot = repository.snapshots / commit
    return snapshot if commit and snapshot.is_dir() else None


def downloaded_repositories() -> tuple[str, ...]:
    """Return the hub ids whose main snapshot has weights; other tools may download only configurations."""
    names = []
    for repository in cached_repositories():
        snapshot = snapshot_of(repository.name)
        if snapshot and any(path.is_file() for path in _weights_in(snapshot)):
            names.append(repository.name)
    return tuple(names)


def _weights_in(snapshot: Path) -> list[Path]:
    """Return the links of a snapshot's weights, also those that are broken, as after a deletion that was ended."""
    return [path for path in readable_entries(snapshot) if path.suffix.lower() == ".safetensors"]


def folders_in(parent: Path) -> list[Path]:
    """Return the folders inside a folder, by name, without hidden ones; none if it is missing or unreadable."""
    return [path for path in readable_entries(parent) if not path.name.startswith(".") and path.is_dir()]
