"""The sidebar: search, the list of chats, and the buttons of the archive and the bin."""

from dataclasses import replace
from itertools import pairwise

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from rdchat.chat.listing import Key
from rdchat.chat.search_words import WordMatcher
from rdchat.chat.storage.search_reader import SearchQuery
from rdchat.services.order.chat_list import ChatList
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.icons import show_icon
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.sidebar.bars import FilterButton, FilterLine, PlaceBar, PlaceHeader, bin_bar
from rdchat.ui.sidebar.list_view import SidebarListView
from rdchat.ui.sidebar.row_actions import RowActions, thing_of

_SEARCH_DELAY_MS = 120  # search after a pause in typing, not after each letter
_EMPTY = {
    Place.CHATS: "Your conversations appear here.",
    Place.ARCHIVE: "The archive is empty.",
    Place.BIN: "The bin is empty. Deleted chats stay here for 30 days.",
}


class Sidebar(Ground):
    """Shows the desk's list, and marks the chat that is open.

    Attributes:
        row_actions: What can be done to a row.
    """

    def __init__(self, desk: ChatList, theme: Theme) -> None:
        super().__init__(theme, "window")
        self._desk = desk
        self._refresh_waits = False
        self.row_actions = RowActions(desk, self.rename, self)
        self.list = SidebarListView(theme, self.row_actions, self)
        self.search = self._build_search()
        self.filter = FilterButton(desk, theme)
        self.filter_line = FilterLine(self.filter, theme)
        self.header = PlaceHeader(theme, lambda: self.show_place(Place.CHATS))
        self.places = PlaceBar(theme, self.show_place)
        in_bin = {
            "Restore": ("Take the chosen chat out of the bin", self._restore_current),
            "Delete…": ("Delete the chosen chat for good", self._erase_current),
            "Empty…": ("Delete everything in the bin for good", self.row_actions.erase),
        }
        self.bin_bar = bin_bar(theme, in_bin)
        self.empty = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.empty.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        top = row(self.search, self.filter, spacing=TIGHT, margins=(MEDIUM, MEDIUM, SMALL, TIGHT))
        listed = (self.filter_line, self.header, self.empty, (self.list, 1), self.bin_bar, self.places)
        column(top, *listed, within=self, spacing=0)
        self.setMinimumWidth(170)
        tab_order = (self.search, self.filter, self.filter_line, self.header, self.list, self.bin_bar)
        for before, after in pairwise(tab_order):
            QWidget.setTabOrder(before, after)
        self._connect()
        self.refresh()

    def refresh(self) -> None:
        """Show the desk's list again; waits while a title is edited, since a new list would end the edit."""
        self._refresh_waits = self.list.editing
        if self._refresh_waits:
            return
        chats, in_bin = self._desk, self.row_actions.in_bin
        searching, rows = bool(chats.query), chats.rows
        matcher = self.list.painter.matcher
        if matcher.search != (words := " ".join(chats.query.words.split())):
            matcher = WordMatcher(words)
        self.list.show_rows(rows, matcher, in_bin)
        self.mark_open()
        answered = chats.answer is not None and chats.answer.query == chats.query
        self.header.show_place(chats.place, chats.answer if answered else None, searching)
        self.places.show_counts(chats.place, chats.archived, chats.deleted)
        self.bin_bar.setVisible(in_bin and bool(rows))
        self.empty.setText("No conversation has these words." if searching else _EMPTY[chats.place])
        self.empty.setVisible(not rows and (answered or not searching))
        self.filter_line.refresh()

    def mark_open(self) -> None:
        """Select the chat that is open."""
        conversation = self._desk.chat.conversation
        self.list.select(conversation.id if conversation else None)

    def focus_search(self) -> None:
        """Give the search field the keyboard."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def show_place(self, place: Place) -> None:
        """List the chats, the archive or the bin, and end a search."""
        self.search.clear()
        self._search_timer.stop()
        self.filter.choose(SearchQuery())
        self._desk.search("")
        self._desk.show(place)

    def rename(self, key: Key) -> None:
        """Open the editor of a title; list the chat first if it is not listed."""
        if key[0] == "chat" and self.list.rows.place_of(key) is None and isinstance(key[1], int):
            self._list_chat(key[1])
        self.list.rename(key)

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
        icon = QAction(search)
        show_icon(icon, "search", self._theme, size=16)
        search.addAction(icon, QLineEdit.ActionPosition.LeadingPosition)
        self._search_timer = QTimer(self, interval=_SEARCH_DELAY_MS, singleShot=True)
        self._search_timer.timeout.connect(self._ask)
        search.textChanged.connect(self._search_timer.start)
        return search

    def _connect(self) -> None:
        self.search.installEventFilter(self)
        self.filter.changed.connect(self._ask)
        # later: the view leaves its editing state after this signal
        self.list.painter.closeEditor.connect(lambda *_: QTimer.singleShot(0, self, self._refresh_after_edit))
        self._desk.order.copied.connect(self._desk.chat.open)
        self._desk.conversations_changed.connect(self.refresh)
        self._desk.chat.opened.connect(self.mark_open)

    def _ask(self) -> None:
        self._search_timer.stop()
        self._desk.search(replace(self.filter.chosen, words=self.search.text().strip()))

    def _restore_current(self) -> None:
        self.row_actions.restore(thing_of(self.list.current_row))

    def _erase_current(self) -> None:
        if (thing := thing_of(self.list.current_row)) is not None:
            self.row_actions.erase(thing)

    def _list_chat(self, conversation_id: int) -> None:
        """Leave whatever hides a chat: a search, the archive, a collapsed folder."""
        self.show_place(Place.CHATS)
        chat, order = self._desk.find(conversation_id), self._desk.order
        if chat is None:
            return
        if chat.archived:
            self.show_place(Place.ARCHIVE)
        folder = order.folder(chat.folder_id)
        while folder is not None:
            if not folder.expanded:
                order.set_expanded(folder, expanded=True)
            folder = order.folder(folder.parent_id)

    def _refresh_after_edit(self) -> None:
        if self._refresh_waits:
            self.refresh()
