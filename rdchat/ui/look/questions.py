"""Questions that are asked before something is done."""

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
    """Ask whether to do something, and do it where that is wanted; Return and Escape leave it.

    Args:
        parent: The window that is asked about.
        question: In one line.
        detail: What follows from it.
        answer: What the button says that does it.
        then: Does it.
        leave: What the button says that does not.
        removes: Whether something is lost by it, which macOS shows on the button.
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
