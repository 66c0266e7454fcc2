"""The sidebar: search, the list of chats, and the buttons of the archive and the Trash.

The list shows one location (the chats, the archive or the Trash) or, while something is searched, what was found.
"""

from dataclasses import replace

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from rdchat.chat.listing import Key
from rdchat.chat.storage import SearchAnswer, SearchQuery, WordMatcher
from rdchat.services.chat_list.chat_list import ChatList
from rdchat.services.chat_list.chat_order import Location
from rdchat.ui.sidebar.list_view import SidebarListView
from rdchat.ui.sidebar.row_actions import RowActions, thing_of
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    FlatButton,
    Ground,
    IconButton,
    OpenMenu,
    Part,
    SearchField,
    Separator,
    Theme,
    add_action,
    column,
    control_font,
    push_button,
    row,
    set_tip,
    show_icon,
    small_text,
)
from rdchat.wording import counted

_EMPTY = {
    Location.CHATS: "Your chats appear here.",
    Location.ARCHIVE: "The archive is empty.",
    Location.TRASH: "The Trash is empty. Deleted chats stay here for 30 days.",
}


class FilterButton(IconButton):
    """Opens a menu of models and folders, by which the list is filtered.

    Attributes:
        chosen: The chosen model and folder, as a query without text.
        changed: Emitted when another one is chosen.
    """

    changed = Signal()

    def __init__(self, chats: ChatList, theme: Theme) -> None:
        super().__init__("filter", "Filter by model or folder", theme)
        self._chats = chats
        self.chosen = SearchQuery()
        self._menu = OpenMenu(self._fill, self)
        self._menu.aboutToShow.connect(chats.finder.look_for_models)
        self.setMenu(self._menu)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        chats.finder.models_listed.connect(self._menu.remake_entries)

    def choose(self, query: SearchQuery) -> None:
        """Change the filter."""
        if query != self.chosen:
            self.chosen = query
            self.changed.emit()

    @property
    def filter_text(self) -> str:
        """The filter, such as `Work, tiny`; empty if there is none."""
        folder = self._chats.order.folder(self.chosen.folder_id)
        return ", ".join(part for part in (folder.name if folder else "", self.chosen.model or "") if part)

    def _fill(self) -> None:
        menu = self._menu
        chosen = self.chosen
        menu.addSection("Model")
        for model in (None, *self._chats.finder.models):
            self._add(model or "Any Model", replace(chosen, model=model))
        menu.addSection("Folder")
        self._add("Any Folder", replace(chosen, folder_id=None))
        for folder in self._chats.order.folders:
            self._add(folder.name, replace(chosen, folder_id=folder.id))

    def _add(self, text: str, query: SearchQuery) -> None:
        add_action(self._menu, text, lambda: self.choose(query), query == self.chosen)


def line(*parts: Part, margins: tuple[int, int, int, int]) -> QWidget:
    """Return a widget with parts side by side that is as high as they are, and hidden at first."""
    widget = QWidget()
    row(*parts, within=widget, spacing=TIGHT, margins=margins)
    widget.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
    widget.hide()
    return widget


def location_button(location: Location, tip: str, theme: Theme) -> QToolButton:
    """Return the button that lists the archive or the Trash; its icon has the location's name."""
    button = FlatButton()
    button.setCheckable(True)
    button.setFont(control_font(-1))
    button.setAccessibleName(location.capitalize())
    set_tip(button, tip)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIconSize(QSize(16, 16))
    show_icon(button, location, theme, size=16)
    return button


def result_text(answer: SearchAnswer | None) -> str:
    """Return how many chats a search found, such as `3 chats found` or `Newest 200 of more than 1,000 found`.

    Args:
        answer: The answer to what is searched now; None while the search runs.
    """
    if answer is None:
        return "Searching…"
    if len(answer.hits) < answer.total:
        total = f"{'more than ' if answer.is_part else ''}{answer.total:,}"
        return f"Newest {len(answer.hits):,} of {total} found"
    if not answer.total:
        return "No chats found"
    return f"{'More than ' if answer.is_part else ''}{counted(answer.total, 'chat')} found"


