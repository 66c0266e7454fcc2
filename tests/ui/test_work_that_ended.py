"""A window, sheet or question that waits for a thread or the engine is over with its work, whenever that ends."""

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from PySide6.QtCore import QBuffer, QEvent, QObject, QSize
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QDialog, QLabel, QMessageBox, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile
from rdchat.errors import RdchatError
from rdchat.hub import CachedRepository
from rdchat.hub.verifying_and_deleting import DeletionPlan
from rdchat.inference.api import Host, Mode, ModelPart
from rdchat.services import background_work
from rdchat.services.files.part_choice import PartChoice
from rdchat.services.models import library, macs
from rdchat.services.models.deletion_and_verification import RemovalQuestion
from rdchat.services.models.downloads import HubAccount
from rdchat.services.models.fit import Model
from rdchat.services.servers import remote_servers
from rdchat.services.servers.remote_servers import RemoteServers
from rdchat.ui.conversation.alternatives_window import AlternativesWindow
from rdchat.ui.files import chips, image_window
from rdchat.ui.files.chips import Picture
from rdchat.ui.files.image_window import ImageWindow
from rdchat.ui.files.sent_text import FileView, PartSheet
from rdchat.ui.models.computer_pages import MacSheet, ServerSheet
from rdchat.ui.models.drafters_section import MissingPartSheet
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.models.models_window import TokenSheet
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import Sheet, Theme
from rdchat.ui.window.main_window import MainWindow
from rdchat.work.job import Job, SerialThread, outcome_of
from tests.hub.hub_server import HubServer
from tests.services.bench_runs import EVENTS
from tests.services.fakes import Reply
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import accept, press_key

PLAN = DeletionPlan(CachedRepository("alpha", Path("alpha")), "", (Path("alpha"),), 1, (), unfinished=False)


class HeldThread(SerialThread):
    """A thread whose jobs end when the test says, or at once."""

    holds = False
    at_once = False
    tasks: ClassVar[list[tuple[Job[Any], Any]]] = []

    def do(self, work: Any, on_end: Any = None, on_progress: Any = None, *, may_stop: bool = False) -> Job[Any]:
        if self._closed or not HeldThread.holds:
            return super().do(work, on_end, on_progress, may_stop=may_stop)
        job: Job[Any] = Job(on_progress, on_end)
        self._latest = job
        self._may_stop = may_stop
        HeldThread.tasks.append((job, work))
        if HeldThread.at_once:
            end_threads()
        return job


def end_threads() -> None:
    while HeldThread.tasks:
        job, work = HeldThread.tasks.pop(0)
        job.set_outcome(outcome_of(job, work, "held"))


