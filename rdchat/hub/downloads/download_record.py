"""The record of an unfinished download on disk, from which it is resumed."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.foreign_files import entries_of, read_bytes, read_json
from rdchat.hub.cache_layout import CachedRepository, cached_repositories
from rdchat.hub.downloads.download import DownloadFile
from rdchat.hub.known_files import (
    MOST_FILE_BYTES,
    HubFile,
    RepositoryFiles,
    is_commit,
    is_digest,
    is_revision,
    is_safe_name,
)

STAGING = "snapshot-"  # begins the name of the folder in which a snapshot is made
_START, _END, _CHECKED = "download-", ".json", ".checked"
_MOST_BYTES = 2**25  # of 10,000 files with the longest names


@dataclass(frozen=True, slots=True)
class DownloadRecord:
    """An unfinished download.

    Attributes:
        files: What is fetched, at the commit that was found when it was begun.
        gguf: The GGUF file that was asked for by name; empty where none was.
        checked: Digests of the blobs whose checksums were found right.
    """

    files: RepositoryFiles
    gguf: str = ""
    checked: frozenset[str] = frozenset()

    def is_of(self, revision: str, gguf: str) -> bool:
        """Tell whether it is the unfinished download of this revision and this GGUF file."""
        return revision in {self.files.revision, self.files.commit} and gguf == self.gguf

    @property
    def digests(self) -> frozenset[str]:
        """Of all its files."""
        return frozenset(file.digest for file in self.files.files)

    def done_bytes(self, repository: CachedRepository) -> int:
        """Return how many of its bytes are here; partial files count."""
        return sum(here_bytes(repository, file) for file in self.files.contents)

    def files_here(self, repository: CachedRepository) -> tuple[DownloadFile, ...]:
        """Return its files with how much of each is here."""
        return tuple(DownloadFile(file.name, here_bytes(repository, file), file.size) for file in self.files.contents)

    def with_checked(self, digests: Iterable[str]) -> "DownloadRecord":
        return replace(self, checked=self.checked.union(digests))

    def note_checked(self, repository: CachedRepository, digest: str) -> None:
        """Note one more checked blob without rewriting the record, which may list thousands of files.

        Raises:
            OSError: If the disk does not take it.
        """
        path = _path(repository, self).with_suffix(_CHECKED)
        # not through a link that lies there: its file is somebody else's
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, f"{digest}\n".encode())
        finally:
            os.close(descriptor)

    def write(self, repository: CachedRepository) -> None:
        """Keep it.

        Raises:
            StorageError: If the disk does not take it.
        """
        make_folder(repository.work)
        files = self.files
        fields = {
            "repository": files.repository,
            "revision": files.revision,
            "commit": files.commit,
            "files": [[file.name, file.size, file.digest] for file in files.files],
            "left_out": list(files.left_out),
            "gguf": self.gguf,
            "checked": sorted(self.checked),
        }
        write_json(_path(repository, self), fields)
        _path(repository, self).with_suffix(_CHECKED).unlink(missing_ok=True)
        _remove_earlier(repository, self)


def here_bytes(repository: CachedRepository, file: HubFile) -> int:
    """Return how many bytes of a file are here, whole or in part, by the sizes alone."""
    blob, partial = repository.blobs / file.digest, repository.work / f"{file.digest}.part"
    for path in (blob, partial):
        try:
            if (size := path.stat().st_size) <= file.size:
                return size
        except OSError:
            continue
    return 0


def records_of(repository: CachedRepository) -> list[DownloadRecord]:
    """Return a repository's unfinished downloads."""
    return [record for record in _read_all(repository)[0] if record.files.repository == repository.name]


def unfinished_downloads() -> Iterator[tuple[CachedRepository, DownloadRecord]]:
    """Yield all unfinished downloads in the hub's cache."""
    for repository in cached_repositories():
        for record in records_of(repository):
            yield repository, record


def remove_record(repository: CachedRepository, record: DownloadRecord) -> None:
    for ending in (_END, _CHECKED):
        _path(repository, record).with_suffix(ending).unlink(missing_ok=True)
    _remove_earlier(repository, record)


def discard(repository: CachedRepository, revision: str = "", gguf: str = "") -> None:
    """Remove the files of one or all unfinished downloads, except those that a snapshot or another download needs.

    The caller holds the lock.

    Args:
        repository: Whose.
        revision: That was asked for; empty for all unfinished downloads.
        gguf: The GGUF file that was asked for.
    """
    give_up(repository, [record for record in records_of(repository) if not revision or record.is_of(revision, gguf)])
    if not _used_blobs(repository):
        remove_if_empty(repository)


