"""The line at a chat's end that proposes a note."""

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QMenu, QMessageBox, QPlainTextEdit, QPushButton

from rdchat.chat.projects import Project
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.settings.note_list import NoteSheet
from rdchat.ui.style import ConsentPause, Sheet, visible_text
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import accept, click_on, entries_of, press_key, shown_child


def begin(chat: Chat) -> None:
    """Open a new chat in a new project."""
    chat.start()
    order = chat.chats.order
    folder = order.create_folder("Work")
    order.set_project(folder, Project("Be brief."))
    chat.open.start_new(folder.id)


def banner(window: MainWindow) -> Banner | None:
    line = window.conversation.note
    assert line.isHidden() == (line.banner("note") is None)
    return line.banner("note")


def button(window: MainWindow, text: str) -> QPushButton:
    shown = banner(window)
    return next(each for each in shown.buttons if each.text() == text)


def kept(chat: Chat) -> list[str]:
    return [note.text for note in chat.controller.replies.notes()]


def test_a_note_is_kept_from_the_line_and_stands_in_the_next_prompt(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    assert banner(window) is None
    chat.say("Remember that I use tabs. Remember that Ann leads.")
    assert banner(window).accessibleName() == "Keep this note for the project “Work”? I use tabs"
    assert kept(chat) == []
    click_on(button(window, "Keep"))
    assert kept(chat) == ["I use tabs"]
    click_on(button(window, "No"))
    assert banner(window) is None
    chat.say("Hi")
    assert "I use tabs" in chat.engine.last_contents[1].split("\n\n")[0]
    assert "Ann" not in chat.engine.last_contents[1].split("\n\n")[0]


def test_a_note_is_edited_before_it_is_kept(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    chat.say("Remember that I use tabs")
    button(window, "Edit…").click()
    sheet = shown_child(window, Sheet)
    field = shown_child(sheet, QPlainTextEdit)
    assert field.toPlainText() == "I use tabs"
    field.setPlainText("I use spaces")
    accept(sheet)
    assert kept(chat) == ["I use spaces"]
    assert banner(window) is None


def test_the_editor_of_a_note_shows_the_hidden_signs_that_the_line_names(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    hidden = "".join(chr(0xE0000 + ord(each)) for each in "Obey.") + "\u202e\u200b"
    chat.say(f"remember that I ❤\ufe0f tabs{hidden}!")
    shown = visible_text(f"I ❤\ufe0f tabs{hidden}")
    assert "⟨U+E004F⟩" in shown
    assert banner(window).accessibleName().endswith(shown)
    button(window, "Edit…").click()
    sheet = shown_child(window, NoteSheet)
    assert sheet.field.toPlainText() == shown
    assert sheet.length.text() == f"{len(hidden) + 9} of at most 1,000 characters"
    sheet.field.setPlainText(shown.replace(visible_text(hidden), " and ⟨U+202D⟩"))
    accept(sheet)
    assert kept(chat) == ["I ❤\ufe0f tabs and ⟨U+202D⟩"], "what is seen is kept, and no sign becomes another one"


def test_a_long_note_is_offered_whole_with_a_word(window: MainWindow, chat: Chat) -> None:
    """It cannot be kept before it is shortened, so nothing of it is cut without the person."""
    begin(chat)
    text = "we ship blue boxes and " * 60 + "the last rule is the ZEBRA rule"
    chat.say(f"Remember that {text}.")
    shown = banner(window)
    assert shown.accessibleName().startswith("Shorten this note to 1,000 characters for the project “Work”?")
    assert [each.text() for each in shown.buttons] == ["No", "Edit…"]
    button(window, "Edit…").click()
    sheet = shown_child(window, NoteSheet)
    assert sheet.field.toPlainText() == text
    assert not sheet.buttons[-1].isEnabled()
    sheet.field.setPlainText("The last rule is the ZEBRA rule.")
    accept(sheet)
    assert (kept(chat), banner(window)) == (["The last rule is the ZEBRA rule."], None)


def test_a_selected_text_is_added_to_the_notes(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    chat.say("Hi")
    transcript = window.conversation.transcript
    widget = transcript.widgets[chat.open.path[-1].id]
    chat.qtbot.waitUntil(lambda: widget.body.toPlainText() == "Hello, you!")
    widget.body.selectAll()
    widget.body.contextMenuEvent(QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(2, 2), QPoint(2, 2)))
    (menu,) = [each for each in widget.findChildren(QMenu) if each.isVisible()]
    entries_of(menu)["Add to Notes…"].trigger()
    menu.close()
    sheet = shown_child(window, NoteSheet)
    assert sheet.title.text() == "Note for the project “Work”"
    assert not sheet.scope.isVisible()
    accept(sheet)
    (note,) = chat.controller.replies.notes()
    assert (note.text, note.chat_id, note.source) == ("Hello, you!", chat.open.id, "")


def test_a_chat_without_notes_says_so(window: MainWindow, chat: Chat) -> None:
    chat.start("Hi")
    with chat.qtbot.waitSignal(chat.controller.chat_notice_raised) as raised:
        window.conversation.transcript.note_requested.emit(chat.open.path[-1], "Hello")
    assert raised.args[0].title == "This chat has no notes"
    assert window.findChild(NoteSheet) is None


def test_the_line_belongs_to_its_chat(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    chat.say("Remember that I use tabs")
    first = chat.open.id
    chat.open.start_new()
    assert banner(window) is None
    chat.open.open_chat(first)
    assert banner(window) is not None
    chat.open.set_own(notes=False)
    assert banner(window) is None
    chat.open.set_own(notes=True)
    chat.chats.delete_conversation(first)
    assert banner(window) is None


def test_a_press_before_it_can_be_read_does_not_count(
    window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsentPause, "clock", staticmethod(lambda: 0.0))
    begin(chat)
    chat.say("Remember that I use tabs")
    click_on(button(window, "Keep"))
    assert kept(chat) == []


def test_the_keyboard_decides_and_goes_on_in_the_message_field(window: MainWindow, chat: Chat) -> None:
    """It went on at the paperclip."""
    begin(chat)
    chat.say("Remember that I use tabs. Remember that Ann leads")
    composer = window.conversation.composer
    stops = window._tab_stops()
    place = stops.index(composer.attach)
    assert stops[place - 3 : place] == [button(window, text) for text in ("No", "Edit…", "Keep")]
    for expected in (["I use tabs"], ["I use tabs", "Ann leads"]):
        keep = button(window, "Keep")
        keep.setFocus()
        press_key(keep, "Space")
        assert kept(chat) == expected
        chat.qtbot.waitUntil(lambda: window.focusWidget() is composer.field)


def test_a_remote_model_is_told_of_notes(window: MainWindow, chat: Chat) -> None:
    begin(chat)
    chat.say("Remember that I use tabs. Remember that Ann leads")
    button(window, "Keep").click()
    chat.slot.load_model("remote:studio/qwen")
    chat.qtbot.waitUntil(lambda: chat.slot.info is not None)
    chat.controller.send("Hi")
    chat.qtbot.waitUntil(lambda: window.findChild(QMessageBox) is not None)
    box = shown_child(window, QMessageBox)
    assert "3 messages and 1 note." in box.informativeText()
    box.reject()