class Desk:
    """Opens each thing that waits for work, with the work held.

    Attributes:
        end: Lets the work end.
        waits: Whether the thing that is open shows that it waits.
        problem: With what the work of a sheet fails; empty if it does not.
    """

    def __init__(self, chat: Chat, window: MainWindow, theme: Theme) -> None:
        self.chat = chat
        self.window = window
        self.theme = theme
        self.end: Callable[[], None] = end_threads
        self.waits: Callable[[], bool] = lambda: False
        self.problem = ""
        self.servers = RemoteServers(chat.settings)
        self._numbers = count()

    def file(self) -> QWidget:
        file = AttachedFile("a.txt", FileKind.TEXT, "digest", 4)
        view = FileView(file, lambda _file: "text", self.theme, self.window)
        view.show()
        self.waits = lambda: view.text.toPlainText() != "text"
        return view

    def image(self) -> QWidget:
        picture = Picture("digest", "a.png", QSize(40, 40), lambda: "")
        view = ImageWindow(picture, lambda: [picture], lambda _picture: None, self.theme, self.window)
        view.show()
        self.waits = lambda: view.view.image.width() == 0
        return view

    def part(self) -> QWidget:
        read = ReadFile("a.txt", FileKind.TEXT, ("text",))
        choice = PartChoice(read, None, None, lambda _messages: 1)
        sheet = PartSheet(choice, None, "", self.theme, self.window)
        sheet._quiet.stop()
        sheet._compute()
        sheet.open()
        self.waits = lambda: sheet.summary.text() == "Counting…"
        return sheet

    def token(self) -> QWidget:
        account = self.window.windows.model_services.account
        sheet = TokenSheet(account, self.theme, self.window)
        sheet.open()
        self.waits = lambda: bool(account.busy)
        return sheet

    def ask(self, result: Any = None) -> Any:
        """Answer a sheet."""
        if self.problem:
            raise RdchatError(self.problem)
        return result

    def mac(self) -> QWidget:
        sheet = MacSheet(self.window.windows.model_services.macs, self.theme, self.window)
        sheet.name.setText("studio")
        return self._begun(sheet)

    def server(self) -> QWidget:
        sheet = ServerSheet(self.servers, self.theme, self.window)
        sheet.name.setText(f"studio{next(self._numbers)}")
        sheet.address.setText("https://192.168.1.5:8000")
        return self._begun(sheet)

    def missing_part(self) -> QWidget:
        search = self.window.windows.model_services.parts
        model = library_model("org/Alpha-8B-4bit")
        sheet = MissingPartSheet(search, model, PageLinks(), self.theme, self.window, part=ModelPart.MTP)
        end_threads()
        self.chat.qtbot.waitUntil(lambda: search.plan is not None)
        return self._begun(sheet)

    def _begun(self, sheet: Sheet) -> QWidget:
        sheet.open()
        accept(sheet)
        self.waits = lambda: isValid(sheet) and sheet.isVisible()
        return sheet

    def comparison(self) -> QWidget:
        self.window.windows.compare(self.chat.path[-1].id)
        (opened,) = self.window.findChildren(AlternativesWindow)
        self.waits = lambda: not opened.note.text()
        return opened

    def deletion(self) -> QWidget:
        place = QDialog(self.window)
        row = ModelRow(self.window.windows.model_services, PageLinks(), self.theme, 0)
        row.setParent(place)
        QVBoxLayout(place).addWidget(row)
        row.show_model(Model("org/alpha", card=library_model("org/alpha")))
        place.show()
        row.ask_to_delete()
        self.waits = lambda: not row.findChildren(QMessageBox)
        return place

    def race(self) -> QWidget:
        opened = self.window.windows.benchmark_window
        opened.open_benchmark("Say hello")
        return self._measured(opened, self.chat.controller.benchmark)

    def benchmark(self) -> QWidget:
        opened = self.window.windows.benchmark_window
        opened.open_benchmark("")
        opened.tabs.setCurrentIndex(1)
        for mode, box in opened.form.modes.items():
            box.setChecked(mode is Mode.LOOKUP)
        return self._measured(opened, self.chat.controller.benchmark)

    def quitting(self) -> QWidget:
        """The question whether to stop a benchmark and quit."""
        opened = self.benchmark()
        self.window.windows.may_quit()
        return opened

    def _measured(self, opened: Any, work: Any) -> QWidget:
        self.end = self.chat.engine.gate.open
        if not HeldThread.at_once:
            self.chat.engine.gate.shut()
        opened.start.click()
        self.waits = lambda: work.running or opened.start.text().startswith("Stop")
        return opened  # type: ignore[no-any-return]


