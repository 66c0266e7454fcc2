"""The models on this machine, looked for on a thread of its own: a disk may be slow, and a network's home folder is."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.inference.api.installed_model import InstalledModel

_LOG = logging.getLogger(__name__)


class InstalledModels(QObject):
    """What was found last, and looking again. Lives on the main thread.

    Args:
        find: Looks; called on a thread of Python's, which has a stack to parse with on macOS too.
        parent: The Qt parent.

    Attributes:
        models: What was found last.
    """

    changed = Signal()
    _found = Signal(object)

    def __init__(self, find: Callable[[], tuple[InstalledModel, ...]], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._find = find
        self._search: threading.Thread | None = None
        self.models: tuple[InstalledModel, ...] = ()
        self._found.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def look(self) -> None:
        """Look again, unless that goes on; `changed` follows where something else is found."""
        if self._search is None or not self._search.is_alive():
            self._search = threading.Thread(target=self._look, name="models", daemon=True)
            self._search.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for a search under way, but not for ever: a disk may hang."""
        if self._search is not None:
            self._search.join(timeout_s)

    def _look(self) -> None:
        try:
            found = self._find()
        except Exception:
            _LOG.exception("Looking for models failed")
            return
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._found.emit(found)

    @Slot(object)
    def _take(self, found: tuple[InstalledModel, ...]) -> None:
        if found != self.models:
            self.models = found
            self.changed.emit()
