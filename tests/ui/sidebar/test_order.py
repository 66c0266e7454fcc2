"""Pins, folders, the archive and the Trash by mouse and keyboard."""

import warnings

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDrag, QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from rdchat.chat.listing import ChatRow, FolderRow, Row, key_of
from rdchat.chat.projects import Folder
from rdchat.inference.api import Role
from rdchat.services.chat_list.chat_order import ChatOrder, Location
from rdchat.ui.sidebar.sidebar import Sidebar
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import answer_question, click_on, press_key
from tests.ui.sidebar.conftest import index_of


def _rows(sidebar: Sidebar) -> list[Row]:
    rows = sidebar.list.rows
    return [row for place in range(rows.rowCount()) if (row := rows.row_at(rows.index(place)))]


def _shown(sidebar: Sidebar) -> list[str]:
    """Return the rows as words, what is in a folder indented."""
    rows = sidebar.list.rows
    depths = [0 if not isinstance(row, (ChatRow, FolderRow)) else row.depth for row in _rows(sidebar)]
    return ["  " * depth + str(rows.data(rows.index(place))) for place, depth in enumerate(depths)]


def _row(sidebar: Sidebar, words: str) -> Row:
    return sidebar.list.rows.row_at(index_of(sidebar, words))


def _trigger(sidebar: Sidebar, row: str, *words: str) -> None:
    menu = sidebar.row_actions.menu_for(_row(sidebar, row))
    for word in words[:-1]:
        menu = next(action for action in menu.actions() if action.text() == word).menu()
    next(action for action in menu.actions() if action.text().strip() == words[-1]).trigger()


def _order(chat: Chat) -> ChatOrder:
    return chat.chats.order


def _folder(chat: Chat, name: str, parent: Folder | None = None) -> Folder:
    return _order(chat).create_folder(name, parent.id if parent else None)