@pytest.fixture
def desk(
    qtbot: QtBot, hub: HubServer, chat: Chat, window: MainWindow, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    buffer = QBuffer()
    QImage(4, 4, QImage.Format.Format_RGB32).save(buffer, "PNG")
    held = HeldThread("pictures")
    monkeypatch.setattr(background_work, "SerialThread", HeldThread)
    monkeypatch.setattr(chips, "PICTURES", held)
    monkeypatch.setattr(image_window, "PICTURES", held)
    monkeypatch.setattr(chips, "drawn", lambda *_arguments: bytes(buffer.data().data()))
    monkeypatch.setattr(HubAccount, "_find", lambda *_arguments: (None, None))
    monkeypatch.setattr(RemovalQuestion, "for_model", lambda model: RemovalQuestion(model, PLAN))
    chat.engine.replies = [Reply(("One",)), Reply(("Two",))]
    chat.engine.bench_events = EVENTS
    chat.start("Hi")
    chat.controller.regenerate(chat.path[-1].id)
    qtbot.waitUntil(lambda: not chat.writing and chat.controller.drafting.option(Mode.LOOKUP) is not None)
    desk = Desk(chat, window, theme)
    # It has another name than what was typed.
    host = Host("studio.local", ("192.168.1.5",))
    monkeypatch.setattr(macs, "resolve_host", lambda _name, _address: desk.ask(host))
    monkeypatch.setattr(macs, "check_mac", lambda _host: {"problem": "Not ready."})
    monkeypatch.setattr(remote_servers, "accept_server", lambda _server, _key: desk.ask())
    monkeypatch.setattr(desk.servers, "ask_servers", lambda: None)
    monkeypatch.setattr(library, "begin_drafter", lambda _plan: desk.ask())
    # The threads of what is built here are held, too.
    services = window.windows.model_services
    monkeypatch.setattr(services.parts, "_hub", lambda: None)
    monkeypatch.setattr(services.parts, "_find", lambda *_: SimpleNamespace(size=10, repository="org/original"))
    monkeypatch.setattr(services.downloads, "start_download", lambda _download: None)
    services.library.search_again()
    yield desk
    HeldThread.holds = False
    HeldThread.at_once = False
    end_threads()
    window.windows.end_background_work()


type Place = Callable[[Desk], QWidget]
PLACES: tuple[Place, ...] = (
    Desk.file,
    Desk.image,
    Desk.part,
    Desk.token,
    Desk.mac,
    Desk.server,
    Desk.missing_part,
    Desk.comparison,
    Desk.deletion,
    Desk.race,
    Desk.benchmark,
    Desk.quitting,
)


class EndAtPainting(QObject):
    """Ends the work when the window that waits for it is painted."""

    def __init__(self, opened: QWidget, end: Callable[[], None]) -> None:
        super().__init__(opened)
        self._end = end
        opened.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.UpdateRequest:
            self._end()
        return False


def dialogs() -> list[QWidget]:
    return [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog) and each.isVisible()]


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("moment", ["before it returned", "while it is shown", "later", "after closing"])
def test_nothing_waits_after_the_end(qtbot: QtBot, desk: Desk, moment: str, times: int) -> None:
    HeldThread.holds = True
    HeldThread.at_once = moment == "before it returned"
    for place in PLACES * times:
        desk.end = end_threads
        opened = place(desk)
        match moment:
            case "while it is shown":
                EndAtPainting(opened, desk.end)
                opened.update()
            case "later":
                qtbot.wait(1)
                assert desk.waits(), place
                desk.end()
            case "after closing":
                opened.close()
                qtbot.wait(1)
                desk.end()
        qtbot.wait(1)
        if isValid(opened) and opened.isVisible():
            qtbot.waitUntil(lambda: not desk.waits())
        if isValid(opened) and opened.isVisible():
            for box in opened.findChildren(QMessageBox):
                box.reject()
            opened.close()
        assert not dialogs(), place
        desk.end()


def says(sheet: QWidget, text: str) -> bool:
    return any(text in label.text() for label in sheet.findChildren(QLabel))


@pytest.mark.parametrize("place", [Desk.mac, Desk.server, Desk.missing_part])
def test_a_failure_is_said_and_another_try_is_possible(qtbot: QtBot, desk: Desk, place: Place) -> None:
    HeldThread.holds = True
    desk.problem = "Nobody answers there."
    for at_once in (True, False):
        HeldThread.at_once = at_once
        sheet = place(desk)
        assert isinstance(sheet, Sheet)
        HeldThread.at_once = False
        end_threads()
        qtbot.waitUntil(partial(says, sheet, desk.problem))
        assert sheet.buttons[-1].isEnabled()
        if place is Desk.mac:
            accept(sheet)
            desk.window.windows.model_services.macs.changed.emit()
            assert not says(sheet, desk.problem), "the problem of one Mac was said of the next"
            assert not sheet.buttons[-1].isEnabled()
        press_key(sheet, "Esc")
        qtbot.waitUntil(lambda sheet=sheet: not isValid(sheet))
    cancelled = place(desk)
    press_key(cancelled, "Esc")
    end_threads()
    qtbot.waitUntil(lambda: not isValid(cancelled))


def test_nothing_opens_after_quitting(qtbot: QtBot, desk: Desk) -> None:
    HeldThread.holds = True
    for place in PLACES:
        place(desk)
    qtbot.wait(1)
    desk.window.close()
    left = dialogs()
    end_threads()
    desk.chat.engine.gate.open()
    qtbot.waitUntil(lambda: not desk.chat.controller.benchmark.running)
    assert set(dialogs()) <= set(left), "the question about the benchmark ends with it"


@pytest.mark.slow
def test_threads_end_with_their_windows(qtbot: QtBot, desk: Desk) -> None:
    """Each file, part and copied message that was looked at left a thread."""
    for place in (Desk.file, Desk.part, Desk.comparison):
        for _ in range(3):
            opened = place(desk)
            qtbot.waitUntil(lambda: not desk.waits())
            opened.close()
            qtbot.waitUntil(lambda opened=opened: not isValid(opened))
            del opened
    desk.waits = lambda: False

    def left() -> set[str]:
        gc.collect()
        return {thread.name for thread in threading.enumerate()}

    qtbot.waitUntil(lambda: not left() & {"file view", "part of a file", "compare"})
