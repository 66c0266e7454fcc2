"""Unfinished downloads on disk: the records from which they resume, and the list that the app reads."""

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.foreign_files import read_json, readable_entries
from rdchat.hub.cache_layout import CachedRepository, cached_repositories, snapshot_of
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.downloads.parts_order import drafter_place, is_complete, orders_here
from rdchat.hub.known_files import (
    MOST_FILE_BYTES,
    HubFile,
    RepositoryFiles,
    is_commit,
    is_digest,
    is_repository,
    is_revision,
    is_safe_name,
)

STAGING = "snapshot-"  # prefix of the temporary folder of a snapshot
_START, _END = "download-", ".json"
_OURS = re.compile(rf"([0-9a-f]{{40}}|[0-9a-f]{{64}})\.(part|json)|{_START}.*\.(json|checked)|{STAGING}.*")
_MOST_BYTES = 2**25  # a record with 10,000 files of the longest names
_LISTED = ("repository", "revision", "gguf", "is_model", "drafter")  # fields in the app's list


def files_here(repository: CachedRepository, files: RepositoryFiles) -> tuple[DownloadFile, ...]:
    """Return the files of a download with the bytes on disk; partial files count."""
    return tuple(DownloadFile(file.name, bytes_on_disk(repository, file), file.size) for file in files.contents)


def write_record(repository: CachedRepository, files: RepositoryFiles) -> None:
    """Write the record of an unfinished download: its files, at the commit found when it started.

    Raises:
        StorageError: If it cannot be written.
    """
    make_folder(repository.work)
    fields = {
        "repository": files.repository,
        "revision": files.revision,
        "commit": files.commit,
        "files": [[file.name, file.size, file.digest] for file in files.files],
        "left_out": list(files.left_out),
        "gguf": files.gguf,
        "checked": [],  # earlier versions read it
    }
    gguf = f"-{hashlib.sha256(files.gguf.encode()).hexdigest()[:16]}" if files.gguf else ""
    write_json(repository.work / f"{_START}{files.commit}{gguf}{_END}", fields)


def bytes_on_disk(repository: CachedRepository, file: HubFile) -> int:
    """Return how many bytes of a file are on disk, whole or in part, by size alone."""
    for path in (repository.blobs / file.digest, repository.work / f"{file.digest}.part"):
        with suppress(OSError):
            if (size := path.stat().st_size) <= file.size:
                return size
    return 0


def records_of(repository: CachedRepository) -> list[RepositoryFiles]:
    """Return a repository's unfinished downloads."""
    records = filter(None, _read_all(repository).values())
    return [record for record in records if record.repository == repository.name]


def unfinished_downloads() -> Iterator[tuple[CachedRepository, RepositoryFiles]]:
    """Yield the unfinished downloads in the hub's cache, without those that are complete except for their record."""
    for repository in cached_repositories():
        for record in records_of(repository):
            if not repository.holds(record):
                yield repository, record


def remove_record(repository: CachedRepository, record: RepositoryFiles) -> None:
    """Remove a record. Earlier versions named the record of a GGUF file differently."""
    for path, other in _read_all(repository).items():
        if other and (other.commit, other.gguf) == (record.commit, record.gguf):
            path.unlink(missing_ok=True)


def discard(repository: CachedRepository, revision: str = "", gguf: str = "") -> None:
    """Remove the files of one or all unfinished downloads, except those that a snapshot or another download needs.

    The caller holds the lock.

    Args:
        repository: The repository.
        revision: The revision that was asked for; empty for all unfinished downloads.
        gguf: The GGUF file that was asked for.
    """
    for record in records_of(repository):
        if not revision or record.is_of(revision, gguf):
            give_up(repository, record)
    remove_unused_files(repository)
    if not _used_blobs(repository):
        remove_if_empty(repository)


def give_up(repository: CachedRepository, record: RepositoryFiles) -> None:
    """Remove a record and the files that only it needs. The caller holds the lock."""
    remove_record(repository, record)
    others = _read_all(repository)
    if not any(other is None and _may_name_files(path) for path, other in others.items()):
        needed = _used_blobs(repository).union(*(other.digests for other in others.values() if other))
        for digest in record.digests - needed:
            (repository.blobs / digest).unlink(missing_ok=True)


def unused_files(repository: CachedRepository) -> list[Path]:
    """Return files in `.rdchat` that no record names, damaged records, and files of earlier versions only.

    Records count whatever the case of their repository's name, because some disks ignore case. If one of them cannot be
    read or is of a newer rdchat, nothing is returned.
    """
    records = _read_all(repository)
    needed = set[str]()
    for path, record in records.items():
        if record:
            parts = (f"{digest}.part" for digest in record.digests)
            needed |= {path.name, f"{STAGING}{record.commit}", *parts}
        elif _may_name_files(path):
            return []
    found = readable_entries(repository.work)
    return [path for path in found if _OURS.fullmatch(path.name) and path.name not in needed]


