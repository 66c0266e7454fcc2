"""Which repositories of the hub are on this machine, looked for beside the main thread."""

from PySide6.QtCore import QObject

from rdchat.hub.cache_layout import cached_repositories, snapshot_of
from rdchat.services.background.folder_search import FolderSearch


class HereRepositories(FolderSearch):
    """See `FolderSearch`; it finds the hub ids in the hub's cache that have a whole snapshot."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(_find, parent)

    @property
    def repositories(self) -> frozenset[str]:
        """What was found last."""
        return frozenset(self.found)


def _find() -> tuple[str, ...]:
    return tuple(each.name for each in cached_repositories() if snapshot_of(each.name) is not None)
