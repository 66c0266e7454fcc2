"""Work on the text through the whole window."""

import pytest
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import button
from tests.ui.window.message_menus import choose, shown, texts


@pytest.mark.slow
def test_deleting_is_undone_from_the_banner_and_from_the_menu(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    chat.say("More")
    before = texts(chat)
    choose(window, 1, "Delete Message")
    assert texts(chat) == ["Hi"]
    qtbot.waitUntil(lambda: window.actions_.regenerate.text() == "Get a Reply")
    banner = window.conversation.banners.banner("undo")
    (undo,) = [each for each in banner.findChildren(QAbstractButton) if each.text() == "Undo"]
    click_on(undo)
    assert texts(chat) == before
    choose(window, -1, "Delete Message")
    assert texts(chat) == before[:-1]
    window.sidebar.list.setFocus()
    window.actions_.undo.trigger()
    assert texts(chat) == before
    choose(window, -1, "Delete Message")
    qtbot.waitUntil(window.actions_.restore_message.isEnabled)
    window.actions_.restore_message.trigger()
    assert texts(chat) == before
    qtbot.waitUntil(lambda: not window.actions_.restore_message.isEnabled())


@pytest.mark.slow
def test_after_deleting_undo_is_at_hand_but_a_text_field_undoes_typing(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    chat.start()
    chat.say("Hi")
    before = texts(chat)
    choose(window, -1, "Delete Message")
    assert window.focusWidget() is shown(window, 0).body
    window.actions_.undo.trigger()
    assert texts(chat) == before
    choose(window, -1, "Delete Message")
    field = window.conversation.composer.field
    field.setFocus()
    qtbot.keyClicks(field, "typed")
    window.actions_.undo.trigger()
    assert (texts(chat), field.toPlainText()) == (["Hi"], "")
    window.actions_.undo.trigger()
    assert texts(chat) == ["Hi"]


@pytest.mark.slow
def test_a_prompt_whose_reply_was_deleted_gets_another_one(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    choose(window, -1, "Delete Message")
    choose(window, -1, "Get a Reply")
    qtbot.waitUntil(lambda: texts(chat) == ["Hi", "Hello, you!"] and not chat.writing)
    choose(window, -1, "Delete Message")
    click_on(button(shown(window, -1), "Get a reply"))
    qtbot.waitUntil(lambda: texts(chat) == ["Hi", "Hello, you!"] and not chat.writing)


@pytest.mark.slow
def test_a_branch_opens(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    chat.say("More")
    choose(window, 1, "Branch into New Chat")
    qtbot.waitUntil(lambda: window.windowTitle() == "Branch of Hi")
    assert texts(chat) == ["Hi", "Hello, you!"]


def test_a_branch_ends_the_offer_to_undo_what_was_done_before(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    choose(window, -1, "Delete Message")
    choose(window, -1, "Branch into New Chat")
    qtbot.waitUntil(lambda: window.windowTitle() == "Branch of Hi")
    assert window.conversation.banners.banner("undo") is None


def test_restoring_ends_the_offer_to_undo_the_deletion(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    choose(window, -1, "Delete Message")
    assert window.conversation.banners.banner("undo") is not None
    qtbot.waitUntil(window.actions_.restore_message.isEnabled)
    window.actions_.restore_message.trigger()
    assert window.conversation.banners.banner("undo") is None


def test_an_edited_reply_is_shown_at_once(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    choose(window, -1, "Edit Reply")
    editor = window.focusWidget()
    editor.selectAll()
    qtbot.keyClicks(editor, "Mine")
    press_key(editor, "Ctrl+Return")
    assert texts(chat) == ["Hi", "Mine"]
    assert shown(window, -1).message.edited


def test_a_selection_is_quoted_with_its_shortcut(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hi")
    composer = window.conversation.composer
    composer.set_text("Before")
    window.actions_.quote.trigger()
    assert composer.note.text() == "Select some text of a message first, then quote it."
    body = shown(window, -1).body
    qtbot.waitUntil(lambda: body.toPlainText() == "Hello, you!")
    body.selectAll()
    body.setFocus()
    press_key(body, "Ctrl+'")
    assert composer.text == "Before\n\n> Hello, you!\n\n"
    assert composer.field.textCursor().atEnd()
    assert window.focusWidget() is composer.field
    composer.field.undo()
    assert composer.text == "Before"
