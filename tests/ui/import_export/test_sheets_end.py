"""A sheet that stands for work closes with the work, whenever the end comes."""

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from rdchat.ui.import_export import import_export
from tests.ui.import_export.test_import_export import Menu, menu

__all__ = ["menu"]


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5])
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