def _drag(sidebar: Sidebar, what: str, onto: str) -> bool:
    """Drop a row on another, or with "" below all rows, as the mouse does; whether it was allowed.

    With "", `what` is something from elsewhere.
    """
    sidebar.list.dragged = key_of(_row(sidebar, what)) if what else None
    below = sidebar.list.viewport().rect().bottomLeft() - QPoint(0, 2)
    place = sidebar.list.visualRect(index_of(sidebar, onto)).center() if onto else below
    keys = (Qt.DropAction.MoveAction, QMimeData(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    with warnings.catch_warnings(action="ignore"):  # made by Qt alone, as it says
        entered = QDragEnterEvent(place, *keys)
        moved = QDragMoveEvent(place, *keys)
    sidebar.list.dragEnterEvent(entered)
    sidebar.list.dragMoveEvent(moved)
    assert entered.isAccepted() is bool(what)
    if moved.isAccepted():
        assert sidebar.list.painter.drop_row == sidebar.list.indexAt(place).row()
        sidebar.list.dropEvent(QDropEvent(QPointF(place), *keys))
    assert sidebar.list.painter.drop_row == -1
    sidebar.list.dragged = None
    return moved.isAccepted()


def test_a_pinned_chat_stands_above_and_comes_back(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    _trigger(sidebar, "Bread", "Pin")
    assert _shown(sidebar) == ["Pinned", "Bread", "Today", "Python", "Lisbon"]
    assert _drag(sidebar, "Lisbon", "Pinned")
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Pinned", "Bread", "Lisbon", "Today", "Python"])
    assert _drag(sidebar, "Bread", "Python")
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Pinned", "Lisbon", "Today", "Python", "Bread"])
    _trigger(sidebar, "Lisbon", "Unpin")
    assert _shown(sidebar) == ["Today", "Python", "Lisbon", "Bread"]


def test_chats_are_dragged_into_folders_and_out(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    _folder(chat, "Recipes")
    assert _drag(sidebar, "Bread", "Recipes")
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Folders", "Recipes", "  Bread", "Today", "Python", "Lisbon"])
    assert _drag(sidebar, "Lisbon", "Bread")  # beside what is in the folder
    qtbot.waitUntil(lambda: _shown(sidebar)[2:4] == ["  Lisbon", "  Bread"])
    assert _drag(sidebar, "Bread", "Today")
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Folders", "Recipes", "  Lisbon", "Today", "Python", "Bread"])


def test_a_chat_is_dropped_below_the_rows_only_where_these_are_in_their_order(
    qtbot: QtBot, chat: Chat, sidebar: Sidebar
) -> None:
    chats = chat.chats
    _folder(chat, "Recipes")
    assert _drag(sidebar, "Bread", "Recipes")
    qtbot.waitUntil(lambda: "  Bread" in _shown(sidebar))
    _trigger(sidebar, "Python", "Archive")
    chats.show_location(Location.ARCHIVE)
    assert _shown(sidebar) == ["Python"]
    assert not _drag(sidebar, "Python", "")
    assert not _drag(sidebar, "Python", "Python")
    chats.show_location(Location.CHATS)
    sidebar.search.setText("Bread")
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Bread"])
    assert not _drag(sidebar, "Bread", "")
    sidebar.search.clear()
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Folders", "Recipes", "  Bread", "Today", "Lisbon"])
    assert _drag(sidebar, "Bread", "")
    qtbot.waitUntil(lambda: "Bread" in _shown(sidebar))


def test_folders_are_dragged_into_one_another_once(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    _folder(chat, "Outer")
    _folder(chat, "Third")
    _folder(chat, "Inner")
    assert _drag(sidebar, "Inner", "Outer")
    qtbot.waitUntil(lambda: _shown(sidebar)[:4] == ["Folders", "Outer", "  Inner", "Third"])
    assert not _drag(sidebar, "Third", "Inner")
    assert not _drag(sidebar, "Outer", "Third")
    assert not _drag(sidebar, "Outer", "Outer")
    assert _drag(sidebar, "Inner", "Folders")
    qtbot.waitUntil(lambda: _shown(sidebar)[:4] == ["Folders", "Inner", "Outer", "Third"])
    _trigger(sidebar, "Inner", "Move to Folder", "Third")
    assert _shown(sidebar)[:4] == ["Folders", "Outer", "Third", "  Inner"]


def test_what_is_dragged_from_elsewhere_is_refused(sidebar: Sidebar) -> None:
    assert not _drag(sidebar, "", "Bread")


def test_a_drag_carries_the_row_under_the_mouse(sidebar: Sidebar, monkeypatch: pytest.MonkeyPatch) -> None:
    carried: list[tuple[str, int] | object] = []
    monkeypatch.setattr(QDrag, "exec", lambda _drag, _actions: carried.append(sidebar.list.dragged))
    sidebar.list.setCurrentIndex(index_of(sidebar, "Bread"))
    sidebar.list.startDrag(Qt.DropAction.MoveAction)
    assert carried == [key_of(_row(sidebar, "Bread"))]
    assert sidebar.list.dragged is None


def test_right_and_left_unfold_and_fold_a_folder(chat: Chat, sidebar: Sidebar) -> None:
    folder = _folder(chat, "Recipes")
    _trigger(sidebar, "Bread", "Move to Folder", "Recipes")
    sidebar.list.setFocus()
    sidebar.list.setCurrentIndex(index_of(sidebar, "Bread"))
    press_key(sidebar.list, "Left")
    press_key(sidebar.list, "Left")
    assert _shown(sidebar) == ["Folders", "Recipes", "Today", "Python", "Lisbon"]
    assert sidebar.list.current_row == _row(sidebar, "Recipes")
    assert "collapsed, 1 chat" in str(
        sidebar.list.rows.data(index_of(sidebar, "Recipes"), Qt.ItemDataRole.AccessibleTextRole)
    )
    press_key(sidebar.list, "Right")
    assert "  Bread" in _shown(sidebar)
    place = sidebar.list.visualRect(index_of(sidebar, "Recipes")).center()
    click_on(sidebar.list.viewport(), place)
    assert not chat.store.organiser.read_folder(folder.id).expanded


def test_a_new_folder_is_named_at_once_and_renamed(qtbot: QtBot, sidebar: Sidebar) -> None:
    _trigger(sidebar, "Bread", "Move to Folder", "New Folder…")
    editor = sidebar.list.viewport().findChild(QLineEdit)
    editor.setText("Kitchen")
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: _shown(sidebar)[:3] == ["Folders", "Kitchen", "  Bread"])
    _trigger(sidebar, "Kitchen", "New Folder Inside")
    editor = sidebar.list.viewport().findChildren(QLineEdit)[-1]
    press_key(editor, "Esc")
    assert _shown(sidebar)[:4] == ["Folders", "Kitchen", "  New folder", "  Bread"]


def test_a_deleted_folder_leaves_its_chats_and_is_found_in_the_bin(chat: Chat, sidebar: Sidebar) -> None:
    _folder(chat, "Recipes")
    _trigger(sidebar, "Bread", "Move to Folder", "Recipes")
    _trigger(sidebar, "Recipes", "Delete Folder")
    assert _shown(sidebar) == ["Today", "Python", "Lisbon", "Bread"]
    sidebar.location_buttons[Location.TRASH].click()
    assert _shown(sidebar) == ["Recipes"]
    _trigger(sidebar, "Recipes", "Restore")
    sidebar.location_buttons[Location.TRASH].click()
    assert _shown(sidebar)[:3] == ["Folders", "Recipes", "  Bread"]


def test_the_archive_is_a_place_of_its_own(chat: Chat, sidebar: Sidebar) -> None:
    assert chat.open.stored_conversation.title == "Python"
    with chat.qtbot.waitSignal(_order(chat).undo_offered):
        _trigger(sidebar, "Python", "Archive")
    assert _shown(sidebar) == ["Today", "Lisbon", "Bread"]
    assert chat.open.stored_conversation.title == "Lisbon"
    assert sidebar.location_buttons[Location.ARCHIVE].text() == "Archive 1"
    sidebar.location_buttons[Location.ARCHIVE].click()
    assert _shown(sidebar) == ["Python"]
    sidebar.list.setCurrentIndex(sidebar.list.rows.index(0))
    assert chat.open.stored_conversation.title == "Python"
    _trigger(sidebar, "Python", "Move Out of Archive")
    assert sidebar.empty.text() == "The archive is empty."
    sidebar.header.findChildren(QAbstractButton)[0].click()
    assert _shown(sidebar) == ["Today", "Python", "Lisbon", "Bread"]


def test_the_bin_gives_back_what_is_chosen(chat: Chat, sidebar: Sidebar) -> None:
    for title in ("Bread", "Lisbon"):
        _trigger(sidebar, title, "Delete")
    sidebar.location_buttons[Location.TRASH].click()
    assert _shown(sidebar) == ["Lisbon", "Bread"]
    sidebar.search.setFocus()
    press_key(sidebar.search, "Down")
    assert chat.open.stored_conversation.title == "Python"  # what is in the Trash is not opened
    press_key(sidebar.list, "F2")
    assert not sidebar.list.editing
    press_key(sidebar.list, "Return")
    assert _shown(sidebar) == ["Bread"]
    chat.chats.show_location(Location.CHATS)
    assert "Lisbon" in _shown(sidebar)


def test_deleting_for_good_asks_first(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    _folder(chat, "Recipes")
    _trigger(sidebar, "Recipes", "Delete Folder")
    for title in ("Bread", "Lisbon"):
        _trigger(sidebar, title, "Delete")
    sidebar.location_buttons[Location.TRASH].click()
    sidebar.list.setCurrentIndex(index_of(sidebar, "Bread"))
    press_key(sidebar.list, "Del")
    assert answer_question(sidebar, "Cancel").startswith("Delete “Bread” for good?")
    assert _shown(sidebar) == ["Recipes", "Lisbon", "Bread"]
    qtbot.waitUntil(lambda: sidebar.findChild(QMessageBox) is None)
    _trigger(sidebar, "Bread", "Delete for Good…")
    answer_question(sidebar, "Delete")
    assert _shown(sidebar) == ["Recipes", "Lisbon"]
    qtbot.waitUntil(lambda: sidebar.findChild(QMessageBox) is None)
    sidebar.trash_bar.findChildren(QPushButton)[1].click()
    assert answer_question(sidebar, "Delete").startswith("Delete 2 items for good?")
    assert sidebar.empty.text().startswith("The Trash is empty")


def test_a_duplicate_is_opened_and_undone(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    with qtbot.waitSignal(_order(chat).copied):
        _trigger(sidebar, "Bread", "Duplicate")
    assert _shown(sidebar)[1] == "Bread copy"
    assert [message.text for message in chat.path] == ["About Bread"]
    with qtbot.waitSignal(_order(chat).copied):
        _trigger(sidebar, "Bread", "Duplicate")
    assert "Bread copy 2" in _shown(sidebar)
    chat.chats.undo()
    assert "Bread copy 2" not in _shown(sidebar)


def test_a_hit_shows_where_its_words_are_and_a_filter_narrows(qtbot: QtBot, chat: Chat, sidebar: Sidebar) -> None:
    folder = _folder(chat, "Recipes")
    _trigger(sidebar, "Bread", "Move to Folder", "Recipes")
    chat.store.add_message(2, chat.store.messages(2)[-1].id, Role.ASSISTANT, "Take a tram", model="tiny")
    qtbot.keyClicks(sidebar.search, "about")
    qtbot.waitUntil(lambda: len(_rows(sidebar)) == 3)
    rows = {row.conversation.title: row for row in _rows(sidebar) if isinstance(row, ChatRow)}
    assert (rows["Bread"].snippet, rows["Bread"].location, rows["Bread"].messages) == ("About Bread", "Recipes", 1)
    sidebar.filter._menu.aboutToShow.emit()
    qtbot.waitUntil(lambda: chat.chats.finder.models == ("tiny",))
    sidebar.filter._menu.aboutToShow.emit()
    entries = {action.text(): action for action in sidebar.filter._menu.actions()}
    entries["Recipes"].trigger()
    qtbot.waitUntil(lambda: _shown(sidebar) == ["Bread"])
    assert sidebar.filter.chosen.folder_id == folder.id
    assert sidebar.filter_line.isVisible()
    sidebar.filter._menu.aboutToShow.emit()
    entries = {action.text(): action for action in sidebar.filter._menu.actions()}
    entries["tiny"].trigger()
    qtbot.waitUntil(lambda: _shown(sidebar) == [])
    sidebar.filter_line.findChildren(QAbstractButton)[0].click()
    qtbot.waitUntil(lambda: len(_rows(sidebar)) == 3)
    sidebar.header.findChildren(QAbstractButton)[0].click()
    assert _shown(sidebar)[0] == "Folders"
    assert sidebar.search.text() == ""
