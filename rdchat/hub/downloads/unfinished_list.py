"""The list of unfinished downloads that the app shows at its start.

The file lists the unfinished downloads of the last run; those that were running then are resumed.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.foreign_files import read_json
from rdchat.hub.cache_layout import snapshot_of
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_record import unfinished_downloads
from rdchat.hub.downloads.snapshot import is_snapshot
from rdchat.hub.known_files import is_repository, is_revision

_MOST_BYTES = 2**20


def unfinished_of(downloads: Iterable[Download]) -> list[dict[str, Any]]:
    """Return the unfinished downloads as JSON."""
    return [
        {
            "repository": download.repository,
            "revision": download.revision,
            "gguf": download.gguf,
            "is_model": download.is_model,
            "goes_on": not download.state.has_ended,
        }
        for download in downloads
        if download.state is not DownloadState.FINISHED
    ]


def write_unfinished(path: Path, unfinished: list[dict[str, Any]]) -> None:
    """Write the list of `unfinished_of`; an empty list removes the file.

    Raises:
        StorageError: If the disk does not take it.
    """
    if not unfinished:
        path.unlink(missing_ok=True)
        return
    make_folder(path.parent)
    write_json(path, {"downloads": unfinished})


def read_unfinished(path: Path) -> tuple[Download, ...]:
    """Return the downloads in the file, then others in the hub's cache; those to resume are `WAITING`."""
    found = {}
    for repository, record in unfinished_downloads():
        if not is_snapshot(repository, record.files):  # whole, but for the end of its record
            other = Download(record.files.repository, record.files.revision, record.gguf, state=DownloadState.PAUSED)
            found[other.id] = replace(other, files=record.files_here(repository))
    listed = []
    for download in _read(path):
        left = found.pop(download.id, None)
        if left is not None or not _is_here(download):
            listed.append(replace(download, files=left.files if left else ()))
    return tuple(each for each in (*listed, *found.values()) if _is_named(each))


def _read(path: Path) -> list[Download]:
    try:
        return [_parsed(fields) for fields in read_json(path, most=_MOST_BYTES)["downloads"]]
    except (RdchatError, OSError, KeyError, TypeError, ValueError):
        return []


def _parsed(fields: Any) -> Download:
    repository, revision, gguf = (str(fields[name]) for name in ("repository", "revision", "gguf"))
    state = DownloadState.WAITING if fields["goes_on"] else DownloadState.PAUSED
    return Download(repository, revision, gguf, bool(fields["is_model"]), state)


def _is_named(download: Download) -> bool:
    return is_repository(download.repository) and is_revision(download.revision)


def _is_here(download: Download) -> bool:
    """Tell whether it finished just before the last run of the app ended."""
    snapshot = snapshot_of(download.repository, download.revision) if is_repository(download.repository) else None
    return snapshot is not None and (snapshot / download.gguf).exists()
