"""The base of the windows beside the main one."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QWidget


class SideWindow(QDialog):
    """A window beside the main one. Escape and the system's key for closing act like its close button.

    Args:
        title: Its title.
        size: Its first width and height, in pixels.
        smallest: The smallest width and height, in pixels.
        parent: The window stays above it, and closes with it.
    """

    def __init__(self, title: str, size: tuple[int, int], smallest: tuple[int, int], parent: QWidget | None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle(title)
        self.setMinimumSize(*smallest)
        self.resize(*size)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)

    def closeEvent(self, event: QCloseEvent) -> None:
        event.accept()  # QDialog's own would call `reject`

    def reject(self) -> None:
        self.close()
