import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from rdchat.ui.look.theme import Theme
from rdchat.ui.window.sidebar import Sidebar
from tests.ui.conftest import Chat


@pytest.fixture
def sidebar(qtbot: QtBot, theme: Theme, chat: Chat) -> Sidebar:
    for title in ("Bread", "Lisbon", "Python"):
        chat.store.create_conversation(title)
    sidebar = Sidebar(chat.controller.desk, theme)
    qtbot.addWidget(sidebar)
    sidebar.resize(240, 400)
    sidebar.show()
    chat.start()
    return sidebar


def _titles(sidebar: Sidebar) -> list[str]:
    rows = sidebar.list.rows
    return [rows.data(rows.index(row)) for row in range(rows.rowCount())]


def _current(sidebar: Sidebar) -> str:
    index = sidebar.list.currentIndex()
    return sidebar.list.conversation_at(index).title if index.isValid() else ""


def test_newest_first_and_the_open_one_is_marked(sidebar: Sidebar) -> None:
    assert _titles(sidebar) == ["Python", "Lisbon", "Bread"]
    assert _current(sidebar) == "Python"


def test_up_and_down_open_the_neighbours(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Down)
    assert chat.controller.desk.conversation is not None
    assert chat.controller.desk.conversation.title == "Lisbon"
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Up)
    assert chat.controller.desk.conversation.title == "Python"


def test_a_click_opens(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    place = sidebar.list.visualRect(sidebar.list.rows.index(2)).center()
    qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert chat.controller.desk.conversation is not None
    assert chat.controller.desk.conversation.title == "Bread"


def test_return_goes_on_to_writing(qtbot: QtBot, sidebar: Sidebar) -> None:
    with qtbot.waitSignal(sidebar.list.write_requested):
        qtbot.keyClick(sidebar.list, Qt.Key.Key_Return)


def _editor(sidebar: Sidebar) -> QLineEdit:
    editor = sidebar.list.viewport().findChild(QLineEdit)
    assert editor is not None
    return editor


def test_f2_renames_in_place(qtbot: QtBot, sidebar: Sidebar) -> None:
    qtbot.keyClick(sidebar.list, Qt.Key.Key_F2)
    editor = _editor(sidebar)
    editor.setText("Snakes")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "Snakes" in _titles(sidebar))
    assert "Python" not in _titles(sidebar)


@pytest.mark.parametrize("title", ["", "   ", "Python"])
def test_a_blank_or_equal_title_changes_nothing(qtbot: QtBot, sidebar: Sidebar, title: str) -> None:
    sidebar.list.edit(sidebar.list.currentIndex())
    editor = _editor(sidebar)
    editor.setText(title)
    with qtbot.assertNotEmitted(sidebar.list.rows.rename_submitted):
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert _current(sidebar) == "Python"


def test_escape_leaves_the_title(qtbot: QtBot, sidebar: Sidebar) -> None:
    qtbot.keyClick(sidebar.list, Qt.Key.Key_F2)
    editor = _editor(sidebar)
    editor.setText("Other")
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    assert _titles(sidebar) == ["Python", "Lisbon", "Bread"]


def test_a_title_being_edited_survives_a_new_list(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    """A reply that ends in the background lists anew, which would close the editor."""
    qtbot.keyClick(sidebar.list, Qt.Key.Key_F2)
    editor = _editor(sidebar)
    editor.setText("Half a ti")
    chat.store.create_conversation("Newcomer")
    chat.controller.desk.search("")
    assert sidebar.list.editing
    assert editor.text() == "Half a ti"
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: "Newcomer" in _titles(sidebar))


def test_delete_deletes_and_opens_the_next(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    with qtbot.waitSignal(chat.controller.desk.conversation_deleted):
        qtbot.keyClick(sidebar.list, Qt.Key.Key_Delete)
    assert _titles(sidebar) == ["Lisbon", "Bread"]
    assert _current(sidebar) == "Lisbon"
    chat.controller.desk.undo_delete()
    assert "Python" in _titles(sidebar)


def test_the_context_menu_deletes_and_renames(qtbot: QtBot, sidebar: Sidebar) -> None:
    menu = sidebar.list.menu_for(sidebar.list.conversation_at(sidebar.list.rows.index(1)))
    rename, delete = menu.actions()
    rename.trigger()
    assert sidebar.list.editing
    qtbot.keyClick(_editor(sidebar), Qt.Key.Key_Escape)
    delete.trigger()
    assert _titles(sidebar) == ["Python", "Bread"]


def test_search_narrows_the_list_and_says_when_nothing_matches(qtbot: QtBot, sidebar: Sidebar) -> None:
    qtbot.keyClicks(sidebar.search, "lis")
    qtbot.waitUntil(lambda: _titles(sidebar) == ["Lisbon"])
    assert _current(sidebar) == ""
    sidebar.search.setText("nothing like it")
    qtbot.waitUntil(lambda: not _titles(sidebar))
    assert sidebar._empty.text() == "No conversation has these words."
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: len(_titles(sidebar)) == 3)
    assert _current(sidebar) == "Python"


def test_down_goes_from_the_search_to_its_first_hit(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    qtbot.keyClicks(sidebar.search, "bre")
    qtbot.waitUntil(lambda: _titles(sidebar) == ["Bread"])
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Down)
    assert chat.controller.desk.conversation is not None
    assert chat.controller.desk.conversation.title == "Bread"


def test_no_conversations_tells_what_comes_here(qtbot: QtBot, theme: Theme, chat: Chat) -> None:
    sidebar = Sidebar(chat.controller.desk, theme)
    qtbot.addWidget(sidebar)
    sidebar.show()
    chat.start()
    assert sidebar._empty.text() == "Your conversations appear here."
    assert sidebar._empty.isVisible()
    assert sidebar.list.currentIndex() == QModelIndex()
