"""Export, import, backup and restore by the File menu, with mouse and keyboard."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication, QCheckBox, QPlainTextEdit, QRadioButton
from pytestqt.qtbot import QtBot

from rdchat.chat.listing import ChatRow
from rdchat.chat.projects import Project
from rdchat.chat.transfer.chat_import import FileReport, ImportReport, SkippedChat
from rdchat.chat.transfer.imported_folders import ImportedFolder
from rdchat.errors import RdchatError
from rdchat.inference.api import Role
from rdchat.services.window.chat_controller import NOT_KEPT
from rdchat.services.window.transfers import Transfers
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.style import Sheet, Theme
from rdchat.ui.window import import_export
from rdchat.ui.window.import_export import ImportExport, ProgressSheet, import_text, report_sheet
from rdchat.ui.window.main_window import MainWindow
from rdchat.work.job import CancelledError, Job
from tests.chat.storage.project_texts import text_file
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, chatgpt_with_everything
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import choose_files, click_on, entries_of, press_key
from tests.ui.transcript.conftest import button

WAIT_MS = 60_000
FOLDERS = [ImportedFolder(1, "“Work 2”: 2 imported chats with instructions.")]


class Menu:
    """The window's menu with what it opens."""

    def __init__(self, qtbot: QtBot, window: MainWindow, transfers: ImportExport, desk: Transfers) -> None:
        self.qtbot = qtbot
        self.window = window
        self.transfers = transfers
        self.desk = desk
        self.actions = window.actions_

    @property
    def sheet(self) -> Sheet:
        return self.window.findChildren(Sheet)[-1]

    @property
    def title(self) -> str:
        """The title of the open sheet; empty without one."""
        return next((each.windowTitle() for each in self.window.findChildren(Sheet) if each.isVisible()), "")

    @property
    def banner(self) -> Banner | None:
        return self.window.conversation.banners.banner("transfer")

    def click(self, text: str) -> None:
        click_on(button(self.sheet, text))

    def wait_for_sheet(self, title: str) -> None:
        self.qtbot.waitUntil(lambda: self.title == title, timeout=WAIT_MS)

    def wait_for_banner(self, words: str) -> None:
        self.qtbot.waitUntil(lambda: self.banner is not None and words in self.banner.accessibleName(), timeout=WAIT_MS)

    def undo(self) -> None:
        click_on(button(self.banner, "Undo"))


@pytest.fixture
def menu(qtbot: QtBot, chat: Chat, window: MainWindow, theme: Theme, tmp_path: Path) -> Iterator[Menu]:
    """A window with one chat, open."""
    bread = chat.store.create_conversation("Bread")
    chat.store.add_message(bread.id, None, Role.USER, "How?")
    chat.chats.open_latest()
    desk = Transfers(chat.controller, chat.store, tmp_path / "settings.json")
    transfers = ImportExport(window, chat.controller, desk, theme)
    yield Menu(qtbot, window, transfers, desk)
    desk.end_transfers()
    for sheet in window.findChildren(Sheet):
        sheet.done(0)


def titles(chat: Chat) -> list[str]:
    return [each.title for each in listed(chat.chats)]


def test_a_chat_is_exported_to_markdown_or_json(menu: Menu, tmp_path: Path):
    menu.actions.export_chat.trigger()
    assert menu.title == "Export “Bread”"
    press_key(menu.sheet.findChild(QCheckBox), "Space")
    press_key(menu.sheet, "Return")
    choose_files(menu.window, tmp_path / "bread.md")
    menu.wait_for_banner("Exported 1 chat")
    assert "- Sampling: temperature 0.7" in (tmp_path / "bread.md").read_text()
    menu.actions.export_chat.trigger()
    press_key(menu.sheet.findChildren(QRadioButton)[1], "Space")
    assert not menu.sheet.findChild(QCheckBox).isEnabled()
    menu.click("Export…")
    choose_files(menu.window, tmp_path / "bread.json")
    menu.qtbot.waitUntil((tmp_path / "bread.json").exists, timeout=WAIT_MS)
    menu.qtbot.waitUntil(lambda: not menu.desk.busy)
    assert json.loads((tmp_path / "bread.json").read_text())["chats"][0]["title"] == "Bread"


def test_a_chat_is_exported_with_the_files_of_its_project_if_they_are_chosen(
    menu: Menu, chat: Chat, tmp_path: Path
) -> None:
    folder = chat.store.organiser.create_folder("Work")
    chat.store.organiser.set_project(folder.id, Project("Rhyme."), [text_file("a.txt", "Alpha")])
    (bread,) = listed(chat.chats)
    chat.store.organiser.move(bread.id, folder.id)
    chat.chats.update_list()
    chat.chats.open_latest()
    menu.actions.export_chat.trigger()
    press_key(menu.sheet.findChildren(QRadioButton)[1], "Space")
    shares = menu.sheet.findChildren(QCheckBox)[1]
    assert shares.text() == "Include the project's files and notes: otherwise, files are only named"
    assert not shares.isChecked()
    shares.click()
    menu.click("Export…")
    path = tmp_path / "bread.json"
    choose_files(menu.window, path)
    menu.qtbot.waitUntil(path.exists, timeout=WAIT_MS)
    menu.qtbot.waitUntil(lambda: not menu.desk.busy)
    assert "Alpha" in path.read_text()


