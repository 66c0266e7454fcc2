"""Saved prompts in the message field: the list after `/`, what a prompt asks for, and saving one."""

from random import Random

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import SavedPrompt
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key


@pytest.fixture
def typed(chat: Chat, window: MainWindow) -> MainWindow:
    chat.start()
    prompts = (SavedPrompt("Summarise", "Summarise this."), SavedPrompt("Translate", "From {{one}} to {{other}}: x"))
    chat.settings.change_values(prompts=prompts)
    window.conversation.composer.field.setFocus()
    return window


def test_a_prompt_is_inserted_with_the_keyboard_and_asks_for_its_parts(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/")
    assert field.prompts.isVisible()
    assert field.prompts.count() == 2
    press_key(field, "Down")
    assert field.prompts.currentRow() == 1
    qtbot.keyClicks(field, "late")
    assert [field.prompts.item(row).text() for row in range(field.prompts.count())] == ["Translate"]
    press_key(field, "Return")
    assert not field.prompts.isVisible()
    # Qt has no name for this key.
    letter = QKeyEvent(QEvent.Type.KeyPress, ord("Ж"), Qt.KeyboardModifier.NoModifier, "ж")
    QApplication.sendEvent(field, letter)
    press_key(field, "Tab")
    assert field.textCursor().selectedText() == "{{other}}"
    qtbot.keyClicks(field, "Dutch")
    assert field.toPlainText() == "From ж to Dutch: x"
    press_key(field, "Tab")
    assert not field.hasFocus(), "nothing is asked for any more"


def sent(chat: Chat) -> str:
    """Return the last message that was sent; empty before."""
    return chat.engine.last_contents[-1] if chat.engine.requests else ""


def test_return_goes_to_a_part_that_nobody_filled(qtbot: QtBot, chat: Chat, typed: MainWindow) -> None:
    composer = typed.conversation.composer
    field = composer.field
    qtbot.keyClicks(field, "/late")
    press_key(field, "Return")
    qtbot.keyClicks(field, "Spanish")
    field.moveCursor(field.textCursor().MoveOperation.Start)
    field.textCursor().insertText("Quick\N{ZEBRA FACE} {{ user }}: {{one}} ")
    for part in ("{{other}}", "{{other}}"):
        press_key(field, "Return")
        assert field.textCursor().selectedText() == part
        assert composer.note.text() == "The prompt asks for this part. Fill it in, or delete it."
    click_on(composer.button)
    assert field.textCursor().selectedText() == "{{other}}"
    qtbot.keyClicks(field, "English")
    assert composer.note.isHidden()
    field.undo()
    press_key(field, "Return")
    assert sent(chat) == ""
    qtbot.keyClicks(field, "Dutch")
    press_key(field, "Return")
    qtbot.waitUntil(lambda: bool(sent(chat)))
    assert sent(chat) == "Quick\N{ZEBRA FACE} {{ user }}: {{one}} From Spanish to Dutch: x"


def test_a_part_is_still_asked_for_after_another_chat_was_open(chat: Chat, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    chat.qtbot.keyClicks(field, "/late")
    press_key(field, "Return")
    text = field.toPlainText()
    typed.conversation.composer.set_text("Another chat.")
    typed.conversation.composer.set_text(text)
    assert not field.document().isUndoAvailable()
    press_key(field, "Return")
    assert field.textCursor().selectedText() == "{{one}}"
    assert sent(chat) == ""


def test_whatever_is_edited_only_parts_of_a_prompt_stop_a_message(qtbot: QtBot, typed: MainWindow) -> None:
    odd = Random(0)
    field = typed.conversation.composer.field
    cursor = field.textCursor()
    for step in range(180):
        text = field.toPlainText()
        if step % 30 == 0 or not any(part in text for part in ("{{one}}", "{{other}}")):
            # It begins, or everything was undone.
            field.setPlainText("")
            field.prompts.hide()
            qtbot.keyClicks(field, "/late")
            press_key(field, "Return")
            text = field.toPlainText()
        # Outside the parts, and at their edges.
        free = [index for index in range(len(text) + 1) if not any(
            text.find(part) < index < text.find(part) + len(part) for part in ("{{one}}", "{{other}}"))]  # fmt: skip
        match odd.randrange(4):
            case 0 | 1:
                cursor.setPosition(odd.choice(free))
                cursor.insertText(odd.choice(["a", " ", "\n", "{{ user }}", "}}", "{{"]))
            case 2:
                field.undo()
            case _:
                field.redo()
        if any(part in field.toPlainText() for part in ("{{one}}", "{{other}}")):
            assert field.prompts.select_unfilled(), field.toPlainText()
            assert field.textCursor().selectedText() in {"{{one}}", "{{other}}"}


def test_esc_closes_the_list_and_return_then_sends_the_text(qtbot: QtBot, chat: Chat, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/s")
    press_key(field, "Esc")
    qtbot.keyClicks(field, "u")
    assert not field.prompts.isVisible()
    press_key(field, "Return")
    qtbot.waitUntil(lambda: bool(chat.engine.requests))
    assert chat.engine.last_contents[-1] == "/su"


def test_tab_leaves_a_text_with_braces_and_other_keys_stay_the_windows(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    field.setPlainText("{{ a }} and {{ b }}")
    for part in ("{{ a }}", "{{ b }}"):
        press_key(field, "Tab")
        assert field.textCursor().selectedText() == part
    press_key(field, "Tab")
    assert not field.hasFocus()
    field.setFocus()
    field.clear()
    qtbot.keyClicks(field, "/")
    for key, modifier, accepted in (
        (Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier, True),
        (Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier, False),
    ):
        override = QKeyEvent(QEvent.Type.ShortcutOverride, key, modifier)
        override.ignore()
        assert not field.prompts.eventFilter(field, override)
        assert override.isAccepted() is accepted
    press_key(field, "Shift+Return")
    assert field.toPlainText() == "/\n"


def test_return_ends_a_composition_instead_of_choosing_a_prompt(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/")
    QApplication.sendEvent(field, QInputMethodEvent("su", []))
    press_key(field, "Return")
    assert "Summarise" not in field.toPlainText()


def test_the_typed_text_is_saved_as_a_prompt(chat: Chat, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    chat.qtbot.keyClicks(field, "Write a haiku")
    field.customContextMenuRequested.emit(field.rect().center())
    (menu,) = field.findChildren(QMenu)
    menu.actions()[-1].trigger()
    menu.close()
    assert chat.settings.values.prompts[-1] == SavedPrompt("Write a haiku", "Write a haiku")
    assert "Saved as Write a haiku" in typed.conversation.composer.note.text()


def test_without_prompts_a_slash_offers_a_new_one(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.settings.change_values(prompts=())
    field = window.conversation.composer.field
    field.setFocus()
    qtbot.keyClicks(field, "/")
    assert field.prompts.isVisible()
    assert [field.prompts.item(row).text() for row in range(field.prompts.count())] == ["No prompts yet. New…"]
    qtbot.keyClicks(field, "usr")
    assert not field.prompts.isVisible(), "it may be a path"
    for _ in "usr":
        press_key(field, "Backspace")
    press_key(field, "Return")
    assert (field.toPlainText(), chat.engine.requests) == ("", [])
    presets = window.settings_window.presets
    assert presets.isVisible()
    assert [each.name for each in chat.settings.values.prompts] == ["New prompt"]
    assert presets.list.currentItem().text() == "/New prompt"
    window.settings_window.close()
