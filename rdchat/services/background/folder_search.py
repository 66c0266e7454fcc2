"""Searches for files on this machine beside the main thread: disks and network folders may be slow."""

import logging
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.background.background_work import BackgroundWork

_LOG = logging.getLogger(__name__)


class FolderSearch(QObject):
    """Runs a search again when asked, and keeps the last result. Lives on the main thread.

    Args:
        find: Looks; called on a thread of its own. None where it cannot tell yet.
        parent: The Qt parent.

    Attributes:
        found: What was found last.
    """

    changed = Signal()

    def __init__(self, find: Callable[..., tuple[Any, ...] | None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._find = find
        self._work = BackgroundWork("search", self)
        self._looking = False
        self._next: tuple[object, ...] | None = None  # what to look about when the search under way ends
        self.found: tuple[Any, ...] = ()

    def look(self, *about: object) -> None:
        """Look again; `changed` follows where something else is found.

        Args:
            about: What `find` takes. While a search goes on, only the last one that is asked for follows it.
        """
        if self._looking:
            self._next = about
            return
        self._looking, self._next = True, None
        self._work.do(lambda: self._find(*about), self._take)

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for a search under way, but not for ever: a disk may hang."""
        self._work.close(timeout_s)

    def _take(self, found: tuple[Any, ...] | RdchatError | None) -> None:
        self._looking = False
        if isinstance(found, RdchatError):
            _LOG.warning("Looking for files failed: %s", found)
        elif found is not None and found != self.found:
            self.found = found
            self.changed.emit()
        if self._next is not None:
            self.look(*self._next)


class InstalledModels(FolderSearch):
    """Searches for models."""

    @property
    def models(self) -> tuple[ModelCard, ...]:
        """What was found last."""
        return self.found
