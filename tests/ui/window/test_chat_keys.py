"""Keys that go from chat to chat, and Up, which edits the last question."""

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.chat.listing import ChatRow
from rdchat.services.chat_list.chat_list import Activity
from rdchat.services.chat_list.chat_order import Location
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.sidebar.rows import ACTIVITY
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, press_key


def _focused(window: MainWindow) -> QPlainTextEdit:
    activate(window)
    window.conversation.composer.setFocus()
    return window.conversation.composer.field


def test_the_next_and_the_previous_chat_of_the_list_are_opened(chat: Chat, window: MainWindow) -> None:
    for title in ("Three", "Two", "One"):
        chat.store.create_conversation(title)
    chat.start()
    field = _focused(window)
    chat.open.start_new()
    seen = []
    for key in ("Down", "Down", "Down", "Down", "Up"):
        press_key(field, f"Ctrl+Alt+{key}")
        seen.append(window.windowTitle())
    assert seen == ["One", "Two", "Three", "Three", "Two"], "a heading stands above them, and nothing below"
    row = window.sidebar.list.current_row
    assert isinstance(row, ChatRow)
    assert row.conversation.title == "Two"
    assert field.hasFocus()


def test_no_key_opens_a_deleted_chat(chat: Chat, window: MainWindow) -> None:
    deleted = chat.store.create_conversation("Deleted")
    chat.store.create_conversation("Stays")
    chat.start()
    chat.controller.chats.delete_conversation(deleted.id)
    chat.controller.chats.show_location(Location.TRASH)
    press_key(_focused(window), "Ctrl+Alt+Down")
    assert window.windowTitle() == "Stays"


def test_a_key_goes_to_the_chat_with_a_new_reply(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("First")
    first = chat.open.id
    assert first is not None
    window.actions_.new_chat.trigger()
    assert not window.actions_.next_reply.isEnabled()
    chat.engine.gate.open()
    chat.wait_for(EngineState.IDLE)
    sidebar = window.sidebar.list
    row = sidebar.rows.index_of(("chat", first))
    assert row is not None
    assert sidebar.rows.index(row).data(ACTIVITY) == Activity.NEW
    qtbot.waitUntil(window.actions_.next_reply.isEnabled)
    press_key(_focused(window), "Ctrl+Alt+Shift+Down")
    assert chat.open.id == first
    assert chat.controller.chats.activity(first) is Activity.NONE
    qtbot.waitUntil(lambda: not window.actions_.next_reply.isEnabled())


def test_up_in_an_empty_field_edits_the_last_question(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    field = _focused(window)
    press_key(field, "Up")
    assert field.hasFocus(), "there is nothing to edit yet"
    chat.say("One")
    chat.say("Two")
    # Escape is the editor's again.
    qtbot.waitUntil(lambda: not window.actions_.stop.isEnabled())
    QTest.keyClicks(field, "x")
    press_key(field, "Up")
    assert field.hasFocus(), "Up moves the cursor of a text"
    press_key(field, "Backspace")
    press_key(field, "Up")
    editor = window.focusWidget()
    assert isinstance(editor, QPlainTextEdit)
    assert (editor.accessibleName(), editor.toPlainText()) == ("Edit your message", "Two")
    press_key(editor, "Esc")
    assert field.hasFocus()
    press_key(field, "Up")
    editor = window.focusWidget()
    assert isinstance(editor, QPlainTextEdit)
    QTest.keyClicks(editor, "!")
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: chat.controller.replies.state is EngineState.IDLE and not chat.writing)
    assert [message.text for message in chat.path][2] == "Two!"


def test_up_takes_back_a_question_that_waits(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("One")
    chat.controller.send("Two")
    field = _focused(window)
    press_key(field, "Up")
    assert field.toPlainText() == "Two"
    assert not chat.open.unsent.waiting
