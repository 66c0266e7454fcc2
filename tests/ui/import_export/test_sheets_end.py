"""A sheet that stands for work closes with the work, whenever the end comes."""

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.errors import RdchatError
from rdchat.services.transfers import Transfers
from rdchat.ui.import_export import import_export
from rdchat.ui.import_export.import_export import ProgressSheet
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from rdchat.work.job import CancelledError, Job
from tests.ui.import_export.conftest import Menu

type Start = Callable[[Callable[[Any], None]], None]


def end_before_it_returns(end: Callable[[Any], None]) -> None:
    """End, and let the window hear of it while the work is still being started."""
    end("done")
    QApplication.processEvents()


class EndAtOpening(QObject):
    """Ends the work in the moment that its sheet is shown."""

    def __init__(self, end: Callable[[Any], None]) -> None:
        super().__init__()
        self._end = end
        app = QApplication.instance()
        assert app is not None
        app.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(watched, ProgressSheet) and event.type() is QEvent.Type.Show:
            self._end("done")
            QApplication.processEvents()
        return False


class Desk:
    """Begins work that the test ends."""

    def __init__(self, menu: Menu) -> None:
        self.menu, self.transfers = menu, menu.desk
        self.outcomes: list[Any] = []
        self.end: Callable[[Any], None] = lambda _outcome: None
        self.job: Job[Any] = Job()

    def begin(self, start: Start = lambda _end: None) -> None:
        def run(_progress: Any, end: Callable[[Any], None]) -> Job[Any]:
            self.end = end
            self.job = Job()
            start(end)
            return self.job

        def begin(progress: Any, end: Callable[[Any], None]) -> None:
            self.transfers._begin(run, progress, end)

        self.menu.transfers._begin("Backing up", begin, self.outcomes.append)


@pytest.fixture
def desk(menu: Menu, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(import_export, "_WAIT_MS", 0)
    return Desk(menu)


@pytest.mark.parametrize("times", [6, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("moment", ["before start returned", "before the opening", "at the opening", "after it"])
def test_a_sheet_closes_whenever_its_work_ends(desk: Desk, qtbot: QtBot, moment: str, times: int) -> None:
    for number in range(times):
        match moment:
            case "before start returned":
                desk.begin(end_before_it_returns)
            case "before the opening":
                desk.begin(lambda end: end("done"))
            case "at the opening":
                kept: list[EndAtOpening] = []
                desk.begin(lambda end, kept=kept: kept.append(EndAtOpening(end)))
            case _:
                desk.begin()
                qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
                desk.end("done")
        qtbot.waitUntil(lambda number=number: len(desk.outcomes) > number)
        # The timer that would open the sheet.
        qtbot.wait(1)
        assert not desk.menu.title
        assert not desk.transfers.busy


def test_cancel_waits_for_the_end_of_the_work(desk: Desk, qtbot: QtBot) -> None:
    desk.begin()
    qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
    qtbot.keyClick(desk.menu.sheet, Qt.Key.Key_Escape)
    assert desk.menu.title == "Backing up", "it stays until the work has ended"
    assert desk.job.cancelled
    desk.end(CancelledError())
    qtbot.waitUntil(lambda: not desk.menu.title)
    assert not desk.transfers.busy


def test_cancel_without_work_closes_the_sheet(desk: Desk, qtbot: QtBot) -> None:
    desk.begin()
    qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
    desk.transfers.end_transfers()
    qtbot.keyClick(desk.menu.sheet, Qt.Key.Key_Escape)
    assert not desk.menu.title


def test_work_that_cannot_start_leaves_the_desk_free(menu: Menu) -> None:
    def fail(_progress: Any, _end: Any) -> Job[Any]:
        raise RdchatError("It did not start.")

    transfers: Transfers = menu.desk
    with pytest.raises(RdchatError):
        transfers._begin(fail, lambda _progress: None, lambda _outcome: None)
    assert not transfers.busy


def test_a_sheet_that_is_done_never_opens(window: MainWindow, theme: Theme) -> None:
    sheet = ProgressSheet(window, theme, "Backing up", lambda: None, lambda: False)
    sheet.done(0)
    sheet.open()
    assert not sheet.isVisible()
