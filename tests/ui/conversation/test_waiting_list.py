"""The queue above the composer, and the signs in the sidebar."""

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QToolButton
from pytestqt.qtbot import QtBot

from rdchat.inference.api import DraftSettings, LoadProgress, Mode
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.sidebar.rows import ACTIVITY
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Gate
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key


def pause(chat: Chat, prompt: str) -> None:
    chat.start()
    chat.engine.gate.shut()
    chat.engine.gate.allow(4)
    chat.controller.send(prompt)
    chat.qtbot.waitUntil(lambda: chat.path[-1].text == "Hello,")


def press(window: MainWindow, name: str) -> None:
    buttons = window.conversation.waiting.findChildren(QToolButton)
    shown = [button for button in buttons if button.accessibleName().startswith(name) and button.isVisible()]
    shown[0].click()


def test_an_empty_reply_says_what_the_panel_says(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    """It waited for the model while the panel read the prompt."""
    chat.start()
    chat.hold_reply("One")
    reading = "Reading the prompt…"
    qtbot.waitUntil(lambda: window.panel.status.state.text() == reading)
    assert reading in [label.text() for label in window.conversation.transcript.findChildren(QLabel)]
    chat.engine.gate.open()
    chat.wait_for(EngineState.IDLE)


def test_a_message_that_waits_for_the_drafter_says_so(
    qtbot: QtBot, chat: Chat, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header shows the model: it is loaded."""
    chat.start()
    gate = Gate(open_=False)

    def load(_settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None:
        on_progress(LoadProgress("Loading the draft model small", 0.5))
        gate.wait()

    monkeypatch.setattr(chat.engine, "load_drafters", load)
    chat.controller.drafting.change(DraftSettings(Mode.SPECULATIVE, draft_model="small"))
    qtbot.waitUntil(lambda: chat.controller.drafting.loading)
    chat.controller.send("One")
    chat.controller.send("Two")
    assert window.conversation.waiting.title.text() == "Sent when the drafter is loaded"
    gate.open()
    chat.wait_for(EngineState.IDLE)


@pytest.mark.slow
def test_a_message_waits_visibly_and_is_edited_or_removed(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    pause(chat, "One")
    conversation = window.conversation
    for text in ("Two", "Three"):
        qtbot.keyClicks(conversation.composer.field, text)
        press_key(conversation.composer.field, "Return")
    assert conversation.waiting.isVisible()
    assert conversation.waiting.title.text() == "Sent when the reply is finished"
    press(window, "Edit")
    assert conversation.composer.text == "Two"
    press(window, "Remove")
    assert not conversation.waiting.isVisible()
    chat.engine.gate.open()
    chat.wait_for(EngineState.IDLE)
    assert [message.text for message in chat.path] == ["One", "Hello, you!"]
    assert conversation.composer.text == "Two"


@pytest.mark.slow
def test_another_chat_shows_its_own_queue_and_the_sidebar_says_what_goes_on(chat: Chat, window: MainWindow) -> None:
    pause(chat, "One")
    first = chat.open.conversation.id
    chat.open.start_new()
    chat.controller.send("Two")
    second = chat.open.conversation.id
    rows = window.sidebar.list.rows

    def activity(chat_id: int) -> str:
        return str(rows.index(rows.index_of(("chat", chat_id)) or 0).data(ACTIVITY))

    assert (activity(first), activity(second)) == ("a reply is being written", "a message is waiting")
    place = rows.index(rows.index_of(("chat", first)) or 0)
    assert place.data(Qt.ItemDataRole.AccessibleTextRole) == "One, a reply is being written"
    assert window.conversation.waiting.title.text() == "Sent when the reply in another chat is finished"
    assert not window.conversation.welcome.isVisible(), "the chat has begun"
    chat.open.open_chat(first)
    assert not window.conversation.waiting.isVisible()
    chat.engine.gate.open()
    chat.qtbot.waitUntil(lambda: len(chat.engine.requests) == 2 and chat.controller.replies.free)
    assert (activity(first), activity(second)) == ("", "a new reply")
