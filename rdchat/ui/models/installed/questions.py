"""Questions that are asked before something is done."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget


def ask(parent: QWidget, question: str, detail: str, answer: str, then: Callable[[], object]) -> QMessageBox:
    """Ask whether to do something, and do it where that is wanted; Return and Escape leave it."""
    box = QMessageBox(QMessageBox.Icon.Question, "rdchat", question, parent=parent)
    box.setInformativeText(detail)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    do = box.addButton(answer, QMessageBox.ButtonRole.AcceptRole)
    leave = box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
    box.setDefaultButton(leave)
    box.setEscapeButton(leave)
    do.clicked.connect(then)
    box.open()
    return box
