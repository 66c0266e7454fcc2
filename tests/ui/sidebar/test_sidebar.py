import pytest
from PySide6.QtCore import QModelIndex, QPoint
from PySide6.QtWidgets import QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from rdchat.chat.listing import ChatRow
from rdchat.chat.storage.search import ChatHit, SearchAnswer, SearchQuery
from rdchat.ui.sidebar.sidebar import Sidebar, result_text
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.sidebar.conftest import index_of


def _titles(sidebar: Sidebar) -> list[str]:
    rows = sidebar.list.rows
    listed = [rows.row_at(rows.index(place)) for place in range(rows.rowCount())]
    return [row.conversation.title for row in listed if isinstance(row, ChatRow)]


def _current(sidebar: Sidebar) -> str:
    row = sidebar.list.current_row
    return row.conversation.title if isinstance(row, ChatRow) else ""


def test_a_new_chat_is_scrolled_to_and_a_scrolled_list_stays(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    for number in range(40):
        chat.store.create_conversation(f"Chat {number}")
    chat.chats.update_list()
    qtbot.waitUntil(lambda: len(_titles(sidebar)) == 43)
    bar = sidebar.list.verticalScrollBar()
    bar.setValue(bar.maximum())
    scrolled = bar.value()
    chat.chats.update_list()
    sidebar.show_list()
    assert bar.value() == scrolled
    chat.open.start_new()
    chat.controller.send("A question")
    qtbot.waitUntil(lambda: _current(sidebar) == "A question")
    assert bar.value() < scrolled
    assert sidebar.list.viewport().rect().contains(sidebar.list.visualRect(sidebar.list.currentIndex()))


def test_tab_goes_through_the_parts_in_order(sidebar: Sidebar) -> None:
    """It passed over the list of chats."""
    parts = sidebar.search, sidebar.filter, sidebar.list, *sidebar.location_buttons.values()
    sidebar.search.setFocus()
    for part in parts:
        assert sidebar.focusWidget() is part
        press_key(part, "Tab")


def test_up_and_down_open_the_neighbours(chat: Chat, sidebar: Sidebar) -> None:
    press_key(sidebar.list, "Down")
    assert chat.open.stored_conversation.title == "Lisbon"
    press_key(sidebar.list, "Up")
    assert chat.open.stored_conversation.title == "Python"
    press_key(sidebar.list, "Up")  # above is a heading
    assert _current(sidebar) == "Python"


def _click(qtbot: QtBot, sidebar: Sidebar, title: str) -> None:
    place = sidebar.list.visualRect(index_of(sidebar, title)).center()
    click_on(sidebar.list.viewport(), place)


def test_a_click_opens_and_one_on_a_heading_does_nothing(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    _click(qtbot, sidebar, "Bread")
    assert chat.open.stored_conversation.title == "Bread"
    _click(qtbot, sidebar, "Today")
    assert _current(sidebar) == "Bread"


def test_return_goes_on_to_writing(qtbot: QtBot, sidebar: Sidebar) -> None:
    with qtbot.waitSignal(sidebar.list.write_requested):
        press_key(sidebar.list, "Return")


def _editor(sidebar: Sidebar) -> QLineEdit:
    return sidebar.list.viewport().findChild(QLineEdit)


def test_f2_renames_in_place(qtbot: QtBot, sidebar: Sidebar) -> None:
    press_key(sidebar.list, "F2")
    editor = _editor(sidebar)
    editor.setText("Snakes")
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: "Snakes" in _titles(sidebar))
    assert "Python" not in _titles(sidebar)


@pytest.mark.parametrize("title", ["", "   ", "Python"])
def test_a_blank_or_equal_title_changes_nothing(chat: Chat, sidebar: Sidebar, title: str) -> None:
    sidebar.list.edit(sidebar.list.currentIndex())
    editor = _editor(sidebar)
    editor.setText(title)
    with chat.qtbot.assertNotEmitted(chat.chats.conversations_changed):
        press_key(editor, "Return")
    assert _current(sidebar) == "Python"


def test_a_title_being_edited_survives_a_new_list(chat: Chat, sidebar: Sidebar) -> None:
    """A reply that ends in the background lists anew, which would close the editor."""
    press_key(sidebar.list, "F2")
    editor = _editor(sidebar)
    editor.setText("Half a ti")
    chat.store.create_conversation("Newcomer")
    chat.chats.update_list()
    assert sidebar.list.editing
    assert editor.text() == "Half a ti"
    press_key(editor, "Esc")
    chat.qtbot.waitUntil(lambda: "Newcomer" in _titles(sidebar))


def test_delete_deletes_and_opens_the_next(chat: Chat, sidebar: Sidebar) -> None:
    with chat.qtbot.waitSignal(chat.chats.conversation_removed):
        press_key(sidebar.list, "Del")
    assert _titles(sidebar) == ["Lisbon", "Bread"]
    assert _current(sidebar) == "Lisbon"
    chat.chats.undo()
    assert "Python" in _titles(sidebar)


def test_a_right_click_opens_the_menu_of_what_is_there(sidebar: Sidebar) -> None:
    for place, words in (
        (sidebar.list.visualRect(index_of(sidebar, "Lisbon")).center(), "Duplicate"),
        (QPoint(20, sidebar.list.viewport().height() - 5), "New Folder"),
    ):
        sidebar.list.customContextMenuRequested.emit(place)
        menu = next(menu for menu in sidebar.findChildren(QMenu) if menu.isVisible())
        assert words in [action.text() for action in menu.actions()]
        menu.close()


@pytest.mark.parametrize(
    ("found", "is_part", "words"),
    [
        (2, False, "2 chats found"),
        (2, True, "More than 2 chats found"),
        (1310, False, "Newest 2 of 1,310 found"),
        (1310, True, "Newest 2 of more than 1,310 found"),
    ],
)
def test_the_header_says_where_not_all_that_was_found_is_listed(
    chat: Chat, found: int, is_part: bool, words: str
) -> None:
    hits = tuple(ChatHit(chat.store.create_conversation("Lisbon")) for _ in range(2))
    answer = SearchAnswer(SearchQuery("lis"), hits, found, is_part)
    assert result_text(answer) == words


def test_search_narrows_the_list_and_leads_to_its_first_hit(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    qtbot.keyClicks(sidebar.search, "lis")
    qtbot.waitUntil(lambda: _titles(sidebar) == ["Lisbon"])
    assert _current(sidebar) == ""
    assert sidebar.header_text.text() == "1 chat found"
    sidebar.search.setText("nothing like it")
    qtbot.waitUntil(lambda: sidebar.header_text.text() == "No chats found")
    assert _titles(sidebar) == []
    assert not sidebar.empty.isVisible(), "it was said twice"
    press_key(sidebar.search, "Esc")
    qtbot.waitUntil(lambda: len(_titles(sidebar)) == 3)
    assert _current(sidebar) == "Python"
    qtbot.keyClicks(sidebar.search, "bre")
    qtbot.waitUntil(lambda: _titles(sidebar) == ["Bread"])
    press_key(sidebar.search, "Down")
    assert chat.open.stored_conversation.title == "Bread"


def test_no_conversations_tells_what_comes_here(theme: Theme, chat: Chat) -> None:
    sidebar = Sidebar(chat.chats, theme)
    chat.qtbot.addWidget(sidebar)
    sidebar.show()
    chat.start()
    assert sidebar.empty.text() == "Your chats appear here."
    assert sidebar.empty.isVisible()
    assert sidebar.list.currentIndex() == QModelIndex()
