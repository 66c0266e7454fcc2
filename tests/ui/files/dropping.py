"""Drags and drops on a window."""

from pathlib import Path

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

HOW = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
PLACE = QPointF(300, 300)


def files_data(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drag_over(window: QWidget, data: QMimeData) -> bool:
    """Drag data over a window; return whether they can be dropped there."""
    event = QDragEnterEvent(PLACE, HOW[0], data, HOW[1], HOW[2])
    QApplication.sendEvent(window, event)
    return event.isAccepted()


def let_go(window: QWidget, data: QMimeData) -> None:
    QApplication.sendEvent(window, QDropEvent(PLACE, HOW[0], data, HOW[1], HOW[2]))


def drop(window: QWidget, data: QMimeData) -> bool:
    """Drop data on a window; return whether they can be dropped there."""
    accepted = drag_over(window, data)
    let_go(window, data)
    return accepted
