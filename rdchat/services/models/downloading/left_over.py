"""What the disk says of downloads: those left unfinished, and how much is free. Not for the main thread."""

import shutil
from dataclasses import dataclass

from rdchat import paths
from rdchat.hub.cache_layout import hub_cache, snapshot_of
from rdchat.hub.downloads.download_progress import FileProgress
from rdchat.hub.downloads.download_record import unfinished_downloads
from rdchat.hub.downloads.snapshot import is_snapshot
from rdchat.hub.downloads.wanted_downloads import WantedDownload, read_wanted
from rdchat.hub.known_files import is_repository


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An unfinished download of an earlier run, or of another program."""

    wanted: WantedDownload
    files: tuple[FileProgress, ...]


def left_over() -> tuple[LeftOver, ...]:
    """Return what the last run remembered, then what else lies unfinished in the hub's cache."""
    unfinished = {
        (record.files.repository, record.files.revision, record.gguf): (repository, record)
        for repository, record in unfinished_downloads()
        if not is_snapshot(repository, record.files)  # whole, but for the end of its record
    }
    found = []
    for wanted in read_wanted(paths.downloads_path()):
        left = unfinished.pop((wanted.repository, wanted.revision, wanted.gguf), None)
        if left or not _is_here(wanted):
            found.append(LeftOver(wanted, left[1].file_progress(left[0]) if left else ()))
    for (name, revision, gguf), (repository, record) in unfinished.items():
        other = WantedDownload(name, revision, gguf, is_model=True, goes_on=False)
        found.append(LeftOver(other, record.file_progress(repository)))
    return tuple(found)


def _is_here(wanted: WantedDownload) -> bool:
    """Tell whether it finished just before the last run of the app ended."""
    snapshot = snapshot_of(wanted.repository, wanted.revision) if is_repository(wanted.repository) else None
    return snapshot is not None and (snapshot / wanted.gguf).exists()


def free_bytes() -> int | None:
    """Return how much is free on the disk that takes what is downloaded; None where it does not say."""
    folder = hub_cache()
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue  # it is made when something is downloaded
        except OSError:
            return None
    return None
