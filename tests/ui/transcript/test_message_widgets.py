from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QMenu, QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message, MessageStatus, Thinking
from rdchat.inference.api import FinishReason, ToolCall
from rdchat.ui.transcript.message_actions import HEIGHT
from rdchat.ui.transcript.message_parts import EDGE, FoldedText, MessageEditor
from rdchat.ui.transcript.view import TranscriptView
from tests.grids import share
from tests.ui.shown_widgets import click_on, focus_on, picture_of, press_key
from tests.ui.transcript.conftest import (
    Show,
    add_message,
    answered,
    append_text,
    button,
    choose_in_menu,
    dialogue,
    edited_text,
    person,
    reply,
    scroll_bar,
    update_message,
    wait_until_drawn,
    widget_of,
)


def words(view: TranscriptView, message_id: int) -> list[str]:
    """Return the texts of the labels shown in a message."""
    labels = widget_of(view, message_id).findChildren(QLabel)
    return [label.text() for label in labels if label.isVisible() and label.text()]


@pytest.mark.parametrize(
    ("message", "said", "remedy"),
    [
        (
            reply(2, "Once", MessageStatus.INTERRUPTED, None),
            "Interrupted: rdchat closed while this reply was being written.",
            "Continue",
        ),
        (
            reply(2, "", MessageStatus.INTERRUPTED, None),
            "Interrupted: rdchat closed before this reply began.",
            "Try Again",
        ),
        (reply(2, "Once", finish_reason=FinishReason.CANCELLED), "Stopped.", "Continue"),
        (reply(2, "", finish_reason=FinishReason.CANCELLED), "Stopped.", "Try Again"),
        (
            reply(2, "Once", finish_reason=FinishReason.LENGTH),
            "Stopped at the token limit for a reply.",
            "Continue",
        ),
        (
            reply(2, "Once", finish_reason=FinishReason.LENGTH, tool_calls=(ToolCall("f", "{}", "a", "No tools."),)),
            "Stopped at the token limit for a reply. Not run: f. No tools.",
            "Try Again",
        ),
        (
            reply(2, "", MessageStatus.FAILED, None, error="The model ran out of memory."),
            "The model ran out of memory.",
            "Try Again",
        ),
    ],
)
def test_an_early_end_is_explained_and_can_be_mended(
    qtbot: QtBot, show: Show, message: Message, said: str, remedy: str
) -> None:
    view = show([person(1, "Hi"), message])
    assert words(view, 2) == [said]
    signal = view.continue_requested if remedy == "Continue" else view.regenerate_requested
    with qtbot.waitSignal(signal) as asked:
        click_on(button(widget_of(view, 2), remedy))
    assert asked.args == [2]


def test_a_full_context_says_what_to_do(show: Show) -> None:
    view = show(answered("Once", finish_reason=FinishReason.CONTEXT_FULL))
    assert words(view, 2) == ["The model's context is full. The chat has to be shortened before it goes on."]


def test_an_empty_reply_says_what_it_waits_for_until_text_comes(show: Show) -> None:
    view = show(answered("", MessageStatus.STREAMING, None))
    assert words(view, 2) == ["Waiting for the model…"]
    view.set_waiting(2, "Reading the prompt… 512 of 2,048 tokens")
    assert words(view, 2) == ["Reading the prompt… 512 of 2,048 tokens"]
    append_text(view, 2, "Hello")
    assert words(view, 2) == []


def test_copying_a_message_takes_it_as_written(show: Show) -> None:
    view = show([person(1, "  *as* typed"), reply(2, "<think>\nhm\n</think>\n**Bold**"), person(3, "And?")])
    click_on(button(widget_of(view, 1), "Copy message"))
    assert QGuiApplication.clipboard().text() == "  *as* typed"
    click_on(button(widget_of(view, 2), "Copy reply"))
    assert QGuiApplication.clipboard().text() == "**Bold**"
    QGuiApplication.clipboard().clear()
    view.copy_last_reply()
    assert QGuiApplication.clipboard().text() == "**Bold**"


def test_alternatives_are_stepped_through(qtbot: QtBot, show: Show) -> None:
    view = show(answered("Second", sibling=1, siblings=3))
    assert words(view, 2) == ["2 of 3"]
    with qtbot.waitSignal(view.alternative_requested) as asked:
        click_on(button(widget_of(view, 2), "Next version"))
    assert asked.args == [2, 1]
    update_message(view, reply(2, "Third", sibling=2, siblings=3))
    assert words(view, 2) == ["3 of 3"]
    assert not button(widget_of(view, 2), "Next version").isEnabled()


def test_an_editor_shows_that_it_has_the_focus(show: Show) -> None:
    view = show(dialogue(1))
    click_on(button(widget_of(view, 1), "Edit message"))
    (editor,) = view.findChildren(MessageEditor)
    focus_on(editor.field)
    edge = QPoint(editor.field.x() + 1, editor.field.geometry().center().y())
    pictures = [picture_of(editor)]
    focus_on(button(view, "Save and Send"))
    pictures.append(picture_of(editor))
    accent, ground = (image.pixelColor(edge) for image in pictures)
    assert accent.blue() - accent.red() > ground.blue() - ground.red() + 50


def test_an_edit_is_saved_and_sent_with_return(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(1))
    click_on(button(widget_of(view, 1), "Edit message"))
    field = view.findChild(QPlainTextEdit)
    assert field.toPlainText() == "Question 1?"
    field.clear()
    with qtbot.assertNotEmitted(view.edit_submitted):
        press_key(field, "Return")
    assert not button(view, "Save and Send").isEnabled(), "an empty one cannot be sent"
    qtbot.keyClicks(field, "Why")
    press_key(field, "Shift+Return")
    qtbot.keyClicks(field, "then?")
    with qtbot.waitSignal(view.edit_submitted) as sent:
        press_key(field, "Return")
    assert sent.args == [1, "Why\nthen?"]


