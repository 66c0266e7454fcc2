"""What the system tells the app: a file to open, and that its window is on the screen."""

import logging

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent, QWindow
from PySide6.QtWidgets import QApplication

_LOG = logging.getLogger(__name__)
ON_SCREEN = "The window is on the screen"


class Application(QApplication):
    """The process's Qt application; macOS sends it the files that are double-clicked, or dropped on the Dock's icon.

    A subclass rather than an event filter, which Qt would ask about every event of every widget.
    """

    file_opened = Signal(str)

    def event(self, event: QEvent) -> bool:
        """Tell of files that are opened."""
        if isinstance(event, QFileOpenEvent) and event.file():
            self.file_opened.emit(event.file())
            return True
        return super().event(event)


class ExposureLog(QObject):
    """Logs when a window is first drawn on a screen, which `scripts/smoke.py` waits for where it sees no screen."""

    def __init__(self, window: QWindow) -> None:
        super().__init__(window)
        window.installEventFilter(self)
        self._look(window)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Look at no more events once it is exposed."""
        if event.type() is QEvent.Type.Expose and isinstance(watched, QWindow):
            self._look(watched)
        return False

    def _look(self, window: QWindow) -> None:
        if window.isExposed():
            _LOG.info(ON_SCREEN)
            window.removeEventFilter(self)
