"""What a person does on the pages of the Models window."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from rdchat.services.models.window_services import Models
from rdchat.ui.models.installed_page import InstalledPage

WAIT_MS = 60_000


def until(qtbot: QtBot, condition: Callable[[], bool]) -> None:
    """Wait for a process or a hub."""
    qtbot.waitUntil(condition, timeout=WAIT_MS)


def press(qtbot: QtBot, button: QWidget) -> None:
    """Click a button with the mouse, once it can be clicked."""
    qtbot.waitUntil(button.isEnabled)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def names(page: InstalledPage) -> list[str]:
    return [str(entry.item.name) for entry in page.list.entries]


def pick(page: InstalledPage, name: str) -> None:
    page.list.setCurrentRow(names(page).index(name))


def refresh(qtbot: QtBot, models: Models) -> None:
    models.library.search_again()
    qtbot.waitUntil(lambda: not models.library._search.busy)


def answer(qtbot: QtBot, parent: QWidget, button: str) -> str:
    """Press a button of the question that comes; return what it says."""
    qtbot.waitUntil(lambda: any(box.isVisible() for box in parent.findChildren(QMessageBox)))
    (box,) = [box for box in parent.findChildren(QMessageBox) if box.isVisible()]
    words = f"{box.text()} {box.informativeText()}"
    next(each for each in box.findChildren(QPushButton) if each.text().startswith(button)).click()
    return words


def all_text(widget: QWidget) -> str:
    return "\n".join(
        label.text() for label in widget.findChildren(QWidget) if hasattr(label, "text") and label.isVisible()
    )
