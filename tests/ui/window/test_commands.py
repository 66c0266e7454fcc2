"""Commands on text and chats, keys that go from chat to chat, and what other programs hand over."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox, QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat import app, cli
from rdchat.chat.listing import ChatRow
from rdchat.chat.projects import Project
from rdchat.services.app.start_request import MAX_CHARACTERS, StartRequest
from rdchat.services.chat_list.chat_list import Activity
from rdchat.services.chat_list.chat_order import Location
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.sidebar.rows import ACTIVITY
from rdchat.ui.window.main_window import MainWindow
from tests.chat.attachments.documents import pdf
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, click_on, press_key, shown_child
from tests.ui.transcript.conftest import button
from tests.ui.window.message_menus import choose, shown, texts


def menu_of(window: MainWindow, row: ChatRow) -> list[QAction]:
    """Return the entries of the context menu of a chat."""
    return window.sidebar.row_actions.menu_for(row).actions()


@pytest.mark.slow
def test_deleting_is_undone_from_the_banner_and_from_the_menu(chat: Chat, window: MainWindow) -> None:
    chat.start("Hi", "More")
    before = texts(chat)
    choose(window, 1, "Delete Message")
    assert texts(chat) == ["Hi"]
    assert window.focusWidget() is shown(window, 0).body
    chat.qtbot.waitUntil(lambda: window.actions_.regenerate.text() == "Get a Reply")
    click_on(button(window.conversation.banners.banner("undo"), "Undo"))
    assert texts(chat) == before
    choose(window, -1, "Delete Message")
    row = ChatRow(chat.open.stored_conversation)
    chat.open.start_new()
    (restore,) = [each for each in menu_of(window, row) if each.text() == "Restore Deleted Message"]
    restore.trigger()
    assert texts(chat) == before, "the chat is open again"
    assert window.conversation.banners.banner("undo") is None
    assert "Restore Deleted Message" not in [each.text() for each in menu_of(window, row)]


@pytest.mark.slow
def test_a_prompt_whose_reply_was_deleted_gets_another_one(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start("Hi")
    choose(window, -1, "Delete Message")
    choose(window, -1, "Get a Reply")
    qtbot.waitUntil(lambda: texts(chat) == ["Hi", "Hello, you!"] and not chat.writing)
    choose(window, -1, "Delete Message")
    click_on(button(shown(window, -1), "Get a reply"))
    qtbot.waitUntil(lambda: texts(chat) == ["Hi", "Hello, you!"] and not chat.writing)


def test_a_branch_opens_and_ends_the_offer_to_undo_what_was_done_before(chat: Chat, window: MainWindow) -> None:
    chat.start("Hi", "More")
    choose(window, -1, "Delete Message")
    choose(window, 1, "Branch into New Chat")
    chat.qtbot.waitUntil(lambda: window.windowTitle() == "Branch of Hi")
    assert texts(chat) == ["Hi", "Hello, you!"]
    assert window.conversation.banners.banner("undo") is None


def test_a_selection_is_quoted_with_its_shortcut(chat: Chat, window: MainWindow) -> None:
    chat.start("Hi")
    composer = window.conversation.composer
    composer.set_text("Before")
    window.actions_.quote.trigger()
    assert composer.note.text() == "Select some text of a message first, then quote it."
    body = shown(window, -1).body
    chat.qtbot.waitUntil(lambda: body.toPlainText() == "Hello, you!")
    body.selectAll()
    body.setFocus()
    press_key(body, "Ctrl+'")
    assert composer.text == "Before\n\n> Hello, you!\n\n"
    assert composer.field.textCursor().atEnd()
    assert window.focusWidget() is composer.field
    composer.field.undo()
    assert composer.text == "Before"


def _focused(window: MainWindow) -> QPlainTextEdit:
    activate(window)
    window.conversation.composer.setFocus()
    return window.conversation.composer.field


def test_the_next_and_the_previous_chat_of_the_list_are_opened(chat: Chat, window: MainWindow) -> None:
    for title in ("Three", "Two", "One"):
        chat.store.create_conversation(title)
    chat.start()
    field = _focused(window)
    chat.open.start_new()
    seen = []
    for key in ("Down", "Down", "Down", "Down", "Up"):
        press_key(field, f"Ctrl+Alt+{key}")
        seen.append(window.windowTitle())
    assert seen == ["One", "Two", "Three", "Three", "Two"], "a heading stands above them, and nothing below"
    row = window.sidebar.list.current_row
    assert row.conversation.title == "Two"
    assert field.hasFocus()


def test_a_new_chat_stays_in_its_project_and_leaves_it_when_asked(chat: Chat, window: MainWindow) -> None:
    chat.start()
    order = chat.chats.order
    outer = order.create_folder("Work")
    plain = order.create_folder("Plain")
    inner = order.create_folder("Inner", outer.id)
    order.set_project(outer, Project("Rhyme."))
    actions = window.actions_
    for folder, stays in ((outer, True), (inner, True), (plain, False)):
        chat.open.start_new(folder.id)
        chat.say("Hi")
        assert actions.new_chat.text() == ("New Chat in “Work”" if stays else "New Chat")
        press_key(_focused(window), "Ctrl+N")
        assert chat.open.conversation.folder_id == (folder.id if stays else None)
        assert actions.new_outside.isEnabled() == stays
    chat.open.start_new(inner.id)
    actions.new_outside.trigger()
    assert chat.open.conversation.folder_id is None


def test_a_new_chat_begins_in_the_project_that_is_chosen_in_the_sidebar(chat: Chat, window: MainWindow) -> None:
    """It began beside the open chat, and nothing on its page named the project."""
    chat.start()
    order = chat.chats.order
    work = order.create_folder("Work")
    plain = order.create_folder("Plain")
    order.set_project(work, Project("Rhyme."))
    chat.say("Hi")
    rows = window.sidebar.list
    actions = window.actions_
    for folder, place, name in ((plain, None, "New Chat"), (work, work.id, "New Chat in “Work”")):
        activate(window)
        rows.setFocus()
        rows.setCurrentIndex(rows.rows.index(rows.rows.index_of(("folder", folder.id))))
        assert actions.new_chat.text() == name
        assert actions.new_outside.isEnabled() == (place is not None)
        press_key(rows, "Ctrl+N")
        assert chat.open.conversation.folder_id == place
    assert window.conversation.welcome.title.text() == "Work"
    assert window.conversation.project_line.text.text().startswith("Project Work")
    assert window.conversation.composer.field.hasFocus()
    rows.setFocus()
    rows.setCurrentIndex(rows.rows.index(rows.rows.index_of(("folder", work.id))))
    actions.new_outside.trigger()
    assert chat.open.conversation.folder_id is None
    assert actions.new_chat.text() == "New Chat"


def test_no_key_opens_a_deleted_chat(chat: Chat, window: MainWindow) -> None:
    deleted = chat.store.create_conversation("Deleted")
    chat.store.create_conversation("Stays")
    chat.start()
    chat.chats.delete_conversation(deleted.id)
    chat.chats.show_location(Location.TRASH)
    press_key(_focused(window), "Ctrl+Alt+Down")
    assert window.windowTitle() == "Stays"


def test_a_key_goes_to_the_chat_with_a_new_reply(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("First")
    first = chat.open.id
    window.actions_.new_chat.trigger()
    assert not window.actions_.next_reply.isEnabled()
    chat.finish_reply()
    sidebar = window.sidebar.list
    row = sidebar.rows.index_of(("chat", first))
    assert sidebar.rows.index(row).data(ACTIVITY) == Activity.NEW
    qtbot.waitUntil(window.actions_.next_reply.isEnabled)
    press_key(_focused(window), "Ctrl+Alt+Shift+Down")
    assert chat.open.id == first
    assert chat.chats.activity(first) is Activity.NONE
    qtbot.waitUntil(lambda: not window.actions_.next_reply.isEnabled())


def test_up_in_an_empty_field_edits_the_last_question(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    field = _focused(window)
    press_key(field, "Up")
    assert field.hasFocus(), "there is nothing to edit yet"
    chat.say("One")
    chat.say("Two")
    # Escape is the editor's again.
    qtbot.waitUntil(lambda: not window.actions_.stop.isEnabled())
    QTest.keyClicks(field, "x")
    press_key(field, "Up")
    assert field.hasFocus(), "Up moves the cursor of a text"
    press_key(field, "Backspace")
    press_key(field, "Up")
    editor = window.focusWidget()
    assert (editor.accessibleName(), editor.toPlainText()) == ("Edit your message", "Two")
    press_key(editor, "Esc")
    assert field.hasFocus()
    press_key(field, "Up")
    editor = window.focusWidget()
    QTest.keyClicks(editor, "!")
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: chat.controller.replies.state is EngineState.IDLE and not chat.writing)
    assert [message.text for message in chat.path][2] == "Two!"


def test_up_takes_back_a_question_that_waits(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("One")
    chat.controller.send("Two")
    field = _focused(window)
    press_key(field, "Up")
    assert field.toPlainText() == "Two"
    assert not chat.open.unsent.waiting


def test_an_address_adds_its_text_to_what_is_typed_and_sends_nothing(chat: Chat, window: MainWindow) -> None:
    chat.start()
    field = window.conversation.composer.field
    window.hide()
    window.commands.open_file("rdchat://ask?text=What%20is%20%3Cb%3E?")
    assert window.isVisible()
    assert field.toPlainText() == "What is <b>?"
    window.commands.open_file("rdchat://ask?text=And%0Athat%00?")
    assert field.toPlainText() == "What is <b>?\n\nAnd\nthat?"
    assert not chat.path
    field.undo()
    assert field.toPlainText() == "What is <b>?"
    field.setFocus()
    press_key(field, "Return")
    assert chat.path[0].text == "What is <b>?"


def test_links_that_are_opened_again_and_again_fill_no_field(chat: Chat, window: MainWindow) -> None:
    chat.start()
    composer = window.conversation.composer
    for _ in range(3):
        window.commands.open_file(f"rdchat://ask?text={'a' * (MAX_CHARACTERS - 1)}")
    assert len(composer.text) == 2 * MAX_CHARACTERS
    assert composer.note.text() == "The text of the link was left out, since the message is long."


def test_another_address_is_named_as_one_that_is_not_opened(window: MainWindow) -> None:
    window.commands.open_file("rdchat://delete?all=1")
    banner = shown_child(window, Banner)
    assert banner.accessibleName() == "rdchat cannot open this address. It opens rdchat://ask?text=, with a text."


def test_files_are_attached_and_a_model_is_loaded(qtbot: QtBot, chat: Chat, window: MainWindow, tmp_path: Path) -> None:
    """A drop on the Dock's icon comes as one event for each file."""
    chat.start()
    (tmp_path / "a.txt").write_text("apples")
    (tmp_path / "b.pdf").write_bytes(pdf(["pears"]))
    (tmp_path / "model").mkdir()
    for name in ("a.txt", "b.pdf", "model"):
        window.commands.open_file(str(tmp_path / name))
    files = chat.open.files
    qtbot.waitUntil(lambda: [file.name for file in files.files if file.read] == ["a.txt", "b.pdf"])
    qtbot.waitUntil(lambda: chat.slot.chosen == str(tmp_path / "model"))
    assert not chat.path


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["--quick"], StartRequest(quick=True)),
        (["a.txt", "b c.txt"], StartRequest(files=("{}/a.txt", "{}/b c.txt"))),
    ],
)
def test_the_command_line_hands_files_and_addresses_to_the_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], request_: StartRequest
) -> None:
    taken: list[StartRequest] = []
    monkeypatch.setattr(app, "main", lambda request: taken.append(request) or 0)
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b c.txt", "ask"):
        Path(name).touch()
    assert cli.main(arguments) == 0
    files = tuple(each.format(Path.cwd()) for each in request_.files)
    assert taken == [replace(request_, files=files)]


def test_the_command_line_refuses_other_addresses_and_files_that_are_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["rdchat://send?text=Hi"]) == 2
    assert "rdchat cannot open this address. It opens rdchat://ask?text=" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["missing.txt"])


@pytest.mark.parametrize("begin", ["new_chat", "new_temporary", "send"])
def test_a_new_chat_and_sending_leave_the_search(chat: Chat, window: MainWindow, begin: str) -> None:
    """The search stayed, and what was begun was missing in the list."""
    chat.start("Hello")
    window.commands.search_all_chats("table")
    window.sidebar.search.typing.timeout.emit()
    assert chat.chats.query.text == "table"
    if begin == "send":
        window.conversation.composer.submitted.emit("And then?")
    else:
        window.actions_.__getattr__(begin).trigger()
    assert (window.sidebar.search.text(), bool(chat.chats.query)) == ("", False)
    chat.wait_for_reply()


def test_escape_closes_what_says_the_versions(qtbot: QtBot, window: MainWindow) -> None:
    """With two buttons, Qt takes none of them for Escape, and the box could not be closed by its cross either."""
    window.commands.show_versions()
    (box,) = window.findChildren(QMessageBox)
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    assert not box.isVisible()
