"""Handles events of the system: a file to open, and the first painting of the window on a screen."""

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
        """Emit the files that the system asks to open."""
        if isinstance(event, QFileOpenEvent) and event.file():
            self.file_opened.emit(event.file())
            return True
        return super().event(event)


class ExposureLog(QObject):
    """Logs when a window first appears on a screen; `scripts/smoke.py` waits for it where it cannot see the screen."""

    def __init__(self, window: QWindow) -> None:
        super().__init__(window)
        window.installEventFilter(self)
        self._look(window)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Look for the first exposure."""
        if event.type() is QEvent.Type.Expose and isinstance(watched, QWindow):
            self._look(watched)
        return False

    def _look(self, window: QWindow) -> None:
        if window.isExposed():
            _LOG.info(ON_SCREEN)
            window.removeEventFilter(self)
