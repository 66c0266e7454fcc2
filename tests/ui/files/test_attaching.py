"""Files are brought, shown, taken out, sent and read again, by mouse and keyboard."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from rdchat.services.engine.engine_request import EngineState
from rdchat.services.files.pending_files import PendingFile
from rdchat.ui.files.attaching import PendingRow
from rdchat.ui.files.chips import CHIP_HEIGHT, FileChip
from rdchat.ui.files.sent_text import FileView, PartSheet
from rdchat.ui.style import TIGHT, IconButton, Theme, column
from rdchat.ui.transcript.message_kinds import PersonMessage
from rdchat.ui.window.main_window import MainWindow
from tests.chat.attachments.documents import pdf
from tests.ui.conftest import Chat
from tests.ui.files.conftest import chip_names, chips, wait_for_chips
from tests.ui.shown_widgets import activate, choose_files, click_on, drop, files_data, forbid_nested_fits, press_key


def drop_files(window: MainWindow, *paths: Path) -> None:
    assert drop(window, files_data(*paths))


@pytest.mark.slow
def test_files_are_dropped_chosen_pasted_and_refused_below_the_field(
    qtbot: QtBot, window: MainWindow, chat: Chat, prices: Path, tmp_path: Path
) -> None:
    chat.start()
    composer = window.conversation.composer
    (tmp_path / "report.pdf").write_bytes(pdf(["One", "Two"]))
    drop_files(window, prices, tmp_path / "report.pdf")
    wait_for_chips(qtbot, window, 2)
    assert chip_names(window) == ["prices.csv, 5 tokens · <1%", "report.pdf, 9 tokens · <1%"]
    assert composer.files.isVisible()
    assert not chat.engine.loads[1:], "nothing was taken for a model"
    click_on(composer.attach)
    choose_files(window, prices)
    wait_for_chips(qtbot, window, 3)
    QGuiApplication.clipboard().setMimeData(files_data(prices))
    press_key(composer.field, "Ctrl+V")
    wait_for_chips(qtbot, window, 4)
    assert composer.text == ""
    refused = ("a.zip", "b.zip")
    for name in refused:
        (tmp_path / name).write_bytes(b"PK\3\4")
    drop_files(window, *(tmp_path / name for name in refused))
    qtbot.waitUntil(lambda: all(name in composer.note.text() for name in refused))
    QGuiApplication.clipboard().setText("Hello")
    press_key(composer.field, "Ctrl+V")
    assert composer.text == "Hello"


def paste(window: MainWindow, text: str) -> None:
    QGuiApplication.clipboard().setText(text)
    window.actions_.paste.trigger()


def undo(window: MainWindow) -> None:
    press_key(window.conversation.composer.field, "Ctrl+Z")


def test_a_long_paste_becomes_a_file_and_undo_makes_it_text_again(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    chat.start()
    activate(window)
    composer = window.conversation.composer
    long = "word " * 801
    paste(window, "x" * 4000)
    undo(window)
    assert not chips(window)
    qtbot.keyClicks(composer.field, "Sum it up")
    paste(window, long)
    paste(window, "line\n" * 200)
    wait_for_chips(qtbot, window, 2)
    assert [name.partition(",")[0] for name in chip_names(window)] == ["Pasted text.txt", "Pasted text 2.txt"]
    assert composer.note.text() == "The long text is attached as a file. Undo makes it text again."
    qtbot.keyClicks(composer.field, " now")
    undo(window)
    assert len(chips(window)) == 2, "Undo takes back what was done last"
    undo(window)
    assert [name.partition(",")[0] for name in chip_names(window)] == ["Pasted text.txt"]
    assert composer.text.endswith("line\n" * 200)
    undo(window)
    assert composer.text == "Sum it up"
    window.conversation.files.choose_part(chat.open.files.files[0].id)
    (sheet,) = window.findChildren(PartSheet)
    assert sheet.windowTitle() == "Choose What to Send of Pasted text.txt"
    sheet.reject()
    press_key(composer.field, "Return")
    qtbot.waitUntil(lambda: chat.controller.replies.free)
    assert long in chat.engine.last_contents[-1]
    undo(window)
    assert composer.text == ""


def test_a_text_too_long_for_the_field_stays_a_file(window: MainWindow, chat: Chat) -> None:
    chat.start()
    paste(window, "word " * 100_001)
    assert window.conversation.composer.note.text() == "The long text is attached as a file."
    undo(window)
    assert len(chips(window)) == 1


def test_undo_brings_back_removed_files_in_their_places(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    chat.start()
    activate(window)
    field = window.conversation.composer.field
    for text in ("one", "two", "three"):
        chat.open.files.add_text(text)
    wait_for_chips(qtbot, window, 3)
    before = chip_names(window)
    qtbot.keyClicks(field, "Sum up")
    for chip in chips(window)[:2]:
        click_on(chip.remove)
    assert chip_names(window) == before[2:]
    assert window.focusWidget() is field
    qtbot.keyClicks(field, " all")
    undo(window)
    assert (field.toPlainText(), len(chips(window))) == ("Sum up", 1), "Undo takes back what was done last"
    undo(window)
    assert len(chips(window)) == 2
    undo(window)
    qtbot.waitUntil(lambda: chip_names(window) == before)
    click_on(chips(window)[0].remove)
    chat.say("Go")
    undo(window)
    assert not chips(window), "a message that was sent is not undone"


@pytest.mark.slow
def test_a_sent_message_shows_its_files_and_opens_what_was_sent(
    qtbot: QtBot, window: MainWindow, chat: Chat, prices: Path
) -> None:
    chat.start()
    drop_files(window, prices)
    wait_for_chips(qtbot, window, 1)
    qtbot.keyClicks(window.conversation.composer.field, "How much?")
    press_key(window.conversation.composer.field, "Return")
    chat.wait_for(EngineState.IDLE)
    assert not chips(window)
    (message,) = window.conversation.transcript.findChildren(PersonMessage)
    (chip,) = message.findChildren(FileChip)
    assert chip.accessibleName() == "prices.csv, Whole file"
    assert chip.isVisible()
    assert chip.geometry().bottom() < message.body.geometry().top()
    click_on(chip)
    (view,) = window.findChildren(FileView)
    qtbot.waitUntil(lambda: bool(view.text.toPlainText()))
    assert view.text.toPlainText() == "apples,3\npears,4\n"
    assert view.text.isReadOnly()
    press_key(view, "Esc")
    assert not view.isVisible()


def test_the_files_of_a_sent_message_are_changed_while_it_is_edited(
    qtbot: QtBot, window: MainWindow, chat: Chat, tmp_path: Path
) -> None:
    chat.start()
    activate(window)
    field = window.conversation.composer.field
    chat.open.files.add_text("old old")
    chat.open.files.add_text("stays")
    wait_for_chips(qtbot, window, 2)
    chat.say("How much?")
    field.setFocus()
    press_key(field, "Up")
    (message,) = window.conversation.transcript.findChildren(PersonMessage)
    (row,) = message.findChildren(PendingRow)
    assert [chip.isVisible() for chip in message.findChildren(FileChip)] == [False, False, True, True]
    for undone in (True, False):
        click_on(row.row.chips[0].remove)
        assert len(row.row.chips) == 1
        editor = window.focusWidget()
        if undone:
            press_key(editor, "Ctrl+Z")
            assert len(row.row.chips) == 2
    (attach,) = [each for each in message.findChildren(IconButton) if each.accessibleName() == "Attach files"]
    attach.click()
    (tmp_path / "new.txt").write_text("new new new")
    choose_files(window, tmp_path / "new.txt")
    editor = window.focusWidget()
    press_key(editor, "Return")
    assert window.conversation.banners.banner("chat"), "the file is still being read"
    qtbot.waitUntil(lambda: all("token" in chip.accessibleName() for chip in row.row.chips))
    first = chat.open.id
    chat.open.start_new()
    chat.open.open_chat(first)
    rows = window.conversation.transcript.findChildren(PendingRow)
    assert len(rows[-1].row.chips) == 2, "an edit that is left keeps its files"
    window.actions_.write.trigger()
    press_key(field, "Up")
    editor = window.focusWidget()
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: chat.controller.replies.free and len(chat.engine.requests) == 2)
    sent = chat.engine.last_contents[-1]
    assert ("new new new" in sent, "stays" in sent, "old old" in sent) == (True, True, False)
    question = chat.path[0]
    assert [file.name for file in question.files] == ["Pasted text 2.txt", "new.txt"]
    assert not chat.open.edits
    chat.open.show_alternative(question.id, -1)
    assert [file.name for file in chat.path[0].files] == ["Pasted text.txt", "Pasted text 2.txt"]


def test_an_edit_without_new_files_is_forgotten_with_its_chat(window: MainWindow, chat: Chat) -> None:
    """Each has a reader and two threads' queues: over days they were many."""
    chat.start()
    window.activateWindow()
    chat.say("How much?")
    window.conversation.composer.field.setFocus()
    press_key(window.conversation.composer.field, "Up")
    own = chat.open
    assert own.edits
    own.open_chat(own.id)
    assert own.edits, "the editor is open"
    first = own.id
    own.start_new()
    chat.say("Another")
    own.open_chat(own.id)
    assert not own.edits
    own.open_chat(first)
    messages = window.conversation.transcript.findChildren(PersonMessage)
    assert any(message.findChildren(PendingRow) for message in messages), "the editor is there again"


def test_chips_take_three_lines_at_most_and_their_layout_ends(
    qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_nested_fits(monkeypatch, PendingRow)
    window = QWidget()
    qtbot.addWidget(window)
    shown = PendingRow(theme)
    column(shown, None, within=window)
    files: Any = SimpleNamespace(
        files=[PendingFile(n, None, f"file {n}{'x' * n}.txt") for n in range(9)], to_shorten=(), images=()
    )
    window.resize(700, 400)
    window.show()
    shown.show_files(files, None)
    for width in [*range(700, 300, -17), *range(300, 700, 17)]:
        window.resize(width, 400)
        QApplication.processEvents()
        needed = shown.row.arrange_chips(width)
        most = 3 * CHIP_HEIGHT + 2 * TIGHT + 2
        assert shown.verticalScrollBar().isVisible() == (needed > most)
        assert shown.height() == min(needed, most)
