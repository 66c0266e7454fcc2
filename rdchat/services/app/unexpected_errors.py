"""Reports that an action failed unexpectedly, where Qt would only print the error."""

import logging
import sys
from types import TracebackType

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from rdchat import paths
from rdchat.chat.conversation import Notice

_LOG = logging.getLogger(__name__)
_PAUSE_MS = 2000
"""From one notice to the next: a widget that cannot be painted fails again as soon as the notice is shown."""


class UnexpectedErrors(QObject):
    """Logs errors that leave a slot or an event handler and emits a notice of them, until it is released."""

    raised = Signal(Notice)
    _came = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._pause = QTimer(self, interval=_PAUSE_MS, singleShot=True)
        self._came.connect(self._report, Qt.ConnectionType.QueuedConnection)
        self._before, sys.excepthook = sys.excepthook, self._take

    def release(self) -> None:
        """Put the process's own hook back."""
        sys.excepthook = self._before

    def _take(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, Exception):
            self._before(kind, error, trace)
            return
        _LOG.error("An action failed unexpectedly", exc_info=(kind, error, trace))
        self._came.emit(kind.__name__)

    @Slot(str)
    def _report(self, name: str) -> None:
        if not self._pause.isActive():
            self._pause.start()
            detail = f"{name}. Your chats are kept. The details are in {paths.log_path()}."
            self.raised.emit(Notice("Something unexpected went wrong", detail))
