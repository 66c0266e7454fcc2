"""All places that show what the app does show the same, whatever the engine and the open chat do."""

import random
from collections.abc import Callable

import pytest
from PySide6.QtCore import QEventLoop
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError
from rdchat.inference.api import ChatMessage, GenerationRequest, LoadProgress, PrefillProgress, Role
from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.engine.engine_request import EngineState, LoadModel, WriteReply
from rdchat.services.window.app_status import Status
from rdchat.tools.definitions import ToolResult
from rdchat.ui.window.main_window import MainWindow
from tests.services.bench_runs import EVENTS, PLAN
from tests.services.fakes import Reply
from tests.services.tool_fakes import calling, read
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import entries_of
from tests.ui.tool_windows import ShownServers, tools

__all__ = ["tools"]

REMOTE = "remote:studio/qwen"
BROKEN = "broken"
WAITS = (EngineState.LOADING, EngineState.PREFILL, EngineState.SHORTENING)


@pytest.fixture
def panel_visible() -> bool:
    return True


class Driver:
    """Does something random, as a person, the engine or a server of tools might.

    Args:
        window: The window that shows it.
        chat: Its services, with the scripted engine.
        servers: The servers of tools.
        seed: Decides what is done.
    """

    def __init__(self, window: MainWindow, chat: Chat, servers: ShownServers, seed: int) -> None:
        self.window = window
        self.chat = chat
        self.servers = servers
        self.chance = random.Random(seed)
        chat.engine.bench_events = EVENTS
        chat.engine.load_errors = {BROKEN: ModelError("It is damaged.", "")}
        chat.settings.change_values(unload_after_minutes=5)
        self.actions: list[Callable[[], object]] = [
            self.load, self.load, self.unload, self.move_load, self.move, self.move, self.move, self.send, self.send,
            self.send, self.stop, self.go_elsewhere, self.measure, self.decide, self.decide, self.move_tools,
            self.answer, self.answer, self.sleep, self.serve,
        ]  # fmt: skip

    def act(self) -> None:
        self.chance.choice(self.actions)()

    def load(self) -> None:
        self.chat.slot.load_model(self.chance.choice((None, "other", REMOTE, BROKEN)))

    def unload(self) -> None:
        if self.chance.random() < 0.3:
            self.chat.slot.unload_model()

    def move_load(self) -> None:
        gate = self.chat.engine.load_gate
        self.chance.choice((gate.shut, gate.open))()
        if self.chat.slot.loading:
            once = self.chance.random() < 0.5
            share = self.chance.choice((None, self.chance.random()))
            self.chat.slot.load_progressed.emit(LoadProgress("Reading weights", share, once))

    def move(self) -> None:
        gate = self.chat.engine.gate
        self.chance.choice((gate.shut, gate.open, lambda: gate.allow(self.chance.randrange(1, 4))))()

    def send(self) -> None:
        self.chat.engine.replies = [self.chance.choice((Reply(), calling(read(call_id="1"))))]
        self.chat.controller.send("What is in it?")

    def stop(self) -> None:
        self.chat.controller.stop_reply()

    def go_elsewhere(self) -> None:
        chats = [chat.id for chat in self.chat.chats.newest(5)]
        if chats and self.chance.random() < 0.6:
            self.chat.open.open_chat(self.chance.choice(chats))
        else:
            self.chat.open.start_new()
        self.chat.open.set_tools(("files",), ())

    def measure(self) -> None:
        benchmark = self.chat.controller.benchmark
        if benchmark.running:
            benchmark.end_runs()
        elif self.chat.slot.info is not None:
            benchmark.run_plan(PLAN, {})

    def decide(self) -> None:
        calls = self.chat.controller.calls
        if calls.waiting:
            self.servers.result = self.chance.choice((None, ToolResult("the text")))
            self.chat.engine.replies = [Reply()]
            calls.decide(calls.waiting[0], self.chance.choice((Scope.ONCE, None)))

    def move_tools(self) -> None:
        if self.servers.calls:
            self.servers.end(ToolResult("the text"))
        self.servers.starts = self.chance.random() < 0.5
        self.servers.set("files", self.chance.choice(("stopped", "starting", "running")))

    def answer(self) -> None:
        for box in questions():
            roles = QMessageBox.ButtonRole
            accept = next(each for each in box.buttons() if box.buttonRole(each) is roles.AcceptRole)
            self.chance.choice((accept.click, box.reject))()

    def sleep(self) -> None:
        client = self.chat.client
        if client.asleep:
            client.wake()
        elif not client._open and self.chat.slot.info is not None:
            client._fall_asleep()

    def serve(self) -> None:
        """Begin a reply to another program, which pauses for the person's."""
        if self.chat.slot.info is not None:
            request = GenerationRequest((ChatMessage(Role.USER, "Hi"),))
            self.chat.client.submit_direct(request, lambda _event: None)

    def end(self, qtbot: QtBot) -> None:
        """Let all that waits go on, until nothing does."""
        self.servers.starts = True
        self.servers.result = ToolResult("the text")
        for gate in (self.chat.engine.gate, self.chat.engine.load_gate):
            gate.open()
        self.servers.set("files", "running")
        self.chat.engine.replies = [Reply()]
        self.chat.slot.load_model(None)
        status = self.chat.controller.status

        def is_ready() -> bool:
            while self.servers.calls:
                self.servers.end(ToolResult("the text"))
            for call in self.chat.controller.calls.waiting:
                self.chat.controller.calls.decide(call, None)
            for box in questions():
                box.reject()
            return status.value.state is EngineState.IDLE and self.chat.slot.info is not None

        qtbot.waitUntil(is_ready)


