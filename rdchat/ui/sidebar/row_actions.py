"""The actions on a row of the sidebar, and the menus that offer them.

A row is a chat, a folder, or the heading of a section, on which there are no actions. A chat or folder, whichever it
is, is called a thing here (`thing_of`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Conversation
from rdchat.chat.listing import ChatRow, FolderRow, Key, Row
from rdchat.chat.projects import Folder
from rdchat.services.chat_list.chat_list import ChatList
from rdchat.services.chat_list.chat_order import Location, named
from rdchat.ui.style import add_action, ask
from rdchat.wording import counted

type Action = tuple[str, Callable[[], object]]
"""The menu text and the function of an action; `{}` in the text stands for the noun."""


@dataclass(frozen=True, slots=True)
class DropTarget:
    """The target of a drop: the pinned chats, a folder, or outside of all folders (the default)."""

    folder_id: int | None = None
    pinned: bool = False


class RowActions:
    """Carries out actions on chats and folders.

    Args:
        chats: The conversations.
        rename: Opens the editor of a row.
        parent: The parent of menus and questions.

    Attributes:
        order: The folders.
        activity: Returns what goes on in a chat, by its id.
        export: Asks how to export a chat.
        edit_project: Opens the settings of a folder's project, or without a folder those of a new one.
        has_deleted: Returns whether deleted messages of a chat can be restored, by its id.
        restore_deleted: Restores the last of them.
    """

    def __init__(self, chats: ChatList, rename: Callable[[Key], None], parent: QWidget) -> None:
        self._chats = chats
        self.order = chats.order
        self._rename = rename
        self._parent = parent
        self.activity = chats.activity
        self.export: Callable[[Conversation], object] = lambda _chat: None
        self.edit_project: Callable[..., object] = lambda _folder=None: None
        self.has_deleted: Callable[[int], bool] = lambda _chat_id: False
        self.restore_deleted: Callable[[int], object] = lambda _chat_id: None

    def chat_actions(self, chat: Conversation) -> dict[str, Action]:
        """Return the actions on a chat by name; `{}` in a text stands for the noun, which context menus omit."""
        chats = self._chats
        order = self.order
        pinned = chat.pinned_at is not None
        archive: Action = ("Archive{}", lambda: chats.archive_conversation(chat.id))
        if chat.archived:
            archive = ("Move{} Out of Archive", lambda: order.set_archived(chat, archived=False))
        return {
            "rename": ("Rename{}", lambda: self._rename(("chat", chat.id))),
            "pin": ("Unpin{}" if pinned else "Pin{}", lambda: order.set_pinned(chat, not pinned)),
            "duplicate": ("Duplicate{}", lambda: order.duplicate(chat)),
            "export": ("Export{}…", lambda: self.export(chat)),
            "archive": archive,
            "delete": ("Delete{}", lambda: chats.delete_conversation(chat.id)),
        }

    def open_row(self, conversation_id: int) -> None:
        """Open a chat; during a search also the one that is open, to show its hits."""
        current = self._chats.chat.stored_conversation
        if current is None or current.id != conversation_id or self._chats.query.text:
            self._chats.chat.open_chat(conversation_id)

    def set_title(self, row: Row, title: str) -> None:
        """Rename a chat or a folder."""
        if isinstance(row, ChatRow):
            self._chats.rename_conversation(row.conversation.id, title)
        elif isinstance(row, FolderRow):
            self.order.rename_folder(row.folder, title)

    def delete(self, thing: Conversation | Folder) -> None:
        """Move a chat or a folder to the Trash; in the Trash, ask to delete it for good."""
        if self.in_trash:
            self.erase(thing)
        elif isinstance(thing, Folder):
            self.order.delete_folder(thing)
        else:
            self._chats.delete_conversation(thing.id)

    def restore_row(self, thing: Conversation | Folder | None) -> None:
        """Take a chat or a folder out of the Trash."""
        if isinstance(thing, Folder):
            self.order.restore_folder(thing)
        elif thing is not None:
            self.order.restore_chat(thing)

    def erase(self, *things: Conversation | Folder) -> None:
        """Ask whether to delete for good: the one chat or folder that is given, or without any the whole Trash."""
        organiser = self._chats.store.organiser
        erase = self.order.erase
        erased = things or (*organiser.deleted_chats(), *organiser.deleted_folders())
        conversations = [thing for thing in erased if isinstance(thing, Conversation)]
        folders = [thing for thing in erased if isinstance(thing, Folder)]
        name = counted(len(erased), "item")
        if things:
            name = f"the folder {named(folders[0].name)}" if folders else named(conversations[0].title)
        question = f"Delete {name} for good?", "This cannot be undone.", "Delete"
        ask(self._parent.window(), *question, lambda: erase(conversations, folders), removes=True)

    def may_drop(self, key: Key, target: DropTarget) -> bool:
        """Return whether a row may be dropped there: folders are not pinned, and nest one level deep."""
        if key[0] == "chat":
            return True
        folder = self._thing(key)
        into = self.order.folder(target.folder_id)
        may_nest = isinstance(folder, Folder) and (into is None or self.order.may_hold(into, folder))
        return may_nest and not target.pinned

    def drop(self, key: Key, target: DropTarget) -> None:
        """Move a row to where it was dropped."""
        thing = self._thing(key)
        if isinstance(thing, Folder):
            self.order.move_folder(thing, target.folder_id)
        elif thing is not None and target.pinned:
            self.order.set_pinned(thing, pinned=True)
        elif thing is not None:
            self.order.move(thing, target.folder_id)

    def _thing(self, key: Key) -> Conversation | Folder | None:
        """Return the chat or folder with a key; None for a section, and if it was deleted meanwhile."""
        kind, number = key
        if not isinstance(number, int):
            return None
        return self.order.folder(number) if kind == "folder" else self._chats.find_chat(number)

    def make_folder(self, parent_id: int | None = None, chat: Conversation | None = None) -> None:
        """Create a folder, with a chat in it if one is given, and open the editor of its name."""
        parent = self.order.folder(parent_id)
        if parent is not None and not parent.expanded:
            self.order.set_expanded(parent, expanded=True)
        folder = self.order.create_folder("New folder", parent_id, chat)
        if folder is not None:
            self._rename(("folder", folder.id))

    @property
    def in_trash(self) -> bool:
        """Whether the rows are those of the Trash."""
        return self._chats.location is Location.TRASH and not self._chats.query

    # Menus

    def menu_for(self, row: Row | None) -> QMenu:
        """Return the context menu of a row, or of the empty area below the rows."""
        menu = QMenu(self._parent)
        thing = thing_of(row)
        if self.in_trash and thing is not None:
            add_action(menu, "Restore", lambda: self.restore_row(thing))
            menu.addSeparator()
            add_action(menu, "Delete for Good…", lambda: self.erase(thing))
        elif isinstance(thing, Conversation):
            self._fill_for_chat(menu, thing)
        elif isinstance(thing, Folder):
            self._fill_for_folder(menu, thing)
        elif not self.in_trash:
            add_action(menu, "New Folder", self.make_folder)
            add_action(menu, "New Project…", self.edit_project)
        return menu

    def _fill_for_chat(self, menu: QMenu, chat: Conversation) -> None:
        for name, (text, act) in self.chat_actions(chat).items():
            if name == "delete":
                if self.has_deleted(chat.id):
                    add_action(menu, "Restore Deleted Message", partial(self.restore_deleted, chat.id))
                menu.addSeparator()
            add_action(menu, text.format(""), act)
            if name == "pin":
                self._fill_move_menu(menu.addMenu("Move to Folder"), chat)

    def _fill_for_folder(self, menu: QMenu, folder: Folder) -> None:
        order = self.order
        add_action(menu, "New Chat Here", lambda: self._chats.chat.start_new(folder.id))
        add_action(menu, "Project Settings…", lambda: self.edit_project(folder))
        menu.addSeparator()
        add_action(menu, "Rename", lambda: self._rename(("folder", folder.id)))
        if folder.parent_id is None:
            add_action(menu, "New Folder Inside", lambda: self.make_folder(folder.id))
        move = menu.addMenu("Move to Folder")
        # The entry of the place where it is has the check mark.
        add_action(move, "No Folder", lambda: order.move_folder(folder, None), folder.parent_id is None)
        for each in order.folders:
            if order.may_hold(each, folder):
                add_action(move, each.name, partial(order.move_folder, folder, each.id), folder.parent_id == each.id)
        menu.addSeparator()
        add_action(menu, "Delete Folder", lambda: order.delete_folder(folder))

    def _fill_move_menu(self, menu: QMenu, chat: Conversation) -> None:
        """List the folders that a chat can be moved to."""
        order = self.order
        add_action(menu, "No Folder", lambda: order.move(chat, None), order.folder(chat.folder_id) is None)
        for folder in _in_order(order.folders):
            name = folder.name if folder.parent_id is None else f"    {folder.name}"
            add_action(menu, name, partial(order.move, chat, folder.id), chat.folder_id == folder.id)
        menu.addSeparator()
        add_action(menu, "New Folder…", lambda: self.make_folder(None, chat))


def thing_of(row: Row | None) -> Conversation | Folder | None:
    """Return the chat or the folder of a row; None for a section."""
    if isinstance(row, ChatRow):
        return row.conversation
    return row.folder if isinstance(row, FolderRow) else None


def _in_order(folders: tuple[Folder, ...]) -> list[Folder]:
    """Return each folder followed by the folders in it."""
    top = [folder for folder in folders if folder.parent_id is None]
    return [each for folder in top for each in (folder, *(inner for inner in folders if inner.parent_id == folder.id))]
