"""The sheet of a folder's project, and the line above a chat of one."""

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData
from pytestqt.qtbot import QtBot

from rdchat.chat.listing import FolderRow
from rdchat.chat.notes import Note
from rdchat.chat.presets import Preset
from rdchat.chat.projects import Folder, Project
from rdchat.tools.definitions import ToolServer
from rdchat.ui.conversation.project_views import ProjectSheet
from rdchat.ui.settings.note_list import NoteSheet
from rdchat.ui.sidebar.sidebar import Sidebar
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.services.window import text_file
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import accept, click_on, drag_over, drop, files_data, press_key, shown_child

MODELS = [("tiny", None), ("Big", "/models/big")]
SHORT = Preset("Short", "short")


def folder_of(chat: Chat) -> Folder:
    """Return the one folder, as it is now."""
    order = chat.chats.order
    return order.folders[0] if order.folders else order.create_folder("Work")  # type: ignore[return-value]


@pytest.fixture
def sheet(theme: Theme, window: MainWindow, chat: Chat) -> ProjectSheet:
    chat.start()
    chat.settings.change_values(presets=(SHORT,))
    chat.controller.servers.put(ToolServer("web", url="https://example.org", enabled=True, confirmed=True))
    sheet = make_sheet(theme, window, chat)
    sheet.open()
    return sheet


def make_sheet(theme: Theme, window: MainWindow, chat: Chat) -> ProjectSheet:
    return ProjectSheet(folder_of(chat), chat.controller, lambda: MODELS, theme, window)


def test_what_is_saved_is_the_folders_and_can_be_undone(
    qtbot: QtBot, theme: Theme, window: MainWindow, chat: Chat, sheet: ProjectSheet
) -> None:
    cancelled = make_sheet(theme, window, chat)
    qtbot.keyClicks(cancelled.instructions, "Rhyme!")
    cancelled.reject()
    assert folder_of(chat).project == Project()
    qtbot.keyClicks(sheet.instructions, "Rhyme.")
    sheet.preset.setCurrentIndex(1)
    sheet.model.setCurrentIndex(1)
    sheet.tools["web"].click()
    accept(sheet)
    assert folder_of(chat).project == Project("Rhyme.", "short", "/models/big", ("web",))
    chat.chats.undo()
    assert folder_of(chat).project == Project()


def test_a_projects_notes_stand_in_its_sheet_and_change_at_once(
    window: MainWindow, chat: Chat, sheet: ProjectSheet
) -> None:
    other = chat.store.organiser.create_folder("Other")
    for folder in (other.id, None):
        chat.store.organiser.keep_note(Note("Not here", folder, None))
    press_key(sheet.notes.add, "Space")
    added = shown_child(sheet, NoteSheet)
    assert added.scope.currentText() == "Work"
    chat.qtbot.keyClicks(added.field, "Ann leads.")
    accept(added)
    entries = [sheet.notes.list.item(index).text().splitlines()[0] for index in range(sheet.notes.list.count())]
    assert entries == ["Ann leads."]
    sheet.reject()
    assert [note.text for note in chat.controller.replies.notes() if note.folder_id == folder_of(chat).id] == [
        "Ann leads."
    ]


def test_a_model_and_a_tool_that_are_not_here_stay(theme: Theme, window: MainWindow, chat: Chat) -> None:
    project = Project(model="/models/gone", tools=("gone",))
    chat.chats.order.set_project(folder_of(chat), project)
    sheet = make_sheet(theme, window, chat)
    assert sheet.model.currentText() == "/models/gone"
    sheet.offer_models()
    assert sheet.project() == project


def test_the_line_above_a_chat_names_its_project_and_opens_its_settings(window: MainWindow, chat: Chat) -> None:
    chat.start()
    line = window.conversation.project_line
    assert line.isHidden()
    chat.chats.order.set_project(folder_of(chat), Project("Rhyme."))
    chat.open.start_new(folder_of(chat).id)
    assert not line.isHidden()
    assert line.text.text() == "Project Work: instructions"
    line.settings.click()
    sheet = shown_child(window, ProjectSheet)
    assert sheet.instructions.toPlainText() == "Rhyme."
    sheet.reject()
    chat.open.start_new()
    assert line.isHidden()


def test_a_moved_chat_says_so_until_its_next_question_and_while_it_holds(window: MainWindow, chat: Chat) -> None:
    """It once said so in other chats, and after the chat was moved out again."""
    banner = lambda: window.conversation.banners.banner("project")  # noqa: E731
    chat.start("One")
    order = chat.chats.order
    order.set_project(folder_of(chat), Project("Rhyme."))
    stored = chat.open.stored_conversation

    def move() -> None:
        order.move(stored, folder_of(chat).id)
        shown = banner()
        assert shown.accessibleName() == (
            "This chat is now in the project “Work” From your next question on, it uses what the project shares:"
            " instructions."
        )

    move()
    chat.chats.undo()
    assert banner() is None
    move()
    chat.open.start_new()
    assert banner() is None
    chat.chats.undo()
    chat.open.open_chat(stored.id)
    move()
    chat.say("Two")
    assert banner() is None


