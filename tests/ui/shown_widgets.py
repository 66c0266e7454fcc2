"""Finds what a window shows, and uses mouse and keys on it."""

import time

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget


def click_on(widget: QWidget, at: QPoint | None = None) -> None:
    """Click on the middle of a widget, or on another point of it."""
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=at or QPoint())


def press_key(widget: QWidget, keys: str | QKeySequence.StandardKey) -> None:
    """Press keys, named as in menus: `Return`, `Ctrl+Shift+C`."""
    QTest.keySequence(widget, QKeySequence(keys))


def shown_child[W: QWidget](parent: QWidget, kind: type[W]) -> W:
    """Return the one visible child of a kind."""
    (child,) = [each for each in parent.findChildren(kind) if each.isVisible()]
    return child


def activate(window: QWidget) -> None:
    """Bring a window to the front, and wait until it has the keyboard.

    Qt's own function returns too early: it counts a window above or below as well.
    """
    window.activateWindow()
    until = time.monotonic() + 10
    while not window.isActiveWindow() and time.monotonic() < until:
        QTest.qWait(1)
    assert window.isActiveWindow()
