"""More than fits is never cut: the person picks a part, and sees what it takes."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QDialog
from pytestqt.qtbot import QtBot

from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.files.sent_text import PartSheet
from rdchat.ui.style import ThemedLabel
from rdchat.ui.transcript.message_kinds import PersonMessage
from rdchat.ui.window.main_window import MainWindow
from tests.chat.attachments.documents import pdf
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key, shown_child


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Some 1,200 words on 40 pages; apples are on pages 7, 8 and 30."""
    pages = [f"Page {number} " + "tells of many other things and so on " * 3 for number in range(1, 41)]
    for number in (7, 8, 30):
        pages[number - 1] += " of apples"
    path = tmp_path / "book.pdf"
    path.write_bytes(pdf(pages))
    return path


@pytest.fixture
def brought(qtbot: QtBot, window: MainWindow, chat: Chat, book: Path) -> MainWindow:
    """A window with a book that is too long for the model."""
    chat.engine.context_length = 400
    chat.start()
    window.conversation.files.attach_files([str(book)])
    qtbot.waitUntil(lambda: chat.open.files.tokens is not None)
    return window


def open_sheet(window: MainWindow) -> PartSheet:
    (chip,) = window.conversation.composer.files.row.chips
    click_on(chip)
    return sheet_of(window)


def sheet_of(window: MainWindow) -> PartSheet:
    return shown_child(window, PartSheet)


def wait(qtbot: QtBot, sheet: PartSheet, beginning: str) -> None:
    qtbot.waitUntil(lambda: sheet.summary.text().startswith(beginning))


def ask(qtbot: QtBot, window: MainWindow, text: str) -> None:
    field = window.conversation.composer.field
    field.clear()
    qtbot.keyClicks(field, text)
    press_key(field, "Return")


def test_sending_too_much_opens_the_sheet_with_the_passages_that_match(
    qtbot: QtBot, brought: MainWindow, chat: Chat
) -> None:
    (chip,) = brought.conversation.composer.files.row.chips
    assert chip.accessibleName().endswith("choose a part")
    ask(qtbot, brought, "What of apples?")
    sheet = sheet_of(brought)
    assert brought.conversation.composer.text == "What of apples?"
    assert brought.conversation.composer.note.text().endswith("too long for this model. Choose a part of it.")
    assert sheet.by_passages.isChecked()
    assert sheet.question.text() == "What of apples?"
    wait(qtbot, sheet, "Passages 7 to 8 and 30 of 40: ")
    assert "of the context." in sheet.summary.text()
    press_key(sheet, "Return")
    assert not sheet.isVisible()
    qtbot.waitUntil(lambda: chat.open.files.tokens is not None)
    ask(qtbot, brought, "What of apples?")
    chat.wait_for(EngineState.IDLE)
    (message,) = brought.conversation.transcript.findChildren(PersonMessage)
    assert message.message.files[0].taken == "passages 7 to 8 and 30 of 40"
    told = chat.engine.last_contents[0]
    assert f'part="{message.message.files[0].taken}"' in told
    assert "of apples" in told


