"""What lies on this machine, looked for on a thread of its own: a disk may be slow, and a network's home folder is."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

_LOG = logging.getLogger(__name__)


class FolderSearch(QObject):
    """What was found last, and looking again. Lives on the main thread.

    Args:
        find: Looks; called on a thread of Python's, which has a stack to parse with on macOS too.
        parent: The Qt parent.

    Attributes:
        found: What was found last.
    """

    changed = Signal()
    _found = Signal(object)

    def __init__(self, find: Callable[..., tuple[Any, ...]], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._find = find
        self._search: threading.Thread | None = None
        self._next: tuple[object, ...] | None = None  # what to look about when the search under way ends
        self.found: tuple[Any, ...] = ()
        self._found.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def look(self, *about: object) -> None:
        """Look again; `changed` follows where something else is found.

        Args:
            about: What `find` takes. While a search goes on, the next one waits for its end.
        """
        if self._search is not None and self._search.is_alive():
            self._next = about
            return
        self._next = None
        self._search = threading.Thread(target=self._look, args=about, name="search", daemon=True)
        self._search.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for a search under way, but not for ever: a disk may hang."""
        self._next = None
        if self._search is not None:
            self._search.join(timeout_s)

    def _look(self, *about: object) -> None:
        found: tuple[Any, ...] | None = None
        try:
            found = self._find(*about)
        except Exception:
            _LOG.exception("Looking for files failed")
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._found.emit(found)

    @Slot(object)
    def _take(self, found: tuple[Any, ...] | None) -> None:
        if found is not None and found != self.found:
            self.found = found
            self.changed.emit()
        if self._next is not None:
            if self._search is not None:
                self._search.join()  # it has told all, and ends
            self.look(*self._next)