def give_up(repository: CachedRepository, records: Iterable[DownloadRecord]) -> None:
    """Remove these records and the files that only they need. The caller holds the lock."""
    given_up = list(records)
    read, damaged = _read_all(repository)
    others = [record for record in read if record not in given_up]
    all_known = all(map(_names_nothing, damaged))
    needed = _used_blobs(repository).union(*(record.digests for record in others))
    for record in given_up:
        for digest in record.checked - needed if all_known else ():
            (repository.blobs / digest).unlink(missing_ok=True)
        remove_record(repository, record)
    remove_strays(repository)


def strays_of(repository: CachedRepository) -> list[Path]:
    """Return files in `.rdchat` that no record names, and damaged records.

    Records of the folder count whatever case their repository's name is in, as some disks do not tell cases apart.
    While one of them cannot be read, or is of a newer rdchat, nothing is a stray.
    """
    records, damaged = _read_all(repository)
    if not all(map(_names_nothing, damaged)):
        return []
    digests = frozenset[str]().union(*(record.digests for record in records))
    commits = {record.files.commit for record in records}
    return [*damaged, *(path for path in _work_of(repository) if _is_stray(path, digests, commits))]


def remove_strays(repository: CachedRepository) -> None:
    """Remove the files that no record names. The caller holds the lock."""
    for path in strays_of(repository):
        with suppress(OSError):  # the next one tries again
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def remove_if_empty(repository: CachedRepository) -> None:
    """Remove a repository's folder if it holds no model and no download. The caller holds the lock."""
    with suppress(OSError):  # something is in one of them
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


def _is_stray(path: Path, digests: frozenset[str], commits: set[str]) -> bool:
    if is_digest(path.stem) and path.suffix in {".part", ".json"}:
        return path.stem not in digests
    if path.name.startswith(_START) and path.suffix == _CHECKED:
        return not path.with_suffix(_END).exists()
    if path.name.startswith(STAGING):
        return path.name.removeprefix(STAGING) not in commits
    return False


def _work_of(repository: CachedRepository) -> list[Path]:
    try:
        return entries_of(repository.work)
    except (RdchatError, OSError):
        return []


def _read_all(repository: CachedRepository) -> tuple[list[DownloadRecord], list[Path]]:
    """Return the records in a folder, whatever repository they name, and the paths of those that say nothing."""
    paths = [path for path in _work_of(repository) if path.name.startswith(_START) and path.name.endswith(_END)]
    read = {path: _read(path) for path in paths}
    return [record for record in read.values() if record], [path for path, record in read.items() if not record]


def _names_nothing(path: Path) -> bool:
    """Tell whether a damaged record is certainly none. An unreadable file, or one that names files, may be one."""
    try:
        fields = read_json(path, most=_MOST_BYTES)
    except RdchatError as error:
        return not isinstance(error.__cause__, OSError)
    except OSError:
        return False
    return not isinstance(fields, dict) or "files" not in fields


def _path(repository: CachedRepository, record: DownloadRecord) -> Path:
    name = f"-{hashlib.sha256(record.gguf.encode()).hexdigest()[:16]}" if record.gguf else ""
    return repository.work / f"{_START}{record.files.commit}{name}{_END}"


def _remove_earlier(repository: CachedRepository, record: DownloadRecord) -> None:
    """Remove the record of a GGUF file that an earlier rdchat kept, as the only one of its commit."""
    earlier = repository.work / f"{_START}{record.files.commit}{_END}"
    if record.gguf and (found := _read(earlier)) and found.gguf == record.gguf:
        earlier.unlink()


def _read(path: Path) -> DownloadRecord | None:
    """Read a record; None where it is damaged: then the hub is asked again."""
    try:
        record = _parsed(read_json(path, most=_MOST_BYTES))
    except (RdchatError, OSError, KeyError, TypeError, ValueError, OverflowError):
        return None
    try:
        lines = read_bytes(path.with_suffix(_CHECKED), most=_MOST_BYTES).decode("ascii", "replace").split("\n")
    except RdchatError:
        return record  # there are none since the record was written
    return record.with_checked(record.digests.intersection(lines))


def _parsed(fields: Any) -> DownloadRecord:
    """Parse a record; raises ValueError for an invalid name, size or checksum, since these become paths."""
    files = tuple(HubFile(str(name), int(size), str(digest)) for name, size, digest in fields["files"])
    listed = RepositoryFiles(
        str(fields["repository"]),
        str(fields["revision"]),
        str(fields["commit"]),
        files,
        tuple(map(str, fields["left_out"])),
    )
    if not is_revision(listed.revision) or not is_commit(listed.commit):
        raise ValueError("no revision")
    if not all(is_safe_name(file.name) and is_digest(file.digest) for file in files):
        raise ValueError("no files")
    if not all(0 <= file.size <= MOST_FILE_BYTES for file in files):
        raise ValueError("no sizes")
    if len({file.name.casefold() for file in files}) < len(files):
        raise ValueError("two files of one name")
    record = DownloadRecord(listed, str(fields["gguf"]))
    return record.with_checked(record.digests.intersection(map(str, fields["checked"])))
