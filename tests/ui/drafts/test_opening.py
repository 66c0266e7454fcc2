"""The window of tokens is reached from the menu and from a reply, while it is written too."""

import pytest
from PySide6.QtCore import Qt

from rdchat.inference.api import Role
from rdchat.ui.drafts.drafts_window import DraftsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.transcript.conftest import button


def test_the_menu_shows_the_last_reply(window: MainWindow, chat: Chat) -> None:
    assert not window.actions_.tokens.isEnabled()
    chat.start("Hi")
    window.actions_.tokens.trigger()
    (drafts,) = window.findChildren(DraftsWindow)
    chat.qtbot.waitUntil(drafts.isVisible)
    assert drafts.tokens.accessibleDescription().startswith("Token 1 of 4, Hello")


def test_a_reply_of_the_transcript_shows_its_own(window: MainWindow, chat: Chat) -> None:
    chat.engine.replies = [Reply(tokens=("One", " two")), Reply()]
    chat.start("Hi", "And again")
    first = chat.open.path[1]
    window.conversation.transcript.tokens_requested.emit(first.id)
    assert window.windows.drafts.tokens.accessibleDescription().startswith("Token 1 of 2, One")


def test_tokens_that_were_not_recorded_are_not_offered(window: MainWindow, chat: Chat) -> None:
    chat.start("Hi")
    view = window.conversation.transcript
    widget = view.widgets[chat.path[-1].id]
    assert not view.shows_figures
    window.commands.side_toggled.emit(window.panel_side)
    assert button(widget, "Show tokens").isEnabled()
    assert window.actions_.tokens.isEnabled()
    imported = chat.store.create_conversation("Imported")
    prompt = chat.store.add_message(imported.id, None, Role.USER, "Hi")
    chat.store.add_message(imported.id, prompt.id, Role.ASSISTANT, "Hello")
    chat.open.open_chat(imported.id)
    assert not button(view.widgets[chat.path[-1].id], "Show tokens: not recorded").isEnabled()
    chat.qtbot.waitUntil(lambda: not window.actions_.tokens.isEnabled())


def test_it_follows_the_reply_that_is_being_written(window: MainWindow, chat: Chat) -> None:
    chat.start()
    chat.pause_reply("Hi")
    window.actions_.tokens.trigger()
    tokens = window.windows.drafts.tokens
    assert tokens.accessibleDescription().startswith("Token 1 of 1, Hello")
    chat.finish_reply()
    chat.qtbot.waitUntil(lambda: tokens.accessibleDescription().startswith("Token 4 of 4, !"))
    assert tokens.current == 3


@pytest.mark.slow
def test_it_closes_with_the_chat_it_shows(window: MainWindow, chat: Chat) -> None:
    chat.start("Hi")
    shown = chat.open.id
    chat.open.start_new()
    chat.say("Something else")
    other = chat.open.id
    chat.open.open_chat(shown)
    window.actions_.tokens.trigger()
    chat.chats.delete_conversation(other)
    assert window.windows.drafts.isVisible()
    chat.chats.delete_conversation(shown)
    assert not window.windows.drafts.isVisible()


def test_a_minimised_window_comes_back(window: MainWindow, chat: Chat) -> None:
    chat.start("Hi")
    window.actions_.tokens.trigger()
    drafts = window.windows.drafts
    drafts.setWindowState(Qt.WindowState.WindowMinimized)
    window.actions_.tokens.trigger()
    assert not drafts.isMinimized()
