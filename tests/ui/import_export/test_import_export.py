"""Export, import, backup and restore by the File menu, with mouse and keyboard."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QCheckBox, QPlainTextEdit, QRadioButton

from rdchat.chat.listing import ChatRow
from rdchat.chat.transfer.chat_import import FileReport, ImportReport, SkippedChat
from rdchat.services.chat_controller import NOT_KEPT
from rdchat.ui.import_export.import_export import ProgressSheet, report_sheet
from rdchat.ui.style import Theme
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, chatgpt_with_everything
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.import_export.conftest import WAIT_MS, Menu


def titles(chat: Chat) -> list[str]:
    return [each.title for each in listed(chat.controller.chats)]


def test_a_chat_is_exported_to_markdown_or_json(menu: Menu, tmp_path: Path):
    menu.actions.export_chat.trigger()
    assert menu.title == "Export “Bread”"
    menu.qtbot.keyClick(menu.sheet.findChild(QCheckBox), Qt.Key.Key_Space)
    menu.qtbot.keyClick(menu.sheet, Qt.Key.Key_Return)
    menu.choose(tmp_path / "bread.md")
    menu.wait_for_banner("Exported 1 chat")
    assert "- Sampling: temperature 0.7" in (tmp_path / "bread.md").read_text()
    menu.actions.export_chat.trigger()
    menu.qtbot.keyClick(menu.sheet.findChildren(QRadioButton)[1], Qt.Key.Key_Space)
    assert not menu.sheet.findChild(QCheckBox).isEnabled()
    menu.click("Export…")
    menu.choose(tmp_path / "bread.json")
    menu.qtbot.waitUntil((tmp_path / "bread.json").exists, timeout=WAIT_MS)
    menu.qtbot.waitUntil(lambda: not menu.desk.busy)
    assert json.loads((tmp_path / "bread.json").read_text())["chats"][0]["title"] == "Bread"


def test_a_chat_is_exported_from_its_row(menu: Menu, chat: Chat):
    (bread,) = listed(chat.controller.chats)
    chat.open.start_new()
    row = menu.window.sidebar.row_actions.menu_for(ChatRow(bread))
    next(action for action in row.actions() if action.text() == "Export…").trigger()
    assert menu.title == "Export “Bread”"
    menu.sheet.close()


def test_a_temporary_chat_says_why_it_is_not_exported(menu: Menu, chat: Chat):
    menu.actions.new_temporary.trigger()
    with chat.qtbot.waitSignal(chat.controller.notice_raised) as notice:
        menu.actions.export_chat.trigger()
    assert notice.args == [NOT_KEPT]


@pytest.mark.slow
def test_all_chats_are_exported_into_a_folder(menu: Menu, tmp_path: Path):
    menu.actions.export_all.trigger()
    menu.click("Export…")
    menu.choose(tmp_path / "out")
    menu.wait_for_banner("Exported 1 chat")
    assert (tmp_path / "out" / "Bread.md").exists()


@pytest.mark.slow
def test_an_import_is_reported_and_undone_by_one_click(menu: Menu, chat: Chat, tmp_path: Path):
    circle = chatgpt_chat(chatgpt_node("a", "a", "user", "x"), title="A <b>circle</b>")
    (tmp_path / "conversations.json").write_text(json.dumps([chatgpt_with_everything(), circle]))
    menu.actions.import_chats.trigger()
    assert menu.title == "Import Chats"
    menu.click("Choose Files…")
    menu.choose(tmp_path / "conversations.json")
    menu.wait_for_sheet("2 chats imported")
    assert menu.sheet.text == "5 messages from ChatGPT. 1 chat imported without some parts."
    (listed,) = menu.sheet.findChildren(QPlainTextEdit)
    assert listed.toPlainText().startswith("Rivers\nWithout 1 custom instruction")
    assert set(titles(chat)) == {"Bread", "Rivers", "A <b>circle</b>"}
    menu.click("Undo Import")
    menu.wait_for_banner("The import was undone")
    assert titles(chat) == ["Bread"]
    assert not menu.title


@pytest.mark.slow
def test_a_folder_is_imported(menu: Menu, chat: Chat, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "conversations.json").write_text(json.dumps([chatgpt_with_everything()]))
    menu.actions.import_chats.trigger()
    menu.click("Choose Folder…")
    menu.choose(tmp_path / "in")
    menu.wait_for_sheet("1 chat imported")
    menu.qtbot.keyClick(menu.sheet, Qt.Key.Key_Escape)
    assert not menu.title
    assert titles(chat) == ["Bread", "Rivers"]


@pytest.mark.parametrize("files", [1, 40])
def test_a_report_is_as_high_as_what_it_says(menu: Menu, theme: Theme, files: int) -> None:
    """One sentence of two lines was cut in the middle of the second."""
    reason = (
        "It is not valid JSON: it is damaged or incomplete, or no file that rdchat reads, as far as it can be known."
    )
    skipped = tuple(SkippedChat(f"conversations-{number}.json", reason) for number in range(files))
    sheet = report_sheet(menu.window, theme, ImportReport((FileReport("chats", "", not_taken=skipped),)), lambda: None)
    sheet.open()
    assert sheet.focusWidget() is sheet.buttons[-1], "Return went to the list"
    field = sheet.findChild(QPlainTextEdit)
    assert field is not None
    menu.qtbot.waitUntil(lambda: field.height() > 3 * field.fontMetrics().lineSpacing())
    field.moveCursor(QTextCursor.MoveOperation.End)
    field.verticalScrollBar().setValue(0)
    shows_end = field.viewport().rect().contains(field.cursorRect())
    assert (shows_end, field.verticalScrollBar().isVisible()) == ((True, False) if files == 1 else (False, True))
    assert field.geometry().bottom() < sheet.buttons[0].mapTo(sheet, QPoint()).y()
    assert sheet.buttons[0].mapTo(sheet, sheet.buttons[0].rect().bottomRight()).y() < sheet.height()


@pytest.mark.slow
def test_escape_cancels_what_is_under_way(menu: Menu, chat: Chat, tmp_path: Path):
    chats = [
        chatgpt_chat(*[chatgpt_node(str(n), str(n - 1) if n else None, "user", "words " * 500) for n in range(100)],
                     title=f"Chat {number}")
        for number in range(60)
    ]  # fmt: skip
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    menu.actions.import_chats.trigger()
    menu.click("Choose Files…")
    menu.choose(tmp_path / "conversations.json")
    menu.wait_for_sheet("Importing chats")
    progress = menu.sheet
    assert isinstance(progress, ProgressSheet)
    menu.qtbot.waitUntil(lambda: progress.detail.text() != "Starting…", timeout=WAIT_MS)
    menu.qtbot.keyClick(progress, Qt.Key.Key_Escape)
    menu.wait_for_sheet("Nothing was imported")
    assert titles(chat) == ["Bread"]


@pytest.mark.slow
def test_a_backup_is_restored_after_a_question_and_that_is_undone(menu: Menu, chat: Chat, tmp_path: Path):
    settings = chat.controller.settings
    settings.change(replace(settings.values, system_prompt="Then"))
    menu.actions.back_up.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_banner("Backed up 1 chat, ")
    chat.store.create_conversation("Later")
    chat.controller.chats.update_list()
    menu.actions.restore.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_sheet("Restore this backup?")
    assert menu.sheet.text.startswith("1 chat with 1 message and the settings, from ")
    assert titles(chat) == ["Later", "Bread"]
    menu.qtbot.keyClick(menu.sheet, Qt.Key.Key_Return)
    menu.wait_for_banner("The backup was restored")
    assert titles(chat) == ["Bread"]
    menu.undo()
    menu.wait_for_banner("The restore was undone")
    assert titles(chat) == ["Later", "Bread"]


@pytest.mark.slow
def test_a_restore_is_told_until_the_person_writes_on(menu: Menu, chat: Chat, tmp_path: Path):
    chat.start()
    menu.actions.back_up.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_banner("Backed up")
    menu.actions.restore.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_sheet("Restore this backup?")
    menu.qtbot.keyClick(menu.sheet, Qt.Key.Key_Return)
    menu.wait_for_banner("The backup was restored")
    chat.say("Hi")
    assert not menu.title


@pytest.mark.slow
def test_a_restore_that_is_not_wanted_changes_nothing(menu: Menu, tmp_path: Path):
    menu.actions.back_up.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_banner("Backed up")
    menu.actions.restore.trigger()
    menu.choose(tmp_path / "backup.zip")
    menu.wait_for_sheet("Restore this backup?")
    menu.click("Cancel")
    assert not menu.title
    assert not menu.desk.busy
    assert not (tmp_path / "part-restore").exists()


@pytest.mark.slow
def test_a_damaged_backup_is_told_of(menu: Menu, tmp_path: Path):
    (tmp_path / "bad.zip").write_text("text")
    menu.actions.restore.trigger()
    menu.choose(tmp_path / "bad.zip")
    menu.wait_for_sheet("bad.zip is damaged")
    assert menu.sheet.text == "Choose another backup. Your chats were not changed."


def test_a_new_chat_has_nothing_to_export(menu: Menu, chat: Chat):
    assert menu.actions.export_chat.isEnabled()
    chat.controller.chat.start_new()
    chat.qtbot.waitUntil(lambda: not menu.actions.export_chat.isEnabled())


def test_every_control_is_reached_by_tab_and_has_a_name(menu: Menu):
    menu.actions.export_chat.trigger()
    menu.qtbot.waitUntil(menu.sheet.isVisible)
    seen = set()
    for _ in range(8):
        menu.qtbot.keyClick(menu.sheet.focusWidget() or menu.sheet, Qt.Key.Key_Tab)
        focused = menu.sheet.focusWidget()
        seen.add(focused.property("text") if focused is not None else "")
    assert {"Markdown: for reading", "Include settings and statistics", "Cancel", "Export…"} <= seen
    assert menu.sheet.accessibleName() == "Export “Bread”"