def test_the_line_of_a_moved_chat_stays_when_settings_change(window: MainWindow, chat: Chat) -> None:
    """rdchat changes them itself, two seconds after a chat was opened, and once that closed the line."""
    chat.start("One")
    order = chat.chats.order
    order.set_project(folder_of(chat), Project("Rhyme."))
    order.move(chat.open.stored_conversation, folder_of(chat).id)
    chat.settings.change_values(last_chat=chat.open.id)
    chat.settings.change_values(text_size=20)
    chat.open.set_options(system_prompt="Hello")
    banner = lambda: window.conversation.banners.banner("project")  # noqa: E731
    assert "shares: instructions." in banner().accessibleName()
    order.set_project(folder_of(chat), Project("Rhyme.", tools=("web",)))
    assert "shares: instructions, tools." in banner().accessibleName()
    order.set_project(folder_of(chat), Project())
    assert banner() is None


def test_a_new_project_begins_with_a_chat_in_it(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    chat.start()
    window.actions_.new_project.trigger()
    cancelled = shown_child(window, ProjectSheet)
    press_key(cancelled, "Esc")
    assert chat.chats.order.folders == ()
    menu = window.sidebar.row_actions.menu_for(None)
    {each.text(): each for each in menu.actions()}["New Project…"].trigger()
    sheet = shown_child(window, ProjectSheet)
    sheet.name.setFocus()
    qtbot.keyClicks(sheet.name, "Shop")
    press_key(sheet.name, "Tab")
    qtbot.keyClicks(sheet.instructions, "Rhyme.")
    click_on(sheet.buttons[-1])
    (folder,) = chat.chats.order.folders
    assert (folder.name, folder.project) == ("Shop", Project("Rhyme."))
    assert chat.open.project_folder == folder
    assert window.focusWidget() is window.conversation.composer.field
    chat.chats.undo()
    assert chat.chats.order.folders == ()


def test_the_sheet_says_from_which_share_on_files_leave_too_little(chat: Chat, sheet: ProjectSheet) -> None:
    """The fake model counts words, and has a context of 2,048 tokens."""
    notes = {600: "They take 603 ", 700: "are shortened often", 1100: "Too long to be read whole"}
    for words, note in notes.items():
        sheet.files.remove_files()
        sheet.files.restore_files([text_file("a.txt", "word " * words)])
        chat.qtbot.waitUntil(lambda note=note: note in sheet.note.text())
        assert ("shortened often" in sheet.note.text()) == (words == 700)


def test_a_folders_menu_opens_its_settings_and_begins_a_chat_in_it(window: MainWindow, chat: Chat) -> None:
    chat.start()
    folder = folder_of(chat)
    sidebar: Sidebar = window.sidebar
    rows = sidebar.list.rows
    listed = [rows.row_at(rows.index(place)) for place in range(rows.rowCount())]
    row = next(each for each in listed if isinstance(each, FolderRow))
    menu = sidebar.row_actions.menu_for(row)
    actions = {each.text(): each for each in menu.actions()}
    sidebar.list.setFocus()
    actions["New Chat Here"].trigger()
    assert chat.open.conversation.folder_id == folder.id
    assert window.conversation.composer.field.hasFocus()
    actions["Project Settings…"].trigger()
    shown_child(window, ProjectSheet).reject()


def test_files_are_added_shown_saved_and_removed(
    qtbot: QtBot, theme: Theme, window: MainWindow, chat: Chat, sheet: ProjectSheet, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Alpha beta")
    assert sheet.note.text() == "None. Add or drop files that each chat of the project begins with."
    sheet.files.add_files([str(path)])
    assert not sheet.buttons[-1].isEnabled()
    qtbot.waitUntil(sheet.buttons[-1].isEnabled)
    qtbot.waitUntil(lambda: "tokens in each chat" in sheet.note.text())
    accept(sheet)
    assert [file.name for file in folder_of(chat).files] == ["notes.txt"]
    assert chat.store.file_text(folder_of(chat).files[0]) == "Alpha beta"
    again = make_sheet(theme, window, chat)
    (pending,) = again.files.files
    again.chips.remove_requested.emit(pending.id)
    accept(again)
    assert folder_of(chat).files == ()


def test_files_are_dropped_anywhere_on_the_sheet(chat: Chat, sheet: ProjectSheet, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Alpha beta")
    assert not sheet.instructions.acceptDrops()
    text = QMimeData()
    text.setText("Words")
    assert not drag_over(sheet, text)
    assert drop(sheet, files_data(path, tmp_path / "gone.txt"))
    chat.qtbot.waitUntil(sheet.buttons[-1].isEnabled)
    assert [file.name for file in sheet.files.files] == ["notes.txt"]
    assert "gone.txt" in sheet.problem.text()
    accept(sheet)
    assert [file.name for file in folder_of(chat).files] == ["notes.txt"]


def test_tab_goes_through_the_sheet_from_top_to_bottom(qtbot: QtBot, sheet: ProjectSheet, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Alpha")
    sheet.attach_files([str(tmp_path / "a.txt")])
    qtbot.waitUntil(lambda: "tokens in each chat" in sheet.note.text())
    sheet.instructions.setFocus()
    names = list[str]()
    while "Save" not in names:
        focused = sheet.focusWidget()
        names.append(focused.accessibleName() or str(focused.property("text")))
        press_key(focused, "Tab")
    fields = ["Instructions of the project", "Preset of the project", "Model of the project", "web"]
    options = [*fields, "Kept notes", "Add…"]
    *chips, remove, cancel, save = names[len(options) :]
    assert names[: len(options)] == options
    assert chips[0] == "Add Files…"
    assert chips[-1].startswith("a.txt, 4 tokens")
    assert [remove, cancel, save] == ["Remove a.txt", "Cancel", "Save"]
