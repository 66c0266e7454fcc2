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
from rdchat.inference.api import ModelPart
from rdchat.inference.rank_processes.hosts import Host
from rdchat.services import remote_servers
from rdchat.services.models import library, macs
from rdchat.services.models.library import PartSearch
from rdchat.services.models.macs import Macs
from rdchat.services.remote_servers import RemoteServers
from rdchat.ui.models.computer_pages import MacSheet, ServerSheet
from rdchat.ui.models.drafters_page import MissingPartSheet
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.style import Sheet, Theme
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat

PROBLEM = "Nobody answers there."
AT_ONCE = "before the request returned"
SHOWN = "while it is shown"
LATER = "later"
CANCELLED = "after Cancel"


class HeldWork:
    """Background work that ends when the test says, or at once; it fails where there is a problem."""

    def __init__(self) -> None:
        self.at_once = False
        self.problem = ""
        self.tasks: list[Callable[[], None]] = []

    def do(self, work: Callable[[], Any], then: Any = None, failed: Any = None) -> None:
        def run() -> None:
            try:
                result = work()
            except RdchatError as error:
                (failed or then)(error)
            else:
                (then or (lambda _result: None))(result)

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

    def answer(self, result: Any = None) -> Any:
        if self.problem:
            raise RdchatError(self.problem)
        return result


class EndAtPainting(QObject):
    """Ends the work when a sheet is painted for the first time after the click."""

    def __init__(self, sheet: Sheet, work: HeldWork) -> None:
        super().__init__(sheet)
        self._work = work
        sheet.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.UpdateRequest:
            self._work.end()
        return False


type Open = Callable[[str], tuple[Sheet, Callable[[], str]]]
"""Opens a sheet by its kind; returns it and what it says."""


@pytest.fixture
def work() -> HeldWork:
    return HeldWork()


@pytest.fixture
def open_sheet(qtbot: QtBot, chat: Chat, theme: Theme, work: Any, monkeypatch: pytest.MonkeyPatch) -> Open:
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    all_macs = Macs(chat.controller.settings)
    servers = RemoteServers(chat.controller.settings)
    downloads: Any = SimpleNamespace(start_download=lambda _download: None)
    plan: Any = SimpleNamespace(size=10, repository="org/original")
    tokens: Any = None
    search = PartSearch(tokens, lambda *_: plan, downloads, window)
    for service in (all_macs, servers, search):
        service._work.finish_work()
        service._work = work
    monkeypatch.setattr(servers, "ask_servers", lambda: None)
    monkeypatch.setattr(search, "_hub", lambda: None)
    monkeypatch.setattr(library, "begin_drafter", lambda _plan: work.answer())
    monkeypatch.setattr(macs, "resolve_host", lambda _name, _address: work.answer(Host("studio.local", ("10.0.0.2",))))
    monkeypatch.setattr(macs, "checked", lambda _host: {"problem": "Not ready."})
    monkeypatch.setattr(remote_servers, "_added", lambda _server, _key: work.answer())

    def open_sheet(kind: str) -> tuple[Sheet, Callable[[], str]]:
        if kind == "part":
            model = library_model("org/Alpha-8B-4bit", 8_000_000_000)
            part = MissingPartSheet(search, model, PageLinks(), theme, window, part=ModelPart.MTP)
            work.end()
            part.open()
            return part, part.problem.text
        sheet = MacSheet(all_macs, theme, window) if kind == "Mac" else ServerSheet(servers, theme, window)
        sheet.name.setText("studio")
        sheet.address.setText("" if kind == "Mac" else "https://192.168.1.5:8000")
        sheet.open()
        return sheet, sheet.status.text

    return open_sheet


@pytest.mark.parametrize("kind", ["Mac", "server", "part"])
@pytest.mark.parametrize("moment", [AT_ONCE, SHOWN, LATER, CANCELLED])
@pytest.mark.parametrize("problem", ["", PROBLEM], ids=["answer", "failure"])
def test_a_sheet_ends_with_its_answer_or_says_why_and_can_be_tried_again(
    qtbot: QtBot, work: HeldWork, open_sheet: Open, kind: str, moment: str, problem: str
) -> None:
    sheet, said = open_sheet(kind)
    work.problem = problem
    work.at_once = moment == AT_ONCE
    if moment == SHOWN:
        EndAtPainting(sheet, work)
    sheet.buttons[-1].click()
    if moment == CANCELLED:
        sheet.reject()
    if moment != LATER:
        QApplication.processEvents()
    work.end()
    if problem and moment != CANCELLED:
        assert PROBLEM in said()
        assert sheet.buttons[-1].isEnabled()
        qtbot.keyClick(sheet, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not isValid(sheet))
