"""A window whose chats have tools, with servers that do what a test says."""

from dataclasses import replace

import pytest

from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.servers.tool_servers import ServerState
from rdchat.ui.transcript.message_kinds import ToolMessage
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.pending_calls import PendingCalls
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.services.tool_fakes import ScriptedServers
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on


class ShownServers(ScriptedServers):
    """Scripted servers with states as the window shows them."""

    login_path = "/usr/bin"

    def server_state(self, name: str) -> ServerState:  # type: ignore[override]
        if name not in self.states:
            return ServerState()
        tools = self.definitions([name])
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
        path = self.chat.open
        self.chat.qtbot.waitUntil(lambda: replies.free and not replies.live and not calls.runs_in(path.id))


@pytest.fixture
def tools() -> ShownServers:
    return ShownServers()


@pytest.fixture
def tool_window(chat: Chat, window: MainWindow, tools: ShownServers) -> ToolWindow:
    chat.settings.change_values(panel_visible=False)
    chat.start()
    chat.open.set_tools(("files", "web"), ())
    return ToolWindow(chat, tools, window)
