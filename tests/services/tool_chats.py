"""Chats with tools, and what a person does in them."""

import pytest

from rdchat.chat.conversation import Message
from rdchat.inference.api import ToolCall
from rdchat.services.chat.tool_call_control import Scope
from tests.services.fakes import Reply
from tests.services.tool_fakes import ScriptedServers, calling, read
from tests.services.window import Window

ANSWER = Reply(("It says so.",))


@pytest.fixture
def tools(window: Window) -> Window:
    """A window whose chat has both servers."""
    window.chat.set_tools(("files", "web"), ())
    return window


def roles(window: Window) -> list[str]:
    return [message.role.value for message in window.chat.path]


def run(window: Window, call: ToolCall, scope: Scope = Scope.ONCE) -> None:
    """Approve a call as its card shows it."""
    calls = window.calls
    calls.decide(call, scope, calls.waiting_call(call).tool)


def approve(window: Window, scope: Scope = Scope.ONCE) -> None:
    """Approve the first call that waits, and wait until nothing goes on."""
    run(window, window.calls.waiting[0], scope)
    window.wait_until_idle()


def ask(window: Window, *replies: Reply) -> Message:
    """Ask a question that is answered by some replies; by default a call to read a file, and an answer."""
    window.engine.replies[:] = replies or (calling(read()), ANSWER)
    return window.ask("What is in it?")


def hold_call(window: Window, servers: ScriptedServers) -> None:
    """Have a call run that does not end by itself."""
    servers.result = None
    ask(window)
    approve(window)
