"""Clicks with the left button of the mouse."""

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget


def click_on(widget: QWidget, at: QPoint | None = None) -> None:
    """Click on the middle of a widget, or on another point of it."""
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=at or QPoint())