def questions() -> list[QMessageBox]:
    return [each for each in QApplication.topLevelWidgets() if isinstance(each, QMessageBox) and each.isVisible()]


def check_places(window: MainWindow, chat: Chat) -> Status:
    """Compare all places with the status, and return that."""
    status = chat.controller.status.value
    line = window.panel.status
    assert (line.state.text(), line.progress.isVisibleTo(line)) == (status.text, status.state in WAITS)
    if status.share is not None:
        assert line.progress.value() == round(1000 * status.share)
    assert status.text in next(iter(entries_of(window.menu_bar_item.menu)))
    name = window.header.model.text()
    assert name.startswith(chat.slot.info.name if chat.slot.info else status.text)
    assert ("asleep" in name) is (status.state is EngineState.ASLEEP)
    conversation = window.conversation
    composer = conversation.composer
    assert composer._sent_when == status.sent_when
    if status.state is EngineState.LOADING:
        assert composer.meter.isVisibleTo(composer) is (status.share is not None)
        assert status.share is None or (composer.meter._share, composer.meter.toolTip()) == (status.share, status.text)
    if chat.open.unsent.waiting_in(chat.open.id):
        assert conversation.waiting.title.text() == f"Sent when {status.sent_when or 'you have answered'}"
    last = chat.path[-1] if chat.path else None
    if last is not None and last.id == chat.open.streaming_id and not last.text:
        widget = conversation.transcript.widgets[last.id]
        assert status.state is EngineState.WRITING or widget._status.text() == status.text
    return status


def check_claims(window: MainWindow, chat: Chat, status: Status) -> None:
    """Compare the status with what the engine has to do and what the person is asked."""
    own = [each for each in chat.client._open if not (each.direct or each.background or each.cancelled)]
    cards = window.conversation.calls.cards
    if status.state is EngineState.IDLE:
        assert chat.slot.info is not None
        assert not chat.client.asleep
        assert not chat.client.measuring
        assert chat.open.id not in chat.controller.replies.chats_being_written
        assert not cards or not window.conversation.calls.isVisible()
        assert not questions()
        assert not [each for each in own if isinstance(each.command, WriteReply | LoadModel)]
    live = chat.controller.replies.live
    is_remote = chat.slot.info is not None and chat.slot.info.server
    if questions() and is_remote and live and all(each.request is None for each in live):
        assert status.state is EngineState.ASKING
    if chat.client.measuring and not live and chat.slot.info is not None:
        assert status.state in {EngineState.MEASURING, EngineState.LOADING}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_all_places_agree(qtbot: QtBot, window: MainWindow, chat: Chat, tools: ShownServers, seed: int) -> None:
    chat.start()
    chat.open.set_tools(("files",), ())
    driver = Driver(window, chat, tools, seed)
    for _ in range(40):
        driver.act()
        for _ in range(3):
            check_claims(window, chat, check_places(window, chat))
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 10)
    driver.end(qtbot)
    status = check_places(window, chat)
    assert status.text == "Ready"
    chat.open.start_new()
    asked = len(chat.engine.requests)
    chat.controller.send("Are you?")
    # One more may ask for the chat's title before this looks again.
    qtbot.waitUntil(lambda: len(chat.engine.requests) > asked)
    chat.wait_for_reply()


def test_a_load_has_one_bar_that_does_not_go_back(chat: Chat, window: MainWindow) -> None:
    """A second step, such as that of the drafter, began again at nothing."""
    status = chat.controller.status
    seen = list[Status]()
    status.changed.connect(lambda: seen.append(status.value))
    steps = (("Reading weights", 0.5), ("Reading weights", 1.0), ("Warming up", None), ("Loading the drafter", 0.1))
    for stage, fraction in steps:
        chat.slot.load_progressed.emit(LoadProgress(stage, fraction))
    assert [each.share for each in seen] == [0.5, 1.0, None, None]
    assert {each.text.split("…")[0] for each in seen} == {"Getting ready"}
    assert [each.detail for each in seen] == [stage for stage, _ in steps]
    chat.slot.load_progressed.emit(LoadProgress("Compiling", None, once=True))
    assert status.value.text == "Getting ready, once…"
    chat.slot.load_model("other")
    assert (status.value.text, status.value.share) == ("Getting ready…", None), "the other model's load begins"
    assert check_places(window, chat) == status.value


def test_a_prompt_is_read_with_one_figure(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("Hi")
    chat.controller.replies.prefill_progressed.emit(PrefillProgress(0, 512, 2048, 0))
    assert check_places(window, chat).text == "Reading the prompt: 512 of 2,048 tokens"
    chat.controller.replies.prefill_progressed.emit(PrefillProgress(0, 4, 100, 4, images=2))
    assert check_places(window, chat).text == "Seeing images: 2 left"
    chat.finish_reply()


def test_a_model_that_wakes_is_not_called_ready(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    """It is loaded again, which takes seconds."""
    chat.start()
    status = chat.controller.status
    qtbot.waitUntil(lambda: status.value.state is EngineState.IDLE)
    chat.settings.change_values(unload_after_minutes=5)
    chat.client._fall_asleep()
    assert check_places(window, chat).text == "Asleep"
    qtbot.waitUntil(lambda: chat.engine.naps == 1)
    chat.client.wake()
    assert check_places(window, chat).text == "Getting ready…"
    qtbot.waitUntil(lambda: check_places(window, chat).text == "Ready")