@pytest.mark.slow
def test_two_files_that_are_too_long_are_cut_one_after_the_other(
    qtbot: QtBot, window: MainWindow, chat: Chat, tmp_path: Path
) -> None:
    """Each sheet counted the other file whole, and its button stayed disabled."""
    chat.engine.context_length = 400
    chat.start()
    paths = [tmp_path / name for name in ("first.txt", "second.txt", "note.txt")]
    for path, words in zip(paths, (900, 1000, 20), strict=True):
        path.write_text("word " * words)
    window.conversation.files.attach_files(list(map(str, paths)))
    files = chat.open.files
    qtbot.waitUntil(lambda: len(files.files) == 3 and files.tokens is not None)
    chips = window.conversation.composer.files.row.chips
    assert [chip.accessibleName().endswith("choose a part") for chip in chips] == [True, True, False]
    ask(qtbot, window, "What is in them?")
    assert window.conversation.composer.note.text().startswith("These files are 1,5")
    sheet = sheet_of(window)
    assert sheet.windowTitle().endswith("first.txt"), "not the longest one"
    assert "room for 350, counting all files" in sheet.findChildren(ThemedLabel)[1].text()
    sheet.percent.setValue(50)
    wait(qtbot, sheet, "The first 50% of it")
    assert "Still 1,1" in sheet.summary.text()
    assert sheet.use.isEnabled(), "smaller than before"
    sheet.by_beginning.setChecked(True)
    sheet.percent.setValue(0)
    wait(qtbot, sheet, "The first 1")
    sheet.use.click()
    qtbot.waitUntil(lambda: files.tokens is not None)
    assert [file.name for file in files.to_shorten] == ["second.txt"]
    click_on(chips[1])
    sheet = sheet_of(window)
    sheet.by_beginning.setChecked(True)
    wait(qtbot, sheet, "The first ")
    assert "of the context" in sheet.summary.text()
    sheet.use.click()
    qtbot.waitUntil(lambda: files.tokens is not None)
    assert not files.excess
    ask(qtbot, window, "What is in them?")
    chat.wait_for(EngineState.IDLE)
    assert len(chat.path[0].files) == 3


@pytest.mark.slow
def test_what_is_sent_is_chosen_by_words_pages_or_share(qtbot: QtBot, brought: MainWindow, chat: Chat) -> None:
    sheet = open_sheet(brought)
    assert sheet.by_beginning.isChecked(), "nothing is asked yet"
    wait(qtbot, sheet, "The first ")
    assert sheet.use.isEnabled()
    sheet.all.setChecked(True)
    wait(qtbot, sheet, "All of it: ")
    assert "tokens too long." in sheet.summary.text()
    assert not sheet.use.isEnabled()
    sheet.percent.setValue(5)
    wait(qtbot, sheet, "The first 5% of it")
    qtbot.keyClicks(sheet.question, "apples")
    assert sheet.by_passages.isChecked()
    wait(qtbot, sheet, "Passages 7 to 8 and 30 of 40")
    assert sheet.matching.text() == "3 of 40 match"
    assert sheet.preview.toPlainText().startswith("[passages 7 to 8")
    qtbot.keyClicks(sheet.question, " zebra!")
    wait(qtbot, sheet, "Passages 7 to 8 and 30 of 40")
    for field, text, summary in (
        (sheet.question, "zebra", "No passage"),
        (sheet.pages, "2-3, 9", "Pages 2 to 3 and 9 of 40: "),
        (sheet.pages, "41", "Type pages from 1 to 40"),
        (sheet.pages, "2", "Page 2 of 40"),
    ):
        field.clear()
        qtbot.keyClicks(field, text)
        wait(qtbot, sheet, summary)
        assert sheet.use.isEnabled() is summary.startswith("Page")
    assert sheet.preview.toPlainText().startswith("[page 2]\nPage 2")
    press_key(sheet, "Esc")
    assert not [each for each in brought.findChildren(QDialog) if each.isVisible()]
    assert chat.open.files.excess, "left as it was"
    sheet = open_sheet(brought)
    qtbot.keyClicks(sheet.pages, "2")
    wait(qtbot, sheet, "Page 2 of 40")
    click_on(sheet.use)
    assert [file.part.label for file in chat.open.files.files if file.part] == ["page 2 of 40"]


@pytest.mark.slow
def test_a_file_that_fits_can_be_shortened_too(qtbot: QtBot, window: MainWindow, chat: Chat, book: Path) -> None:
    chat.start()
    window.conversation.files.attach_files([str(book)])
    qtbot.waitUntil(lambda: chat.open.files.tokens is not None)
    sheet = open_sheet(window)
    assert sheet.all.isChecked()
    count = chat.open.files.files[0].count
    wait(qtbot, sheet, f"All of it: {count.description}")
    assert sheet.use.isEnabled()
