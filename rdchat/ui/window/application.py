"""Handles the system's events of the application: a file to open."""

from PySide6.QtCore import QEvent, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

ON_SCREEN = "The window is on the screen"
"""Logged once; `scripts/smoke.py` waits for it where it cannot see the screen."""


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