def test_a_thought_is_folded_while_it_is_written_and_stays_as_the_person_has_it(qtbot: QtBot, show: Show) -> None:
    view = show(answered("", MessageStatus.STREAMING, None))
    append_text(view, 2, "<think>\nI wonder")
    wait_until_drawn(qtbot, view)
    box = view.findChild(FoldedText)
    assert (title(box), box.body.isVisible()) == ("Thinking…", False)
    click_on(button(box, "Show the model's thoughts"))
    wait_until_drawn(qtbot, view)
    assert box.body.toPlainText() == "I wonder"
    append_text(view, 2, " much.\n</think>\n\nHello")
    wait_until_drawn(qtbot, view)
    assert (box.body.isVisible(), box.body.toPlainText()) == (True, "I wonder much.")
    assert widget_of(view, 2).body.toPlainText() == "Hello"


def title(box: FoldedText) -> str:
    return next(each.text() for each in box.findChildren(QAbstractButton) if each.parent() is box)


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0.0, "Thoughts"),
        (300.0, "Thought for 1 s"),
        (12_400.0, "Thought for 12 s"),
        (125_000.0, "Thought for 2 min"),
    ],
)
def test_a_thought_says_how_long_it_took(show: Show, ms: float, said: str) -> None:
    view = show(answered("<think>hm</think>Hello", thinking=Thinking(ms=ms)))
    assert title(view.findChild(FoldedText)) == said


@pytest.mark.parametrize("text", ["", "<think>hm</think>", "<think>hm</think>\n\n"])
def test_no_gap_for_hidden_buttons_stands_before_the_calls(qtbot: QtBot, show: Show, text: str) -> None:
    view = show(answered(text, tool_calls=(ToolCall("f", "{}", "a"),)))
    widget = widget_of(view, 2)
    assert widget.actions_row.isVisible(), "the calls wait for an answer"
    add_message(view, reply(3, "Done"))
    wait_until_drawn(qtbot, view)
    thought = widget.findChild(FoldedText)
    below = thought.geometry().bottom() if thought else 0
    assert not widget.actions_row.isVisible()
    assert widget.height() - below < HEIGHT


def test_a_thought_that_the_template_began_is_one_while_it_is_written(qtbot: QtBot, show: Show) -> None:
    streaming = reply(2, "", MessageStatus.STREAMING, None, thinking=Thinking(begun=True))
    view = show([person(1, "Hi"), streaming])
    assert words(view, 2) == ["Waiting for the model…"]
    assert view.findChild(FoldedText) is None
    append_text(view, 2, "I wonder")
    wait_until_drawn(qtbot, view)
    assert (title(view.findChild(FoldedText)), widget_of(view, 2).body.toPlainText()) == ("Thinking…", "")


def test_a_thought_that_was_cut_off_stays_open_and_says_so(show: Show) -> None:
    view = show(answered("<think>\nI wonder", finish_reason=FinishReason.LENGTH))
    box = view.findChild(FoldedText)
    assert (title(box), box.body.isVisible()) == ("Did not finish thinking", True)


def test_unfolding_a_thought_at_the_end_keeps_it_in_view(qtbot: QtBot, show: Show) -> None:
    view = show([*dialogue(10), person(21, "Hi"), reply(22, "<think>\n" + "hm\n\n" * 100 + "</think>\nHello")])
    box = view.findChild(FoldedText)
    before = box.mapTo(view, QPoint(0, 0))
    click_on(button(box, "Show the model's thoughts"))
    wait_until_drawn(qtbot, view)
    assert box.mapTo(view, QPoint(0, 0)) == before


def test_buttons_show_on_hover_and_keep_their_place(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(2))
    first = widget_of(view, 2)
    height = first.height()
    copy = button(first, "Copy reply")
    concealed = copy.grab().toImage()
    qtbot.mouseMove(first, QPoint(5, 5))
    qtbot.waitUntil(lambda: copy.grab().toImage() != concealed)
    assert first.height() == height


def test_any_reply_can_be_continued_from_its_menu(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(1))
    with qtbot.waitSignal(view.continue_requested) as asked:
        choose_in_menu(widget_of(view, 2), "Continue Reply")
    assert asked.args == [2]


def editor_in(view: TranscriptView, message_id: int) -> QPlainTextEdit:
    choose_in_menu(widget_of(view, message_id), "Edit Reply")
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
        click_on(button(view, "Save"))
        editor = editor_in(view, 2)
        qtbot.keyClicks(editor, "more")
        press_key(editor, "Esc")
    assert widget_of(view, 2).body.toPlainText() == "Answer 1."


def test_a_reply_that_is_being_written_is_not_edited(show: Show) -> None:
    view = show(answered("So", MessageStatus.STREAMING, None))
    menu = QMenu(view)
    widget_of(view, 2).fill_menu(menu)
    assert [action.isEnabled() for action in menu.actions() if action.text() == "Edit Reply"] == [False]


def test_an_edited_reply_says_so_with_its_place_and_in_its_details(show: Show) -> None:
    view = show(answered("Mine", edited=True, sibling=1, siblings=2))
    assert words(view, 2) == ["2 of 2, edited"]
    view.set_messages(answered("Mine", edited=True))
    assert words(view, 2) == ["Edited"]
    view.show_figures(True)
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
