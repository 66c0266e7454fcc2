"""The page of notes in Settings."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox, QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.chat.notes import Note
from rdchat.ui.settings.notes_page import NotesPage
from rdchat.ui.style import Sheet, Theme
from tests.ui.conftest import Chat


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, chat: Chat) -> NotesPage:
    chat.start()
    folder = chat.store.organiser.create_folder("Work")
    soup = chat.store.create_conversation("Soup")
    for text, source in (("I use tabs", ""), ("Ann leads", "a file")):
        chat.store.organiser.keep_note(Note(text, folder.id, soup.id, source))
    chat.store.organiser.keep_note(Note("I live in Lisbon", None, None))
    page = NotesPage(theme, chat.controller)
    qtbot.addWidget(page)
    page.show_settings(chat.controller.settings.values)
    return page


def shown(page: NotesPage) -> list[str]:
    return [page.list.item(index).text() for index in range(page.list.count())]


def test_the_page_lists_and_searches_notes(qtbot: QtBot, page: NotesPage, chat: Chat) -> None:
    day = chat.controller.replies.notes()[0].date
    assert shown(page) == [
        f"I live in Lisbon\nFor all chats, kept {day} from a deleted chat",
        f"Ann leads (perhaps from a file)\nFor the project “Work”, kept {day} from the chat “Soup”",
        f"I use tabs\nFor the project “Work”, kept {day} from the chat “Soup”",
    ]
    qtbot.keyClicks(page.search, "soup TABS")
    assert [text.splitlines()[0] for text in shown(page)] == ["I use tabs"]
    page.search.setText("nothing")
    assert shown(page) == []
    assert not any(button.isEnabled() for button in page.buttons)


def test_a_note_is_edited_and_deleted(qtbot: QtBot, page: NotesPage, chat: Chat) -> None:
    edit, delete, _ = page.buttons
    page.list.setCurrentRow(1)
    edit.click()
    sheet = page.findChild(Sheet)
    assert isinstance(sheet, Sheet)
    field = sheet.findChild(QPlainTextEdit)
    assert isinstance(field, QPlainTextEdit)
    field.setPlainText("Bo\nleads.")
    sheet.buttons[-1].click()
    notes = lambda: [note.text for note in chat.controller.replies.notes()]  # noqa: E731
    assert notes() == ["I use tabs", "Bo leads", "I live in Lisbon"]
    page.list.setCurrentRow(2)
    delete.click()
    box = page.findChild(QMessageBox)
    assert isinstance(box, QMessageBox)
    assert box.text() == "Delete “I use tabs”?"
    next(each for each in box.buttons() if each.text() == "Delete").click()
    assert notes() == ["Bo leads", "I live in Lisbon"]
    assert len(shown(page)) == 2


def test_notes_are_exported(page: NotesPage, tmp_path: Path) -> None:
    page.buttons[-1].click()
    dialog = page.findChild(QFileDialog)
    assert isinstance(dialog, QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "notes.txt"))
    assert (tmp_path / "notes.txt").read_text() == "\n\n".join(shown(page))
    dialog.close()


def test_the_settings_are_on_the_page(page: NotesPage, chat: Chat) -> None:
    settings = chat.controller.settings
    assert not settings.values.notes_everywhere
    boxes = {name: field for field, name, _ in page._bound}
    boxes["notes_everywhere"].click()  # type: ignore[attr-defined]
    boxes["notes_tokens"].setValue(300)  # type: ignore[attr-defined]
    assert (settings.values.notes_everywhere, settings.values.notes_tokens) == (True, 300)
