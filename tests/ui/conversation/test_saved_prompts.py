"""Saved prompts in the message field: the list after `/`, what a prompt asks for, and saving one."""

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import SavedPrompt
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat


@pytest.fixture
def typed(chat: Chat, window: MainWindow) -> MainWindow:
    chat.start()
    prompts = (SavedPrompt("Summarise", "Summarise this."), SavedPrompt("Translate", "From {{one}} to {{other}}: x"))
    chat.controller.settings.update(prompts=prompts)
    window.conversation.composer.field.setFocus()
    return window


def test_a_prompt_is_inserted_with_the_keyboard_and_asks_for_its_parts(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/")
    assert field.prompts.isVisible()
    assert field.prompts.count() == 2
    qtbot.keyClick(field, Qt.Key.Key_Down)
    assert field.prompts.currentRow() == 1
    qtbot.keyClicks(field, "late")
    assert [field.prompts.item(row).text() for row in range(field.prompts.count())] == ["Translate"]
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert not field.prompts.isVisible()
    # Qt has no name for this key.
    letter = QKeyEvent(QEvent.Type.KeyPress, ord("Ж"), Qt.KeyboardModifier.NoModifier, "ж")
    QApplication.sendEvent(field, letter)
    qtbot.keyClick(field, Qt.Key.Key_Tab)
    assert field.textCursor().selectedText() == "{{other}}"
    qtbot.keyClicks(field, "Dutch")
    assert field.toPlainText() == "From ж to Dutch: x"
    qtbot.keyClick(field, Qt.Key.Key_Tab)
    assert not field.hasFocus(), "nothing is asked for any more"


def test_esc_closes_the_list_and_return_then_sends_the_text(qtbot: QtBot, chat: Chat, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/s")
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    qtbot.keyClicks(field, "u")
    assert not field.prompts.isVisible()
    qtbot.keyClick(field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(chat.engine.requests))
    assert chat.engine.requests[-1].messages[-1].content == "/su"


def test_tab_leaves_a_text_with_braces_and_other_keys_stay_the_windows(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    field.setPlainText("{{ a }} and {{ b }}")
    for part in ("{{ a }}", "{{ b }}"):
        qtbot.keyClick(field, Qt.Key.Key_Tab)
        assert field.textCursor().selectedText() == part
    qtbot.keyClick(field, Qt.Key.Key_Tab)
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
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert field.toPlainText() == "/\n"


def test_return_ends_a_composition_instead_of_choosing_a_prompt(qtbot: QtBot, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "/")
    QApplication.sendEvent(field, QInputMethodEvent("su", []))
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert "Summarise" not in field.toPlainText()


def test_the_typed_text_is_saved_as_a_prompt(qtbot: QtBot, chat: Chat, typed: MainWindow) -> None:
    field = typed.conversation.composer.field
    qtbot.keyClicks(field, "Write a haiku")
    field.customContextMenuRequested.emit(field.rect().center())
    (menu,) = field.findChildren(QMenu)
    menu.actions()[-1].trigger()
    menu.close()
    assert chat.controller.settings.values.prompts[-1] == SavedPrompt("Write a haiku", "Write a haiku")
    assert "Saved as Write a haiku" in typed.conversation.composer.note.text()
