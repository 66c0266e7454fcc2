"""The left side: search, the conversations in their order, and the ways to the archive and the bin."""

from dataclasses import replace
from itertools import pairwise

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.listing import ChatRow, FolderRow, Key
from rdchat.chat.search_words import WordMatcher
from rdchat.chat.storage.search_reader import SearchQuery
from rdchat.services.chat.chat_list import ChatList
from rdchat.services.order.chat_order import Place, named
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.questions import ask
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.sidebar.filters import FilterButton, FilterLine
from rdchat.ui.sidebar.list_view import SidebarListView
from rdchat.ui.sidebar.places import BinBar, PlaceBar, PlaceHeader
from rdchat.ui.sidebar.row_menus import RowMenus
from rdchat.ui.sidebar.rows import DropTarget

_SEARCH_DELAY_MS = 120  # typing does not query the store for every letter
_EMPTY = {
    Place.CHATS: "Your conversations appear here.",
    Place.ARCHIVE: "The archive is empty.",
    Place.BIN: "The bin is empty. Deleted chats stay here for 30 days.",
}


class Sidebar(Ground):
    """Shows what the desk lists, and marks the conversation that is open."""

    def __init__(self, desk: ChatList, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._desk, self._order = desk, desk.order
        self._refresh_waits = False
        self.list = SidebarListView(theme, self)
        self.menus = RowMenus(desk, self.list.rename, self.ask_to_erase, self)
        self.search = self._build_search()
        self.filter = FilterButton(desk, theme)
        self.filter_line = FilterLine(self.filter, theme)
        self.header = PlaceHeader(theme)
        self.places = PlaceBar(theme)
        self.bin_bar = BinBar(theme)
        self.empty = ThemedLabel(theme, "", "muted", -1)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        row = QHBoxLayout()
        row.setContentsMargins(MEDIUM, MEDIUM, SMALL, TIGHT)
        row.setSpacing(TIGHT)
        row.addWidget(self.search)
        row.addWidget(self.filter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(row)
        for part in (self.filter_line, self.header, self.empty):
            layout.addWidget(part)
        layout.addWidget(self.list, 1)
        layout.addWidget(self.bin_bar)
        layout.addWidget(self.places)
        self.setMinimumWidth(170)
        for before, after in pairwise(
            (self.search, self.filter, self.filter_line, self.header, self.list, self.bin_bar)
        ):
            QWidget.setTabOrder(before, after)
        self._connect()
        self._draw_icons()
        self.refresh()

    def refresh(self) -> None:
        """List the conversations anew; waits while a title is being edited, which a new list would end."""
        self._refresh_waits = self.list.editing
        if self._refresh_waits:
            return
        listing = self._desk.listing
        searching, in_bin = bool(listing.query), listing.place is Place.BIN and not listing.query
        matcher, rows = self.list.painter.matcher, listing.rows
        if matcher.search != (words := " ".join(listing.query.words.split())):
            matcher = WordMatcher(words)
        self.list.show_rows(rows, matcher, in_bin)
        self.mark_open()
        answered = listing.answer is not None and listing.answer.query == listing.query
        self.header.show_place(listing.place, listing.answer if answered else None, searching)
        self.places.show_counts(listing.place, listing.archived, listing.deleted)
        self.bin_bar.setVisible(in_bin and bool(rows))
        self.empty.setText("No conversation has these words." if searching else _EMPTY[listing.place])
        self.empty.setVisible(not rows and (answered or not searching))
        self.filter_line.refresh()

    def mark_open(self) -> None:
        conversation = self._desk.chat.conversation
        self.list.select(conversation.id if conversation else None)

    def focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def show_place(self, place: Place) -> None:
        """List the chats, the archive or the bin, and leave a search for it."""
        self.search.clear()
        self._search_timer.stop()
        self.filter.choose(SearchQuery())
        self._desk.search("")
        self._desk.show(place)

    def rename(self, conversation_id: int) -> None:
        """Have a conversation's title edited, wherever it is listed."""
        if self.list.rows.row_of(conversation_id) is None:
            self._show_everything(conversation_id)
        self.list.rename(("chat", conversation_id))

    def ask_to_erase(self, what: Conversation | Folder | None) -> None:
        """Ask whether to delete for good what is in the bin, all of it for None."""
        chats, folders = self._order.deleted(), self._order.deleted_folders()
        if isinstance(what, Conversation):
            chats, folders = [what], []
        elif isinstance(what, Folder):
            chats, folders = [], [what]
        if isinstance(what, Conversation):
            question = f"Delete {named(what.title)} for good?"
        elif isinstance(what, Folder):
            question = f"Delete the folder {named(what.name)} for good?"
        else:
            question = f"Delete {counted(len(chats) + len(folders), 'item')} for good?"
        words = "This cannot be undone."
        ask(self.window(), question, words, "Delete", lambda: self._order.erase(chats, folders), removes=True)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.search and isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
            if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.list.go_to_first()
                return True
        return super().eventFilter(watched, event)

    def _build_search(self) -> QLineEdit:
        search = QLineEdit()
        search.setPlaceholderText("Search")
        search.setAccessibleName("Search conversations")
        set_tip(search, "Search titles and messages")
        search.setClearButtonEnabled(True)
        search.installEventFilter(self)
        return search

    def _connect(self) -> None:
        self._search_icon = QAction(self.search)
        self.search.addAction(self._search_icon, QLineEdit.ActionPosition.LeadingPosition)
        self._search_timer = QTimer(self, interval=_SEARCH_DELAY_MS, singleShot=True)
        self._search_timer.timeout.connect(self._ask)
        self.search.textChanged.connect(self._search_timer.start)
        self.filter.changed.connect(self._ask)
        self.list.open_requested.connect(self._open)
        self.list.delete_requested.connect(self._delete)
        self.list.restore_requested.connect(self._restore)
        self.list.expand_requested.connect(self._order.set_expanded)
        self.list.menu_requested.connect(self._show_menu)
        self.list.rows.rename_submitted.connect(self._desk.rename_conversation)
        self.list.rows.folder_renamed.connect(self._rename_folder)
        # queued: the view leaves its editing state only after the delegate's signal, and a drop ends after the model's
        queued = Qt.ConnectionType.QueuedConnection
        self.list.edit_ended.connect(self._refresh_after_edit, queued)
        self.list.rows.dropped.connect(self._drop, queued)
        self.header.back_requested.connect(lambda: self.show_place(Place.CHATS))
        self.places.place_requested.connect(self.show_place)
        self.bin_bar.restore_requested.connect(lambda: self._restore(self._current()))
        self.bin_bar.erase_requested.connect(self._erase_current)
        self.bin_bar.empty_requested.connect(lambda: self.ask_to_erase(None))
        self._order.copied.connect(self._desk.chat.open)
        self._desk.conversations_changed.connect(self.refresh)
        self._desk.chat.opened.connect(self.mark_open)
        self._theme.changed.connect(self._draw_icons)

    def _ask(self) -> None:
        self._search_timer.stop()
        self._desk.search(replace(self.filter.chosen, words=self.search.text().strip()))

    def _open(self, conversation_id: int) -> None:
        """Open a conversation; one that is open already, where it is to be looked into for what is searched for."""
        current = self._desk.chat.conversation
        if current is None or current.id != conversation_id or self._desk.listing.query.words:
            self._desk.chat.open(conversation_id)

    def _current(self) -> Conversation | Folder | None:
        row = self.list.current_row
        if isinstance(row, ChatRow):
            return row.conversation
        return row.folder if isinstance(row, FolderRow) else None

    def _delete(self, what: Conversation | Folder) -> None:
        if self.list.rows.in_bin:
            self.ask_to_erase(what)
        elif isinstance(what, Folder):
            self._order.delete_folder(what)
        else:
            self._desk.delete_conversation(what.id)

    def _erase_current(self) -> None:
        if (what := self._current()) is not None:
            self.ask_to_erase(what)

    def _restore(self, what: Conversation | Folder | None) -> None:
        if isinstance(what, Folder):
            self._order.restore_folder(what)
        elif what is not None:
            self._order.restore(what)

    def _rename_folder(self, folder_id: int, name: str) -> None:
        if (folder := self._order.folder(folder_id)) is not None:
            self._order.rename_folder(folder, name)

    def _drop(self, key: Key, target: DropTarget) -> None:
        kind, number = key
        chat = self._desk.find(number) if kind == "chat" and isinstance(number, int) else None
        folder = self._order.folder(number) if kind == "folder" and isinstance(number, int) else None
        if chat is not None and target.kind == "pinned":
            self._order.set_pinned(chat, pinned=True)
        elif chat is not None:
            self._order.move(chat, target.folder_id)
        elif folder is not None:
            self._order.move_folder(folder, target.folder_id)

    def _show_menu(self, row: object, place: QPoint) -> None:
        menu = self.menus.menu_for(row)  # type: ignore[arg-type]
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(place)

    def _show_everything(self, conversation_id: int) -> None:
        """Leave whatever hides a conversation: a search, the archive, a folder that is shut."""
        self.show_place(Place.CHATS)
        chat = self._desk.find(conversation_id)
        if chat is None:
            return
        if chat.archived:
            self.show_place(Place.ARCHIVE)
        folder = self._order.folder(chat.folder_id)
        while folder is not None:
            if not folder.expanded:
                self._order.set_expanded(folder, expanded=True)
            folder = self._order.folder(folder.parent_id)

    def _refresh_after_edit(self) -> None:
        if self._refresh_waits:
            self.refresh()

    def _draw_icons(self) -> None:
        self._search_icon.setIcon(line_icon("search", self._theme.colors.muted, 16))
        self.filter.restyle()
