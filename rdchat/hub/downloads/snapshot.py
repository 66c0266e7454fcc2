"""Makes a snapshot of whole files: links by their names, and last of all the reference by which it is found.

Until then nobody finds a model here, so none is ever half-installed.
"""

import os
import secrets
import shutil
from pathlib import Path

from rdchat.errors import StorageError
from rdchat.files.file_errors import file_error
from rdchat.host import flush_to_disk
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download_record import STAGING
from rdchat.hub.known_files import HubFile, RepositoryFiles, is_commit


def make_snapshot(repository: CachedRepository, files: RepositoryFiles) -> Path:
    """Return the snapshot's folder, complete and known by its revision. All blobs are here and checked.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written.
    """
    snapshot = repository.snapshots / files.commit
    try:
        if snapshot.is_dir() and not snapshot.is_symlink():  # another tool began it
            for file in files.files:
                _place(repository, snapshot, file)
        else:
            _make_whole(repository, snapshot, files)
        if not is_commit(files.revision):
            _refer(repository.reference(files.revision), files.commit)
    except OSError as error:
        raise file_error(error, f"{snapshot} cannot be made", "Check its permissions and its disk.") from error
    return snapshot


def is_snapshot(repository: CachedRepository, files: RepositoryFiles) -> bool:
    """Tell whether each file of a snapshot has its size, and the revision names the snapshot."""
    snapshot = repository.snapshots / files.commit
    try:
        return repository.commit_of(files.revision) == files.commit and all(
            (snapshot / file.name).stat().st_size == file.size for file in files.files
        )
    except OSError:
        return False


def _make_whole(repository: CachedRepository, snapshot: Path, files: RepositoryFiles) -> None:
    """Make the snapshot in one rename."""
    staging = repository.work / f"{STAGING}{files.commit}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for file in files.files:
        target = staging / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(repository, file, target, up=2 + file.name.count("/"))
    flush_to_disk(staging)
    snapshot.parent.mkdir(exist_ok=True)
    staging.rename(snapshot)
    flush_to_disk(snapshot.parent)


def _place(repository: CachedRepository, snapshot: Path, file: HubFile) -> None:
    """Put one file into an existing snapshot, replacing any other file of that name."""
    path = snapshot / file.name
    if repository.linked_blob(path) == file.digest:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent != snapshot and path.parent.is_symlink():
        raise StorageError(f"{path.parent} is a link, where a folder belongs.", "Delete it and try again.")
    if path.is_dir() and not path.is_symlink():
        raise StorageError(f"{path} is a folder, where a file belongs.", "Delete it and try again.")
    temporary = path.with_name(f".{secrets.token_hex(8)}.link")
    try:
        _link(repository, file, temporary, up=2 + file.name.count("/"))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(repository: CachedRepository, file: HubFile, target: Path, up: int) -> None:
    """Link to a blob, relatively as the hub's tools do; on a disk that knows no links, copy it."""
    try:
        target.symlink_to(Path(*[".."] * up, "blobs", file.digest))
    except OSError:
        shutil.copyfile(repository.blobs / file.digest, target)
        flush_to_disk(target)


def _refer(reference: Path, commit: str) -> None:
    reference.parent.mkdir(parents=True, exist_ok=True)
    temporary = reference.with_name(f".{secrets.token_hex(8)}.ref")
    try:
        temporary.write_text(commit, encoding="ascii")
        flush_to_disk(temporary)
        os.replace(temporary, reference)  # noqa: PTH105  as in one breath
        flush_to_disk(reference.parent)
    finally:
        temporary.unlink(missing_ok=True)
