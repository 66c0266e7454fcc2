"""A sheet that stands for work closes with the work, whenever the end comes."""

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import Qt, QTimer
from pytestqt.qtbot import QtBot

from rdchat.ui.import_export import import_export
from rdchat.ui.import_export.import_export import ProgressSheet
from rdchat.ui.style.theme import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.import_export.test_import_export import Menu, menu

__all__ = ["menu"]


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("after_ms", [0, 2, 5])
def test_a_sheet_closes_whenever_its_work_ends(
    menu: Menu, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot, times: int, after_ms: int
) -> None:
    monkeypatch.setattr(import_export, "_WAIT_MS", 2)
    ends: list[int] = []

    def start(_progress: Any, end: Callable[[Any], None]) -> None:
        if after_ms:
            QTimer.singleShot(after_ms, lambda: end("done"))
        else:
            end("done")

    for number in range(times):
        menu.transfers._begin("Backing up", start, lambda _result: ends.append(1))
        qtbot.waitUntil(lambda number=number: len(ends) > number)
        qtbot.wait(1)
    qtbot.wait(20)
    assert not menu.title


def test_a_sheet_that_is_done_never_opens(window: MainWindow, theme: Theme) -> None:
    sheet = ProgressSheet(window, theme, "Backing up", lambda: None, lambda: False)
    sheet.done(0)
    sheet.open()
    assert not sheet.isVisible()


def test_cancel_without_work_closes_the_sheet(window: MainWindow, theme: Theme, qtbot: QtBot) -> None:
    runs = True
    cancelled: list[int] = []
    sheet = ProgressSheet(window, theme, "Backing up", lambda: cancelled.append(1), lambda: runs)
    sheet.open()
    qtbot.keyClick(sheet, Qt.Key.Key_Escape)
    assert sheet.isVisible(), "it stays until the work has ended"
    assert cancelled == [1]
    runs = False
    qtbot.keyClick(sheet, Qt.Key.Key_Escape)
    assert not sheet.isVisible()
