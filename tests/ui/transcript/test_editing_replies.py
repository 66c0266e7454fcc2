from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, MessageStatus
from rdchat.inference.api import Mode, Statistics
from rdchat.ui.transcript.message_actions import facts, summary
from rdchat.ui.transcript.message_parts import EDGE
from rdchat.ui.transcript.view import TranscriptView
from tests.grids import share
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import (
    Show,
    answered,
    button,
    dialogue,
    edited_text,
    person,
    reply,
    scroll_bar,
    update_message,
    widget_of,
)


def open_menu(view: TranscriptView, message_id: int) -> QMenu:
    """Press the button that opens a message's menu."""
    click_on(button(widget_of(view, message_id), "More"))
    (menu,) = [menu for menu in widget_of(view, message_id).findChildren(QMenu) if menu.isVisible()]
    return menu


def choose(menu: QMenu, words: str) -> None:
    chosen = next(action for action in menu.actions() if action.text() == words)
    menu.setActiveAction(chosen)
    press_key(menu, "Return")


def editor_in(view: TranscriptView, message_id: int) -> QPlainTextEdit:
    choose(open_menu(view, message_id), "Edit Reply")
    (editor,) = [each for each in widget_of(view, message_id).findChildren(QPlainTextEdit) if each.isVisible()]
    return editor


def test_a_reply_is_edited_in_its_place_without_its_thoughts(qtbot: QtBot, show: Show) -> None:
    view = show(answered("<think>\nhm\n</think>\n\nYes.\n\nNo."))
    editor = editor_in(view, 2)
    assert view.focusWidget() is editor
    message = widget_of(view, 2)
    left = editor.mapTo(message, QPoint(0, 0)).x()
    assert (left, message.width() - left - editor.width()) == (EDGE, EDGE), "as wide as the texts"
    assert editor.toPlainText().strip() == "Yes.\n\nNo."
    editor.selectAll()
    qtbot.keyClicks(editor, "Maybe")
    press_key(editor, "Return")
    qtbot.keyClicks(editor, "so")
    with qtbot.waitSignal(view.edit_submitted) as saved:
        press_key(editor, "Ctrl+Return")
    assert saved.args == [2, "Maybe\nso"]
    assert editor.isVisible(), "nobody has shown another version: it may have been refused"
    view.set_messages([person(1, "Hi"), reply(3, "Maybe\nso", siblings=2)])
    assert not editor.isVisible()


def test_an_unchanged_or_cancelled_edit_is_none(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(1))
    with qtbot.assertNotEmitted(view.edit_submitted):
        editor_in(view, 2)
        click_on(next(each for each in view.findChildren(QPushButton) if each.text() == "Save"))
        editor = editor_in(view, 2)
        qtbot.keyClicks(editor, "more")
        press_key(editor, "Esc")
    assert widget_of(view, 2).body.toPlainText() == "Answer 1."


def test_a_reply_that_is_being_written_is_not_edited(show: Show) -> None:
    view = show(answered("So", MessageStatus.STREAMING, None))
    menu = QMenu(view)
    widget_of(view, 2).fill_menu(menu)
    actions = {action.text(): action for action in menu.actions()}
    assert not actions["Edit Reply"].isEnabled()


def test_an_edited_reply_says_so_with_its_place_and_in_its_details(show: Show) -> None:
    view = show(answered("Mine", edited=True, sibling=1, siblings=2))
    said = [label.text() for label in widget_of(view, 2).findChildren(QLabel) if label.isVisible() and label.text()]
    assert said == ["2 of 2, edited"]
    view.set_messages(answered("Mine", edited=True))
    said = [label.text() for label in widget_of(view, 2).findChildren(QLabel) if label.isVisible() and label.text()]
    assert said == ["Edited"]
    details = button(widget_of(view, 2), "Details")
    assert details.isEnabled()
    click_on(details)
    (popup,) = [each for each in QApplication.topLevelWidgets() if each.accessibleName() == "Details of the reply"]
    assert "Edited by you" in [label.text() for label in popup.findChildren(QLabel)]
    popup.close()


def test_what_is_shown_anew_while_it_is_edited_stays_behind_the_editor(show: Show) -> None:
    view = show(dialogue(1))
    editor = editor_in(view, 2)
    update_message(view, reply(2, "Answer 1.", siblings=2))
    assert editor.isVisible()
    assert not widget_of(view, 2).actions_row.isVisible()
    assert not widget_of(view, 2).body.isVisible()


@pytest.mark.slow
@pytest.mark.parametrize("message_id", share([200, 199], 2))
def test_an_edit_is_kept_where_the_reader_goes_elsewhere(show: Show, message_id: int) -> None:
    view = show(dialogue(100))
    widget_of(view, message_id).edit()
    (editor,) = widget_of(view, message_id).findChildren(QPlainTextEdit)
    editor.setPlainText("An hour's work.\n" * 9)
    view.set_messages([replace(message, conversation_id=2, id=message.id + 1000) for message in dialogue(2)])
    view.set_messages(dialogue(100))
    assert edited_text(widget_of(view, message_id)) == "An hour's work.\n" * 9
    assert not widget_of(view, message_id).body.isVisible()
    assert scroll_bar(view).value() == scroll_bar(view).maximum()
    view.scroll_to_start()
    view.scroll_to_end()
    assert edited_text(widget_of(view, message_id)) == "An hour's work.\n" * 9
    (editor,) = widget_of(view, message_id).findChildren(QPlainTextEdit)
    press_key(editor, "Esc")
    view.scroll_to_start()
    view.scroll_to_end()
    assert edited_text(widget_of(view, message_id)) is None, "it was given up"


def test_figures_of_an_edited_reply_are_those_of_what_was_written_on() -> None:
    message = reply(2, "Mine and more", edited=True)
    assert summary(message) == ["edited"]
    assert [fact.value for fact in facts(message)] == ["Edited by you"]
    onward = reply(
        2, "Mine and more", edited=True, statistics=Statistics(prompt_tokens=9, generated_tokens=4),
        drafting=Drafting(Mode.OFF, last_part=True),
    )  # fmt: skip
    assert summary(onward)[0] == "edited"
    assert "of the last part" in summary(onward)
