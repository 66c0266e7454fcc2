"""A sheet that waits for a server, a Mac or a hub ends with its answer, whenever that comes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from rdchat.errors import RdchatError
from rdchat.inference.api import ModelCard, ModelPart
from rdchat.inference.rank_processes.hosts import Host
from rdchat.services import remote_servers
from rdchat.services.models import library, macs
from rdchat.services.models.library import PartSearch
from rdchat.services.models.macs import Macs
from rdchat.services.remote_servers import RemoteServers
from rdchat.ui.models.computer_pages import MacSheet, ServerSheet
from rdchat.ui.models.drafters_page import PartSheet
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.style import Sheet, Theme
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat

PROBLEM = "Nobody answers there."


class HeldWork:
    """Background work that ends when the test says, or at once."""

    def __init__(self) -> None:
        self.at_once = False
        self.tasks: list[Callable[[], None]] = []

    def do(self, work: Callable[[], Any], then: Any = None, failed: Any = None) -> None:
        def run() -> None:
            try:
                result = work()
            except RdchatError as error:
                (failed or then)(error)
                return
            if then is not None:
                then(result)

        self.tasks.append(run)
        if self.at_once:
            self.end()

    def replace(self, work: Callable[[Any], Any], then: Any = None, failed: Any = None) -> None:
        self.drop_jobs()
        self.do(lambda: work(None), then, failed)

    def drop_jobs(self) -> None:
        self.tasks.clear()

    def end(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Asked:
    """What is asked: it answers, or it fails."""

    def __init__(self) -> None:
        self.problem = ""
        self.work: Any = HeldWork()

    def answer(self, result: Any = None) -> Any:
        if self.problem:
            raise RdchatError(self.problem)
        return result


type Opened = tuple[Sheet, Callable[[], str]]


class Places:
    """Opens the sheets, each with its work held."""

    def __init__(self, chat: Chat, theme: Theme, window: QWidget, asked: Asked, patch: pytest.MonkeyPatch) -> None:
        self.theme = theme
        self.window = window
        self.asked = asked
        settings = chat.controller.settings
        self.macs = Macs(settings)
        self.servers = RemoteServers(settings)
        downloads: Any = SimpleNamespace(start_download=lambda _download: None)
        plan: Any = SimpleNamespace(size=10, repository="org/original")
        tokens: Any = None
        self.search = PartSearch(tokens, lambda *_: plan, downloads, window)
        for service in (self.macs, self.servers, self.search):
            service._work.finish_work()
            service._work = asked.work
        patch.setattr(self.servers, "ask_servers", lambda: None)
        patch.setattr(self.search, "_hub", lambda: None)
        patch.setattr(library, "begin_drafter", lambda _plan: asked.answer())
        patch.setattr(macs, "resolve_host", lambda name, _address: asked.answer(Host(name, ("192.168.1.5",))))
        patch.setattr(macs, "checked", lambda _host: {"problem": "Not ready."})
        patch.setattr(remote_servers, "_added", lambda _server, _key: asked.answer())

    def mac(self, name: str) -> Opened:
        sheet = MacSheet(self.macs, self.theme, self.window)
        sheet.name.setText(name)
        return sheet, sheet.status.text

    def server(self, name: str) -> Opened:
        sheet = ServerSheet(self.servers, self.theme, self.window)
        sheet.name.setText(name)
        sheet.address.setText("https://192.168.1.5:8000")
        return sheet, sheet.status.text

    def part(self, _name: str) -> Opened:
        model: ModelCard = library_model("org/Alpha-8B-4bit", 8_000_000_000)
        sheet = PartSheet(self.search, model, PageLinks(), self.theme, self.window, part=ModelPart.MTP)
        self.asked.work.end()
        return sheet, sheet.problem.text


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def places(qtbot: QtBot, chat: Chat, theme: Theme, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Places:
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    return Places(chat, theme, window, asked, monkeypatch)


class EndAtPainting(QObject):
    """Ends the work when the sheet is painted for the first time after the click."""

    def __init__(self, sheet: Sheet, work: HeldWork) -> None:
        super().__init__(sheet)
        self._work = work
        sheet.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.UpdateRequest:
            self._work.end()
        return False


SHEETS: dict[str, Callable[[Places, str], Opened]] = {
    "a Mac": Places.mac,
    "a server": Places.server,
    "a part": Places.part,
}
MOMENTS = ["before the request returned", "while it is shown", "later", "after Cancel"]
sheets = pytest.mark.parametrize("kind", SHEETS)
moments = pytest.mark.parametrize("moment", MOMENTS)


def press(places: Places, sheet: Sheet, moment: str) -> None:
    """Press the button that begins the work, and let the work end then."""
    work = places.asked.work
    work.at_once = moment == "before the request returned"
    if moment == "while it is shown":
        EndAtPainting(sheet, work)
    sheet.buttons[-1].click()
    if moment == "after Cancel":
        sheet.reject()
    if moment != "later":
        QApplication.processEvents()
    work.at_once = False
    work.end()


@sheets
@moments
@pytest.mark.parametrize("times", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_nothing_is_left_after_the_end(qtbot: QtBot, places: Places, kind: str, moment: str, times: int) -> None:
    for number in range(times):
        sheet, _ = SHEETS[kind](places, f"studio{number}")
        sheet.open()
        press(places, sheet, moment)
        qtbot.waitUntil(lambda sheet=sheet: not isValid(sheet))
        assert not [each for each in places.window.findChildren(Sheet) if each.isVisible()]


@sheets
@moments
def test_a_failure_is_said_and_another_try_is_possible(
    qtbot: QtBot, places: Places, asked: Asked, kind: str, moment: str
) -> None:
    asked.problem = PROBLEM
    sheet, said = SHEETS[kind](places, "studio")
    sheet.open()
    press(places, sheet, moment)
    if moment != "after Cancel":
        assert PROBLEM in said()
        assert sheet.buttons[-1].isEnabled()
        qtbot.keyClick(sheet, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not isValid(sheet))


def test_the_problem_of_one_mac_is_not_said_of_the_next(places: Places, asked: Asked) -> None:
    asked.problem = PROBLEM
    sheet, said = places.mac("attic")
    sheet.open()
    press(places, sheet, "later")
    sheet.buttons[-1].click()
    places.macs.changed.emit()
    assert said() == "Looking for attic…"
    assert not sheet.buttons[-1].isEnabled()
    sheet.reject()


def test_a_mac_that_is_found_by_another_name_ends_its_sheet(
    qtbot: QtBot, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet, _ = places.mac("studio")
    sheet.open()
    monkeypatch.setattr(macs, "resolve_host", lambda _name, _address: Host("studio.local", ("192.168.1.5",)))
    press(places, sheet, "later")
    qtbot.waitUntil(lambda: not isValid(sheet))