def remove_unused_files(repository: CachedRepository) -> None:
    """Remove the files that no record names. The caller holds the lock."""
    for path in unused_files(repository):
        with suppress(OSError):  # the next call tries again
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def remove_if_empty(repository: CachedRepository) -> None:
    """Remove a repository's folder if it holds no model and no download. The caller holds the lock."""
    with suppress(OSError):  # one of them has content
        if any(path.name != "lock" for path in repository.work.iterdir()):
            return
        for folder in (repository.blobs, repository.snapshots, repository.folder / "refs"):
            if folder.is_dir():
                folder.rmdir()
        (repository.work / "lock").unlink(missing_ok=True)
        repository.work.rmdir()
        repository.folder.rmdir()


def _used_blobs(repository: CachedRepository) -> set[str]:
    return {digest for commit in repository.commits() for digest in repository.blobs_of(commit).values()}


def _read_all(repository: CachedRepository) -> dict[Path, RepositoryFiles | None]:
    """Return the records in a folder, whatever repository they name; None for one that cannot be read."""
    found = readable_entries(repository.work)
    return {path: _read(path) for path in found if path.name.startswith(_START) and path.name.endswith(_END)}


def _may_name_files(path: Path) -> bool:
    """Return whether an unreadable record may be from a newer rdchat, or readable later."""
    try:
        fields = read_json(path, most=_MOST_BYTES)
    except RdchatError as error:
        return isinstance(error.__cause__, OSError)
    except OSError:
        return True
    return isinstance(fields, dict) and "files" in fields


def _read(path: Path) -> RepositoryFiles | None:
    """Read a record; None if it is damaged: then the hub is asked again."""
    try:
        return _parsed(read_json(path, most=_MOST_BYTES))
    except (RdchatError, OSError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _parsed(fields: Any) -> RepositoryFiles:
    """Parse a record; raises ValueError for an invalid name, size or checksum, since these become paths."""
    files = tuple(HubFile(str(name), int(size), str(digest)) for name, size, digest in fields["files"])
    repository, revision, commit = (str(fields[name]) for name in ("repository", "revision", "commit"))
    left_out = tuple(map(str, fields["left_out"]))
    if not is_revision(revision) or not is_commit(commit):
        raise ValueError("no revision")
    if not all(is_safe_name(file.name) and is_digest(file.digest) for file in files):
        raise ValueError("no files")
    if not all(0 <= file.size <= MOST_FILE_BYTES for file in files):
        raise ValueError("no sizes")
    if len({file.name.casefold() for file in files}) < len(files):
        raise ValueError("two files of one name")
    return RepositoryFiles(repository, revision, commit, files, left_out, str(fields["gguf"]))


def unfinished_of(downloads: Iterable[Download]) -> list[dict[str, Any]]:
    """Return the unfinished downloads as JSON, for the list that the app reads at its next start."""
    return [
        {name: getattr(download, name) for name in _LISTED} | {"goes_on": not download.state.has_ended}
        for download in downloads
        if download.state is not DownloadState.FINISHED
    ]


def write_unfinished(path: Path, unfinished: list[dict[str, Any]]) -> None:
    """Write the list of `unfinished_of`; an empty list removes the file.

    Raises:
        StorageError: If it cannot be written.
    """
    if unfinished:
        make_folder(path.parent)
        write_json(path, {"downloads": unfinished})
    else:
        path.unlink(missing_ok=True)


def read_unfinished(path: Path) -> tuple[Download, ...]:
    """Return the downloads in the list, then others on disk; those to resume are `WAITING`."""
    found = {}
    for drafter, place, order in orders_here():
        other = Download(place.name, order.commit, is_model=False, state=DownloadState.PAUSED, drafter=drafter)
        weights = order.weights
        here = DownloadFile(weights.name, bytes_on_disk(place, weights), weights.size)
        found[other.id] = replace(other, files=(here,))
    for repository, record in unfinished_downloads():
        other = Download(repository.name, record.revision, record.gguf, state=DownloadState.PAUSED)
        if is_repository(repository.name):
            found[other.id] = replace(other, files=files_here(repository, record))
    listed = []
    for download in _read_list(path):
        left = found.pop(download.id, None)
        if left is not None or not _has_finished(download):
            # a newer order of the same drafter may be from another repository or commit than the list says
            wanted = replace(left, state=download.state) if left and left.drafter else download
            listed.append(replace(wanted, files=left.files if left else ()))
    return (*listed, *found.values())


def _has_finished(download: Download) -> bool:
    """Return whether a download finished just before the last run ended."""
    if download.drafter:
        return is_complete(drafter_place(download.repository, download.drafter))
    snapshot = snapshot_of(download.repository, download.revision)
    return snapshot is not None and (snapshot / download.gguf).exists()


def _read_list(path: Path) -> list[Download]:
    downloads = []
    try:
        for fields in read_json(path, most=_MOST_BYTES)["downloads"]:
            repository, revision, gguf = (str(fields[name]) for name in _LISTED[:3])
            state = DownloadState.WAITING if fields["goes_on"] else DownloadState.PAUSED
            drafter = str(fields.get("drafter", ""))  # earlier versions wrote none
            if is_repository(repository) and is_revision(revision) and (not drafter or is_safe_name(drafter)):
                wanted = (repository, revision, gguf, bool(fields["is_model"]))
                downloads.append(Download(*wanted, state, drafter=drafter))
    except (RdchatError, OSError, KeyError, TypeError, ValueError):
        return []
    return downloads