class Sidebar(Ground):
    """Shows the list of chats, and marks the chat that is open.

    Attributes:
        row_actions: The actions on a row.
    """

    def __init__(self, chats: ChatList, theme: Theme) -> None:
        super().__init__(theme, "window")
        self._chats = chats
        # Whether `show_list` was called while a title was edited, so that `_finish_edit` calls it again.
        self._refresh_waits = False
        # The open chat at the last `mark_open`, if it was in the list: only a chat that is new there is scrolled to.
        self._open: int | None = None
        self.row_actions = RowActions(chats, self.rename, self)
        self.list = SidebarListView(theme, self.row_actions)
        self.search = SearchField(theme, "Search", "Search chats")
        set_tip(self.search, "Search titles and messages")
        self.filter = FilterButton(chats, theme)
        self.filter_text = ElidedLabel(theme, "", "accent", -1)
        clear = IconButton("close", "Clear the filter", theme, None, lambda: self.filter.choose(SearchQuery()))
        self.filter_line = line((self.filter_text, 1), clear, margins=(MEDIUM + TIGHT, 0, MEDIUM, 0))
        back = IconButton("previous", "Back to chats", theme, None, lambda: self.show_location(Location.CHATS))
        self.header_text = ElidedLabel(theme, "", bold=True)
        self.header = line(back, (self.header_text, 1), margins=(SMALL, TIGHT, MEDIUM, TIGHT))
        self.location_buttons = {
            Location.ARCHIVE: location_button(Location.ARCHIVE, "Archived chats", theme),
            Location.TRASH: location_button(Location.TRASH, "Deleted chats, kept for 30 days", theme),
        }
        self.restore = push_button(
            "Restore",
            "Move the selected chat or folder out of the Trash",
            lambda: self.row_actions.restore_row(thing_of(self.list.current_row)),
        )
        self.trash_bar = line(
            (self.restore, 1),
            (push_button("Empty…", "Delete everything in the Trash for good", self.row_actions.erase), 1),
            margins=(SMALL, SMALL, SMALL, SMALL),
        )
        self.empty = small_text(theme)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.empty.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        top = row(self.search, self.filter, spacing=TIGHT, margins=(MEDIUM, MEDIUM, SMALL, TIGHT))
        locations = row(*self.location_buttons.values(), None, spacing=TIGHT, margins=(SMALL, TIGHT, SMALL, TIGHT))
        # Tab goes through the parts in this order.
        column(
            top,
            self.filter_line,
            self.header,
            self.empty,
            (self.list, 1),
            self.trash_bar,
            Separator(theme),
            locations,
            within=self,
            spacing=0,
        )
        self.setMinimumWidth(190)
        self._connect()
        self.show_list()

    def show_list(self) -> None:
        """Show the list again; waits while a title is edited, since a new list would end the edit."""
        self._refresh_waits = self.list.editing
        if self._refresh_waits:
            return
        chats = self._chats
        in_trash = self.row_actions.in_trash
        searching = bool(chats.query)
        rows = chats.rows
        # The same words keep their matcher: a new one compiles patterns.
        matcher = self.list.painter.matcher
        search = " ".join(chats.query.text.split())
        if matcher.search != search:
            matcher = WordMatcher(search)
        self.list.show_rows(rows, matcher, in_trash=in_trash)
        self.mark_open()
        # The last answer may be that to an earlier search.
        answered = chats.answer is not None and chats.answer.query == chats.query
        result = result_text(chats.answer if answered else None)
        self.header_text.setText(result if searching else chats.location.capitalize())
        self.header.setVisible(searching or chats.location is not Location.CHATS)
        for location, count in ((Location.ARCHIVE, chats.archived), (Location.TRASH, chats.deleted)):
            button = self.location_buttons[location]
            name = location.capitalize()
            button.setChecked(chats.location is location)
            button.setText(f"{name} {count:,}" if count else name)
            button.setAccessibleDescription(counted(count, "item"))
        self.trash_bar.setVisible(in_trash and bool(rows))
        self._enable_restore()
        self.empty.setText(_EMPTY[chats.location])
        self.empty.setVisible(not rows and not searching)
        self.filter_text.setText(f"Only {self.filter.filter_text}")
        self.filter_line.setVisible(bool(self.filter.chosen))

    def mark_open(self) -> None:
        """Select the chat that is open, and scroll to it when it comes into the list."""
        conversation = self._chats.chat.stored_conversation
        self.list.select(conversation.id if conversation else None)
        current = self.list.currentIndex()
        listed = conversation.id if conversation and current.isValid() else None
        if listed != self._open:
            self._open = listed
            self.list.scrollTo(current)

    def _enable_restore(self) -> None:
        self.restore.setEnabled(self.list.current_row is not None)

    def focus_search(self) -> None:
        """Give the search field the keyboard."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def show_location(self, location: Location) -> None:
        """List the chats, the archive or the Trash, and end a search."""
        # Clearing the field starts the timer of a search.
        self.search.clear()
        self.search.typing.stop()
        self.filter.choose(SearchQuery())
        self._chats.list_hits("")
        self._chats.show_location(location)

    def leave_search(self) -> None:
        """List the chats if a search is listed, which may lack the chat that is written in."""
        if self._chats.query:
            self.show_location(Location.CHATS)

    def rename(self, key: Key) -> None:
        """Open the editor of a title; list the chat first if it is not listed.

        Args:
            key: The kind and the id of the row, such as `("chat", 12)`.
        """
        if key[0] == "chat" and self.list.rows.index_of(key) is None and isinstance(key[1], int):
            self._list_chat(key[1])
        self.list.rename(key)

    def _connect(self) -> None:
        self.search.typing.timeout.connect(self._ask)
        self.search.returnPressed.connect(self.list.go_to_first)
        self.search.results_requested.connect(self.list.go_to_first)
        self.filter.changed.connect(self._ask)
        self.list.selectionModel().currentChanged.connect(self._enable_restore)
        for location, button in self.location_buttons.items():
            button.clicked.connect(lambda on, location=location: self.show_location(location if on else Location.CHATS))
        # Later: the view leaves its editing state after this signal.
        self.list.painter.closeEditor.connect(lambda *_: QTimer.singleShot(0, self, self._finish_edit))
        self._chats.order.copied.connect(self._chats.chat.open_chat)
        self._chats.conversations_changed.connect(self.show_list)
        self._chats.chat.opened.connect(self.mark_open)
        # `mark_open` scrolls only to a chat that is new in the list; one that was opened comes into view in any case.
        self._chats.chat.opened.connect(lambda: self.list.scrollTo(self.list.currentIndex()))
        self._chats.activity_changed.connect(self.list.viewport().update)

    def _finish_edit(self) -> None:
        if self._refresh_waits:
            self.show_list()

    def _ask(self) -> None:
        self.search.typing.stop()
        self._chats.list_hits(replace(self.filter.chosen, text=self.search.text().strip()))

    def _list_chat(self, conversation_id: int) -> None:
        """Leave a search, a location or a collapsed folder that hides a chat."""
        self.show_location(Location.CHATS)
        chat = self._chats.find_chat(conversation_id)
        order = self._chats.order
        if chat is None:
            return
        if chat.archived:
            self.show_location(Location.ARCHIVE)
        folder = order.folder(chat.folder_id)
        while folder is not None:
            if not folder.expanded:
                order.set_expanded(folder, expanded=True)
            folder = order.folder(folder.parent_id)
