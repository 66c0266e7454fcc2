"""Which repositories of the hub are on this machine, looked for beside the main thread."""

from pathlib import Path

from PySide6.QtCore import QObject

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of
from rdchat.hub.cache_layout import cached_repositories, snapshot_of
from rdchat.services.background.folder_search import FolderSearch


class HereRepositories(FolderSearch):
    """See `FolderSearch`; it finds the hub ids in the hub's cache whose main snapshot has weights."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(_find, parent)

    @property
    def repositories(self) -> frozenset[str]:
        """What was found last."""
        return frozenset(self.found)


def _find() -> tuple[str, ...]:
    return tuple(each.name for each in cached_repositories() if _has_weights(snapshot_of(each.name)))


def _has_weights(snapshot: Path | None) -> bool:
    """Tell it from a folder that another tool fetched the configuration of alone."""
    try:
        entries = [] if snapshot is None else entries_of(snapshot)
        return any(path.suffix.lower() in {".safetensors", ".gguf"} and path.is_file() for path in entries)
    except (RdchatError, OSError):
        return False
