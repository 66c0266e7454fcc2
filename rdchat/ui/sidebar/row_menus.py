"""What can be done to a row of the sidebar: its context menu, and the menu of folders to move to."""

from collections.abc import Callable
from functools import partial

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.listing import ChatRow, FolderRow, Key, Row
from rdchat.services.chat.chat_list import ChatList
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.plain_text import button_text


class RowMenus:
    """Builds menus whose entries command the desk.

    Args:
        desk: The conversations.
        rename: Opens the editor of a row.
        erase: Asks whether to delete for good what it is given, and does.
        parent: What the menus belong to.
    """

    def __init__(
        self,
        desk: ChatList,
        rename: Callable[[Key], None],
        erase: Callable[[Conversation | Folder], None],
        parent: QWidget,
    ) -> None:
        self._desk, self._order, self._parent = desk, desk.order, parent
        self._rename, self._erase = rename, erase

    def menu_for(self, row: Row | None) -> QMenu:
        """Return the context menu of a row, or of the ground below the rows."""
        menu = QMenu(self._parent)
        in_bin = self._desk.listing.place is Place.BIN and not self._desk.listing.query
        if in_bin and isinstance(row, (ChatRow, FolderRow)):
            self._fill_for_deleted(menu, row)
        elif isinstance(row, ChatRow):
            self._fill_for_chat(menu, row.conversation)
        elif isinstance(row, FolderRow):
            self._fill_for_folder(menu, row.folder)
        elif not in_bin:
            _add(menu, "New folder", self.make_folder)
        return menu

    def _fill_for_chat(self, menu: QMenu, chat: Conversation) -> None:
        order, pinned = self._order, chat.pinned_at is not None
        _add(menu, "Rename", lambda: self._rename(("chat", chat.id)))
        _add(menu, "Unpin" if pinned else "Pin", lambda: order.set_pinned(chat, not pinned))
        move = menu.addMenu("Move to folder")
        self.fill_move_menu(move, chat)
        _add(menu, "Duplicate", lambda: order.duplicate(chat))
        if chat.archived:
            _add(menu, "Move out of archive", lambda: order.set_archived(chat, archived=False))
        else:
            _add(menu, "Archive", lambda: self._desk.archive_conversation(chat.id))
        menu.addSeparator()
        _add(menu, "Delete", lambda: self._desk.delete_conversation(chat.id))

    def _fill_for_folder(self, menu: QMenu, folder: Folder) -> None:
        order = self._order
        _add(menu, "Rename", lambda: self._rename(("folder", folder.id)))
        if folder.parent_id is None:
            _add(menu, "New folder inside", lambda: self.make_folder(folder.id))
        move = menu.addMenu("Move to folder")
        _choice(move, "No folder", folder.parent_id is None, lambda: order.move_folder(folder, None))
        for each in order.folders:
            if order.may_hold(each, folder):
                chosen = folder.parent_id == each.id
                _choice(move, each.name, chosen, partial(order.move_folder, folder, each.id))
        menu.addSeparator()
        _add(menu, "Delete folder", lambda: order.delete_folder(folder))

    def _fill_for_deleted(self, menu: QMenu, row: ChatRow | FolderRow) -> None:
        if isinstance(row, ChatRow):
            thing: Conversation | Folder = row.conversation
            _add(menu, "Restore", lambda: self._order.restore(row.conversation))
        else:
            thing = row.folder
            _add(menu, "Restore", lambda: self._order.restore_folder(row.folder))
        menu.addSeparator()
        _add(menu, "Delete for good…", lambda: self._erase(thing))

    def fill_move_menu(self, menu: QMenu, chat: Conversation) -> None:
        """List the folders that a conversation can be moved to."""
        order = self._order
        _choice(menu, "No folder", order.folder(chat.folder_id) is None, lambda: order.move(chat, None))
        for folder in _in_order(order.folders):
            name = folder.name if folder.parent_id is None else f"    {folder.name}"
            chosen = chat.folder_id == folder.id
            _choice(menu, name, chosen, partial(order.move, chat, folder.id))
        menu.addSeparator()
        _add(menu, "New folder…", lambda: self.make_folder(None, chat))

    def make_folder(self, parent_id: int | None = None, chat: Conversation | None = None) -> None:
        """Make a folder and have its name typed."""
        parent = self._order.folder(parent_id)
        if parent is not None and not parent.expanded:
            self._order.set_expanded(parent, expanded=True)
        folder = self._order.create_folder("New folder", parent_id, chat)
        if folder is not None:
            self._rename(("folder", folder.id))


def _in_order(folders: tuple[Folder, ...]) -> list[Folder]:
    """Return each folder followed by those in it."""
    top = [folder for folder in folders if folder.parent_id is None]
    return [each for folder in top for each in (folder, *(inner for inner in folders if inner.parent_id == folder.id))]


def _add(menu: QMenu, words: str, act: Callable[[], object]) -> QAction:
    action = QAction(button_text(words), menu)
    action.triggered.connect(lambda _checked=False: act())
    menu.addAction(action)
    return action


def _choice(menu: QMenu, words: str, chosen: bool, act: Callable[[], object]) -> None:
    action = _add(menu, words, act)
    action.setCheckable(True)
    action.setChecked(chosen)
