"""A window whose chats have tools, with servers that do what a test says."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.tool_servers import ServerState
from rdchat.ui.style import Theme
from rdchat.ui.transcript.message_kinds import ToolMessage
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.pending_calls import PendingCalls
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.tool_fakes import ScriptedServers
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on


class ShownServers(ScriptedServers):
    """Scripted servers with states as the window shows them."""

    login_path = "/usr/bin"

    def server_state(self, name: str) -> ServerState:  # type: ignore[override]
        if name not in self.states:
            return ServerState()
        tools = self.tools[name] if self.is_known(name) else ()
        return replace(ServerState(definitions=tools), status=self.states[name].status)  # type: ignore[arg-type]


class ToolWindow:
    """A window with a chat that has both servers."""

    def __init__(self, chat: Chat, servers: ShownServers, window: MainWindow) -> None:
        self.chat = chat
        self.servers = servers
        self.window = window

    @property
    def calls(self) -> PendingCalls:
        return self.window.conversation.calls

    @property
    def widgets(self) -> list[MessageWidget]:
        return list(self.window.conversation.transcript.widgets.values())

    @property
    def results(self) -> list[ToolMessage]:
        return [each for each in self.widgets if isinstance(each, ToolMessage)]

    def ask(self, *replies: Reply) -> None:
        """Have the model answer a question, and wait until it has."""
        self.chat.engine.replies[:] = replies
        self.chat.say("What is in it?")

    def decide(self, scope: Scope | None = Scope.ONCE, call_id: str = "1") -> None:
        """Press a button of a call that waits."""
        click_on(self.calls.cards[call_id].buttons[scope])

    def run_call(self, call_id: str = "1") -> None:
        """Run a call, and wait until nothing goes on."""
        self.decide(call_id=call_id)
        self.wait()

    def wait(self) -> None:
        """Wait until nothing goes on."""
        replies = self.chat.controller.replies
        calls = self.chat.controller.calls
        path = self.chat.controller.chat
        self.chat.qtbot.waitUntil(lambda: replies.free and not replies.live and not calls.runs_in(path.id))


@pytest.fixture
def tool_window(qtbot: QtBot, theme: Theme, tmp_path: Path) -> Iterator[ToolWindow]:
    engine = ScriptedEngine()
    servers = ShownServers()
    store = ConversationStore(tmp_path / "chats.db")
    client = EngineClient(lambda: engine, nullcontext)
    settings = SettingsStore(tmp_path / "settings.json")
    settings.save_settings(replace(settings.settings, panel_visible=False))
    controller = ChatController(store, settings, client, tools=servers)
    transcript = TranscriptView(theme, unsent=controller.chat.unsent)
    window = MainWindow(controller, theme, transcript)
    qtbot.addWidget(window)
    window.resize(1200, 800)
    window.show()
    qtbot.waitExposed(window)
    tools = ToolWindow(Chat(controller, engine, client, store, qtbot), servers, window)
    tools.chat.start()
    controller.chat.set_tools(("files", "web"), ())
    yield tools
    controller.shut_down()
    store.close()