def test_a_chat_is_exported_from_its_row(menu: Menu, chat: Chat):
    (bread,) = listed(chat.chats)
    chat.open.start_new()
    row = menu.window.sidebar.row_actions.menu_for(ChatRow(bread))
    entries_of(row)["Export…"].trigger()
    assert menu.title == "Export “Bread”"
    menu.sheet.close()


def test_a_temporary_chat_says_why_it_is_not_exported(menu: Menu, chat: Chat):
    menu.actions.new_temporary.trigger()
    with chat.qtbot.waitSignal(chat.controller.chat_notice_raised) as notice:
        menu.actions.export_chat.trigger()
    assert notice.args == [NOT_KEPT]


@pytest.mark.slow
def test_all_chats_are_exported_into_a_folder(menu: Menu, tmp_path: Path):
    menu.actions.export_all.trigger()
    menu.click("Export…")
    choose_files(menu.window, tmp_path / "out")
    menu.wait_for_banner("Exported 1 chat")
    assert (tmp_path / "out" / "Bread.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("how", "chosen"), [("Choose Files…", "in/conversations.json"), ("Choose Folder…", "in")])
def test_an_import_is_reported_and_undone_by_one_click(menu: Menu, chat: Chat, tmp_path: Path, how: str, chosen: str):
    circle = chatgpt_chat(chatgpt_node("a", "a", "user", "x"), title="A <b>circle</b>")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "conversations.json").write_text(json.dumps([chatgpt_with_everything(), circle]))
    menu.actions.import_chats.trigger()
    assert menu.title == "Import Chats"
    menu.click(how)
    choose_files(menu.window, tmp_path / chosen)
    menu.wait_for_sheet("2 chats imported")
    assert menu.sheet.text == "5 messages from ChatGPT. Some parts were left out."
    (listed,) = menu.sheet.findChildren(QPlainTextEdit)
    assert listed.toPlainText().startswith("Rivers\nWithout 1 custom instruction")
    assert set(titles(chat)) == {"Bread", "Rivers", "A <b>circle</b>"}
    menu.click("Undo Import")
    menu.wait_for_banner("The import was undone")
    assert titles(chat) == ["Bread"]
    assert not menu.title


def test_a_report_says_what_became_of_everything(menu: Menu, theme: Theme) -> None:
    skipped = [SkippedChat("One", "It is damaged.")]
    files = [
        FileReport("a", source, [1], 2, 1, FOLDERS, [3], already_here=["Two"], not_taken=skipped)
        for source in ("Jan", "Msty")
    ]
    assert import_text(ImportReport((*files,), cancelled=True)) == (
        "4 messages from Jan and Msty. 2 chats went to the archive. "
        "2 notes, not used until you keep them in Settings > Chats. "
        "2 chats were already here. 2 items could not be imported. "
        "You cancelled the import; chats from the unfinished file were removed."
    )
    nothing = report_sheet(menu.window, theme, ImportReport(cancelled=True), lambda: None)
    assert nothing.windowTitle() == "Nothing was imported"


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
    menu.qtbot.waitUntil(lambda: field.height() > 3 * field.fontMetrics().lineSpacing())
    field.moveCursor(QTextCursor.MoveOperation.End)
    field.verticalScrollBar().setValue(0)
    shows_end = field.viewport().rect().contains(field.cursorRect())
    assert (shows_end, field.verticalScrollBar().isVisible()) == ((True, False) if files == 1 else (False, True))
    assert field.geometry().bottom() < sheet.buttons[0].mapTo(sheet, QPoint()).y()
    assert sheet.buttons[0].mapTo(sheet, sheet.buttons[0].rect().bottomRight()).y() < sheet.height()


