"""What can be done to a row of the sidebar: its context menu, and the menu of folders to move to."""

from collections.abc import Callable
from functools import partial

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.listing import ChatRow, FolderRow, Row
from rdchat.services.chat.conversation_desk import ConversationDesk
from rdchat.services.library.library import Place
from rdchat.ui.sidebar.rows import Key


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
        desk: ConversationDesk,
        rename: Callable[[Key], None],
        erase: Callable[[Conversation | Folder], None],
        parent: QWidget,
    ) -> None:
        self._desk, self._library, self._parent = desk, desk.library, parent
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
        library, pinned = self._library, chat.pinned_at is not None
        _add(menu, "Rename", lambda: self._rename(("chat", chat.id)))
        _add(menu, "Unpin" if pinned else "Pin", lambda: library.set_pinned(chat, not pinned))
        move = menu.addMenu("Move to folder")
        self.fill_move_menu(move, chat)
        _add(menu, "Duplicate", lambda: library.duplicate(chat))
        if chat.archived:
            _add(menu, "Move out of archive", lambda: library.set_archived(chat, archived=False))
        else:
            _add(menu, "Archive", lambda: self._desk.archive_conversation(chat.id))
        menu.addSeparator()
        _add(menu, "Delete", lambda: self._desk.delete_conversation(chat.id))

    def _fill_for_folder(self, menu: QMenu, folder: Folder) -> None:
        library = self._library
        _add(menu, "Rename", lambda: self._rename(("folder", folder.id)))
        if folder.parent_id is None:
            _add(menu, "New folder inside", lambda: self.make_folder(folder.id))
        move = menu.addMenu("Move to folder")
        _choice(move, "No folder", folder.parent_id is None, lambda: library.move_folder(folder, None))
        for each in library.folders:
            if library.may_hold(each, folder):
                chosen = folder.parent_id == each.id
                _choice(move, each.name, chosen, partial(library.move_folder, folder, each.id))
        menu.addSeparator()
        _add(menu, "Delete folder", lambda: library.delete_folder(folder))

    def _fill_for_deleted(self, menu: QMenu, row: ChatRow | FolderRow) -> None:
        if isinstance(row, ChatRow):
            thing: Conversation | Folder = row.conversation
            _add(menu, "Restore", lambda: self._library.restore(row.conversation))
        else:
            thing = row.folder
            _add(menu, "Restore", lambda: self._library.restore_folder(row.folder))
        menu.addSeparator()
        _add(menu, "Delete for good…", lambda: self._erase(thing))

    def fill_move_menu(self, menu: QMenu, chat: Conversation) -> None:
        """List the folders that a conversation can be moved to."""
        library = self._library
        _choice(menu, "No folder", library.folder(chat.folder_id) is None, lambda: library.move(chat, None))
        for folder in _in_order(library.folders):
            name = folder.name if folder.parent_id is None else f"    {folder.name}"
            chosen = chat.folder_id == folder.id
            _choice(menu, name, chosen, partial(library.move, chat, folder.id))
        menu.addSeparator()
        _add(menu, "New folder…", lambda: self.make_folder(None, chat))

    def make_folder(self, parent_id: int | None = None, chat: Conversation | None = None) -> None:
        """Make a folder and have its name typed."""
        parent = self._library.folder(parent_id)
        if parent is not None and not parent.expanded:
            self._library.set_expanded(parent, expanded=True)
        folder = self._library.create_folder("New folder", parent_id, chat)
        if folder is not None:
            self._rename(("folder", folder.id))


def _in_order(folders: tuple[Folder, ...]) -> list[Folder]:
    """Return each folder followed by those in it."""
    top = [folder for folder in folders if folder.parent_id is None]
    return [each for folder in top for each in (folder, *(inner for inner in folders if inner.parent_id == folder.id))]


def _add(menu: QMenu, words: str, act: Callable[[], object]) -> QAction:
    action = QAction(words.replace("&", "&&")[:200], menu)
    action.triggered.connect(lambda _checked=False: act())
    menu.addAction(action)
    return action


def _choice(menu: QMenu, words: str, chosen: bool, act: Callable[[], object]) -> None:
    action = _add(menu, words, act)
    action.setCheckable(True)
    action.setChecked(chosen)
