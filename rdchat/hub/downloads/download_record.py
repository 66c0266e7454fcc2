"""Unfinished downloads on disk: the records from which they resume, each beside its partial files.

A record is the JSON of a `RepositoryFiles`, in `.rdchat` in the folder of its repository. It is read as a foreign file,
because its names become paths. Both the app and the process that downloads read and write records.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files import make_folder, plain, read_json, readable_entries, write_json
from rdchat.hub.cache_layout import STAGING, CachedRepository, cached_repositories, repository_of
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.known_files import (
    MAX_FILE_BYTES,
    RepositoryFiles,
    is_commit,
    is_digest,
    is_repository,
    is_revision,
    is_safe_name,
)

# Names of records begin and end so.
_START = "download-"
_END = ".json"
# The names of files in `.rdchat` that rdchat wrote; no others are removed.
_OURS = re.compile(rf"([0-9a-f]{{40}}|[0-9a-f]{{64}})\.(part|json)|{_START}.*\.json|{STAGING}.*")
# Enough for a record with 10,000 files of the longest names.
_MAX_BYTES = 2**25


def files_here(repository: CachedRepository, files: RepositoryFiles) -> tuple[DownloadFile, ...]:
    """Return the files of a download with the bytes on disk; partial files count."""
    return tuple(DownloadFile(file.name, repository.bytes_of(file), file.size) for file in files.contents)


def write_record(repository: CachedRepository, files: RepositoryFiles) -> None:
    """Write the record of an unfinished download, in place of an older one.

    Its file is named by a hash of revision and drafter, so each has one record.

    Raises:
        StorageError: If it cannot be written.
    """
    make_folder(repository.work)
    named = f"{files.revision}\n" + (f"\n{files.drafter}" if files.drafter else "")
    request = hashlib.sha256(named.encode()).hexdigest()[:16]
    write_json(repository.work / f"{_START}{request}{_END}", asdict(files))


def begin_record(repository: CachedRepository, download: Download, *, paused: bool) -> None:
    """Note on disk that a download was started, before the hub has listed its files, or that it waits for the person.

    A record that is there gets the value of `paused`. Where there is none, only the start of a model makes one, without
    files: a pause must not bring a deleted record back, and a drafter's record comes from `begin_drafter`.

    A download that begins needs no lock: one write replaces the record. For a pause the caller holds the lock, so that
    a record that is being deleted does not come back.

    Raises:
        StorageError: If it cannot be written.
    """
    record = record_of(repository, download)
    if record is None and not (paused or download.drafter):
        record = RepositoryFiles(repository.name, download.revision, "", (), (), download.is_model)
    if record is not None and record.paused != paused:
        write_record(repository, replace(record, paused=paused))


def begin_drafter(files: RepositoryFiles) -> Download:
    """Write the record of a drafter to be made, in place of older ones, and return the download to start.

    Raises:
        StorageError: If it cannot be written, or another program downloads for an older one.
    """
    write_record(repository_of(files.repository), files)
    for repository, record in unfinished_downloads():
        if record.drafter == files.drafter and record.request != files.request:
            with repository.locked():
                discard(repository, Download(record.repository, record.revision, drafter=record.drafter))
    return Download(files.repository, files.revision, is_model=False, drafter=files.drafter)


def records_of(repository: CachedRepository) -> list[RepositoryFiles]:
    """Return a repository's unfinished downloads."""
    return [record for record in _read_all(repository).values() if record and record.repository == repository.name]


def record_of(repository: CachedRepository, download: Download) -> RepositoryFiles | None:
    """Return the record of a download; None without one."""
    for record in records_of(repository):
        if download.revision in {record.revision, record.commit} and download.drafter == record.drafter:
            return record
    return None


def unfinished_downloads() -> Iterator[tuple[CachedRepository, RepositoryFiles]]:
    """Yield the unfinished downloads in the hub's cache, without those that are complete except for their record."""
    for repository in cached_repositories():
        for record in records_of(repository):
            if record.drafter or not record.commit or not repository.holds(record):
                yield repository, record


def has_unfinished() -> bool:
    """Return whether there is an unfinished download on disk."""
    return any(is_repository(record.repository) for _, record in unfinished_downloads())