@pytest.mark.slow
def test_a_backup_is_restored_after_a_question_and_that_is_undone(menu: Menu, chat: Chat, tmp_path: Path):
    chat.start()
    settings = chat.settings
    settings.change_values(system_prompt="Then")
    menu.actions.back_up.trigger()
    choose_files(menu.window, tmp_path / "backup.zip")
    menu.wait_for_banner("Backed up 1 chat, ")
    chat.store.create_conversation("Later")
    chat.chats.update_list()
    menu.actions.restore.trigger()
    choose_files(menu.window, tmp_path / "backup.zip")
    menu.wait_for_sheet("Restore this backup?")
    assert menu.sheet.text.startswith("1 chat with 1 message and the settings, from ")
    menu.click("Cancel")
    assert not menu.title
    assert not menu.desk.busy
    assert not (tmp_path / "part-restore").exists()
    assert titles(chat) == ["Later", "Bread"]
    menu.actions.restore.trigger()
    choose_files(menu.window, tmp_path / "backup.zip")
    menu.wait_for_sheet("Restore this backup?")
    press_key(menu.sheet, "Return")
    menu.wait_for_banner("The backup was restored")
    assert titles(chat) == ["Bread"]
    menu.undo()
    menu.wait_for_banner("The restore was undone")
    assert titles(chat) == ["Later", "Bread"]
    chat.say("Hi")
    assert menu.banner is None


@pytest.mark.slow
def test_a_damaged_backup_is_told_of(menu: Menu, tmp_path: Path):
    (tmp_path / "bad.zip").write_text("text")
    menu.actions.restore.trigger()
    choose_files(menu.window, tmp_path / "bad.zip")
    menu.wait_for_sheet("bad.zip is damaged")
    assert menu.sheet.text == "Choose another backup. Your chats were not changed."


def test_a_new_chat_has_nothing_to_export(menu: Menu, chat: Chat):
    assert menu.actions.export_chat.isEnabled()
    chat.open.start_new()
    chat.qtbot.waitUntil(lambda: not menu.actions.export_chat.isEnabled())


type Start = Callable[[Callable[[Any], None]], None]


def end_before_it_returns(end: Callable[[Any], None]) -> None:
    """End, and let the window hear of it while the work is still being started."""
    end("done")
    QApplication.processEvents()


class EndAtOpening(QObject):
    """Ends the work in the moment that its sheet is shown."""

    def __init__(self, end: Callable[[Any], None]) -> None:
        super().__init__()
        self._end = end
        app = QApplication.instance()
        app.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(watched, ProgressSheet) and event.type() is QEvent.Type.Show:
            self._end("done")
            QApplication.processEvents()
        return False


class Desk:
    """Begins work that the test ends."""

    def __init__(self, menu: Menu) -> None:
        self.menu, self.transfers = menu, menu.desk
        self.outcomes: list[Any] = []
        self.end: Callable[[Any], None] = lambda _outcome: None
        self.job: Job[Any] = Job()

    def begin(self, start: Start = lambda _end: None) -> None:
        def run(_progress: Any, end: Callable[[Any], None]) -> Job[Any]:
            self.end = end
            self.job = Job()
            start(end)
            return self.job

        def begin(progress: Any, end: Callable[[Any], None]) -> None:
            self.transfers._begin(run, progress, end)

        self.menu.transfers._begin("Backing up", begin, self.outcomes.append)


@pytest.fixture
def desk(menu: Menu, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(import_export, "_WAIT_MS", 0)
    return Desk(menu)


@pytest.mark.parametrize("moment", ["before start returned", "before the opening", "at the opening", "after it"])
def test_a_sheet_closes_whenever_its_work_ends(desk: Desk, qtbot: QtBot, moment: str) -> None:
    for number in range(6):
        match moment:
            case "before start returned":
                desk.begin(end_before_it_returns)
            case "before the opening":
                desk.begin(lambda end: end("done"))
            case "at the opening":
                kept: list[EndAtOpening] = []
                desk.begin(lambda end, kept=kept: kept.append(EndAtOpening(end)))
            case _:
                desk.begin()
                qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
                desk.end("done")
        qtbot.waitUntil(lambda number=number: len(desk.outcomes) > number)
        # The timer that would open the sheet.
        qtbot.wait(1)
        assert not desk.menu.title
        assert not desk.transfers.busy


def test_cancel_waits_for_the_end_of_the_work(desk: Desk, qtbot: QtBot) -> None:
    desk.begin()
    qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
    press_key(desk.menu.sheet, "Esc")
    assert desk.menu.title == "Backing up", "it stays until the work has ended"
    assert desk.job.cancelled
    desk.end(CancelledError())
    qtbot.waitUntil(lambda: not desk.menu.title)
    assert not desk.transfers.busy


def test_cancel_without_work_closes_the_sheet(desk: Desk, qtbot: QtBot) -> None:
    desk.begin()
    qtbot.waitUntil(lambda: desk.menu.title == "Backing up")
    desk.transfers.end_transfers()
    press_key(desk.menu.sheet, "Esc")
    assert not desk.menu.title


def test_work_that_cannot_start_leaves_the_desk_free(menu: Menu) -> None:
    def fail(_progress: Any, _end: Any) -> Job[Any]:
        raise RdchatError("It did not start.")

    transfers: Transfers = menu.desk
    with pytest.raises(RdchatError):
        transfers._begin(fail, lambda _progress: None, lambda _outcome: None)
    assert not transfers.busy
