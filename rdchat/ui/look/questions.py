"""Asks a question before something is done."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from rdchat.ui.look.plain_text import message_box


def ask(
    parent: QWidget,
    question: str,
    detail: str,
    answer: str,
    then: Callable[[], object],
    *,
    leave: str = "Cancel",
    removes: bool = False,
) -> QMessageBox:
    """Ask whether to do something; Return and Escape answer no.

    Args:
        parent: The window of the question.
        question: The question, in one line.
        detail: What the answer leads to.
        answer: The text of the button for yes.
        then: Called after yes.
        leave: The text of the button for no.
        removes: Whether data is lost by it, which macOS shows on the button.
    """
    box = message_box(QMessageBox.Icon.Question, question, detail, parent=parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    role = QMessageBox.ButtonRole
    do = box.addButton(answer, role.DestructiveRole if removes else role.AcceptRole)
    keep = box.addButton(leave, role.RejectRole)
    box.setDefaultButton(keep)
    box.setEscapeButton(keep)
    do.clicked.connect(then)
    box.open()
    return box
