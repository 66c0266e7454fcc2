"""Presses that come as soon as a question appears, while no time passes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QDialog, QWidget

from rdchat.ui.style import ConsentPause


@contextmanager
def no_time_passes() -> Iterator[None]:
    """Stop the clock of questions."""
    clock = vars(ConsentPause)["clock"]
    now = ConsentPause.clock()
    ConsentPause.clock = staticmethod(lambda: now)
    try:
        yield
    finally:
        ConsentPause.clock = clock


def press_everything(question: QWidget) -> None:
    """Press Return, and click and press each button; nothing may come of it."""
    clicked = list[object]()
    focus = question.window().focusWidget()
    # Those of a file dialog that show the chosen view are down already.
    every = question.findChildren(QAbstractButton)
    buttons = [each for each in every if each.isVisible() and not each.isDown()]
    connections = [each.clicked.connect(partial(clicked.append, each)) for each in buttons]
    QTest.keyClick(question, Qt.Key.Key_Return)
    for button in buttons:
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        QTest.keyClick(button, Qt.Key.Key_Space)
    assert question.isVisible(), f"{question.windowTitle() or question} took a press at once"
    assert not clicked, f"{question.windowTitle() or question} took a press at once: {clicked}"
    for button, connection in zip(buttons, connections, strict=True):
        button.clicked.disconnect(connection)
    if focus is not None:
        # A click moves it, also one that does not count.
        focus.setFocus()


def opening_pressed_at_once(opens: Callable[[Any], None]) -> Callable[[QDialog], None]:
    """Return a method `open` of dialogs that presses everything as soon as the dialog is shown."""

    def open_dialog(dialog: QDialog) -> None:
        was_open = dialog.isVisible()
        with no_time_passes():
            opens(dialog)
            if dialog.isVisible() and not was_open:
                press_everything(dialog)

    return open_dialog
