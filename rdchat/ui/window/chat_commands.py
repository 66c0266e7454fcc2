"""The menus' commands on the open conversation and on the list it stands in."""

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu, QPlainTextEdit, QTextEdit

from rdchat.chat.conversation import Conversation
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.order.chat_order import Place
from rdchat.ui.conversation.conversation_view import ConversationView
from rdchat.ui.look.open_menu import refill
from rdchat.ui.sidebar import Sidebar
from rdchat.ui.window.menus import WindowActions


class ChatCommands(QObject):
    """Connects the actions, and keeps them enabled and named as suits the open conversation.

    Args:
        controller: The conversations.
        actions: The window's.
        sidebar: Where titles are edited and conversations searched.
        conversation: Where the open one is read and searched.
        show_sidebar: Shows the sidebar, if it is hidden.
    """

    def __init__(
        self,
        controller: ChatController,
        actions: WindowActions,
        sidebar: Sidebar,
        conversation: ConversationView,
        show_sidebar: Callable[[], object],
    ) -> None:
        super().__init__(actions)
        self._desk, self._actions = controller.chats, actions
        self._sidebar, self._conversation, self._show_sidebar = sidebar, conversation, show_sidebar
        self._move_menu = QMenu(sidebar)
        self._move_menu.aboutToShow.connect(self._fill_move_menu)
        actions.move.setMenu(self._move_menu)
        self._connect()
        self._desk.conversations_changed.connect(self._refresh)
        self._desk.chat.opened.connect(self._refresh)
        self._refresh()

    def _connect(self) -> None:
        actions, desk, order = self._actions, self._desk, self._desk.order
        for action, command in (
            (actions.rename, self._rename),
            (actions.pin, lambda chat: order.set_pinned(chat, chat.pinned_at is None)),
            (actions.duplicate, order.duplicate),
            (actions.archive, self._archive),
            (actions.delete, lambda chat: desk.delete_conversation(chat.id)),
        ):
            action.triggered.connect(lambda _checked=False, command=command: self._with_chat(command))
        bar = self._conversation.find_bar
        actions.new_chat.triggered.connect(self._leave_places)
        actions.undo.triggered.connect(self._undo)
        actions.find.triggered.connect(self._find)
        actions.find_next.triggered.connect(lambda: bar.step(1))
        actions.find_previous.triggered.connect(lambda: bar.step(-1))
        actions.search.triggered.connect(self._search)
        actions.new_folder.triggered.connect(self._new_folder)
        actions.show_archive.triggered.connect(lambda on: self._show(Place.ARCHIVE if on else Place.CHATS))
        actions.show_bin.triggered.connect(lambda on: self._show(Place.BIN if on else Place.CHATS))

    def _with_chat(self, command: Callable[[Conversation], object]) -> None:
        if (chat := self._desk.chat.conversation) is not None:
            command(chat)

    def _refresh(self) -> None:
        actions, chat, place = self._actions, self._desk.chat.conversation, self._desk.listing.place
        for action in (actions.rename, actions.pin, actions.move, actions.duplicate, actions.archive, actions.delete):
            action.setEnabled(chat is not None)
        actions.pin.setText("Unpin chat" if chat is not None and chat.pinned_at is not None else "Pin chat")
        actions.archive.setText("Move chat out of archive" if chat is not None and chat.archived else "Archive chat")
        actions.show_archive.setChecked(place is Place.ARCHIVE)
        actions.show_bin.setChecked(place is Place.BIN)

    def _rename(self, chat: Conversation) -> None:
        self._show_sidebar()
        self._sidebar.rename(chat.id)

    def _archive(self, chat: Conversation) -> None:
        if chat.archived:
            self._desk.order.set_archived(chat, archived=False)
        else:
            self._desk.archive_conversation(chat.id)

    def _undo(self) -> None:
        """Take back what was done last to chats and messages; in a text field the key undoes typing instead."""
        focused = QApplication.focusWidget()
        if isinstance(focused, QLineEdit | QPlainTextEdit | QTextEdit) and not focused.isReadOnly():
            focused.undo()
            return
        self._conversation.banners.close_banner("undo")
        self._desk.undo()

    def _find(self) -> None:
        """Search the open chat; where there is none, all of them."""
        if self._desk.chat.conversation is None:
            self._search()
        else:
            self._conversation.find_bar.open()

    def _search(self) -> None:
        self._show_sidebar()
        self._sidebar.focus_search()

    def _new_folder(self) -> None:
        self._show_sidebar()
        self._show(Place.CHATS)
        self._sidebar.menus.make_folder()

    def _show(self, place: Place) -> None:
        self._show_sidebar()
        self._sidebar.show_place(place)

    def _leave_places(self) -> None:
        if self._desk.listing.place is not Place.CHATS:
            self._sidebar.show_place(Place.CHATS)

    def _fill_move_menu(self) -> None:
        refill(
            self._move_menu,
            lambda: self._with_chat(lambda chat: self._sidebar.menus.fill_move_menu(self._move_menu, chat)),
        )