def listed_downloads() -> tuple[Download, ...]:
    """Return the unfinished downloads on disk; those to resume are `WAITING`."""
    return tuple(
        Download(
            record.repository,
            record.revision,
            record.is_model,
            DownloadState.PAUSED if record.paused else DownloadState.WAITING,
            files=files_here(repository, record),
            drafter=record.drafter,
        )
        for repository, record in unfinished_downloads()
        if is_repository(repository.name)
    )


def remove_record(repository: CachedRepository, record: RepositoryFiles) -> None:
    """Remove a record."""
    for path, other in _read_all(repository).items():
        if other and other.commit == record.commit and other.request == record.request:
            path.unlink(missing_ok=True)


def discard(repository: CachedRepository, download: Download | None = None) -> None:
    """Remove the files of one or all unfinished downloads, except those that a snapshot or another download needs.

    It removes the records, their blobs that nothing else needs, partial files, and at last the folder if nothing is
    left in it. The caller holds the lock.

    Args:
        repository: The repository.
        download: The one to remove; None for all unfinished downloads.
    """
    records = records_of(repository) if download is None else [record_of(repository, download)]
    for record in filter(None, records):
        remove_record(repository, record)
        others = _read_all(repository)
        # A record that cannot be read may name any of the files.
        if not any(other is None and _may_name_files(path) for path, other in others.items()):
            needed = _used_blobs(repository).union(*(other.digests for other in others.values() if other))
            for digest in record.digests - needed:
                (repository.blobs / digest).unlink(missing_ok=True)
    remove_unused_files(repository)
    if not _used_blobs(repository):
        repository.remove_if_empty()


def unused_files(repository: CachedRepository) -> list[Path]:
    """Return files in `.rdchat` that no record names, and damaged records.

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
    entries = readable_entries(repository.work)
    return [path for path in entries if _OURS.fullmatch(path.name) and path.name not in needed]


def remove_unused_files(repository: CachedRepository) -> None:
    """Remove the files that no record names. The caller holds the lock."""
    for path in unused_files(repository):
        with suppress(OSError):
            # The next call tries again.
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _used_blobs(repository: CachedRepository) -> set[str]:
    """Return the names of the blobs that snapshots link to."""
    return {digest for commit in repository.commits() for digest in repository.blobs_of(commit).values()}


def _read_all(repository: CachedRepository) -> dict[Path, RepositoryFiles | None]:
    """Return the records in a folder, whatever repository they name; None for one that cannot be read."""
    entries = readable_entries(repository.work)
    return {path: _read(path) for path in entries if path.name.startswith(_START) and path.name.endswith(_END)}


def _may_name_files(path: Path) -> bool:
    """Return whether an unreadable record may name files.

    It may if it is JSON with `files`, as of a newer rdchat, or if the system could not read it, which may pass.
    """
    try:
        fields = read_json(path, max_size=_MAX_BYTES)
    except RdchatError as error:
        return isinstance(error.__cause__, OSError)
    except OSError:
        return True
    return isinstance(fields, dict) and "files" in fields


def _read(path: Path) -> RepositoryFiles | None:
    """Read a record; None if it is damaged: then the hub is asked again."""
    try:
        return _parsed(read_json(path, max_size=_MAX_BYTES))
    except (RdchatError, OSError, TypeError, ValueError):
        return None


def _parsed(fields: Any) -> RepositoryFiles:
    """Parse a record; raises ValueError for an invalid name, size or checksum, since these become paths."""
    # Older records say nothing of a drafter.
    record = plain(RepositoryFiles, {"drafter": "", "config": "", "card": ""} | fields)
    files = record.files
    if not is_revision(record.revision) or not (is_commit(record.commit) if files else not record.commit):
        raise ValueError("no revision")
    if record.drafter and not (is_safe_name(record.drafter) and files):
        raise ValueError("no drafter")
    if not all(
        is_safe_name(file.name) and is_digest(file.digest) and 0 <= file.size <= MAX_FILE_BYTES for file in files
    ):
        raise ValueError("no files")
    if len({file.name.casefold() for file in files}) < len(files):
        raise ValueError("two files of one name")
    return record
