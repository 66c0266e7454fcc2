"""The left side: search, and the conversations, newest first."""

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from rdchat.services.chat.conversation_desk import ConversationDesk
from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme
from rdchat.ui.window.conversation_list_view import ConversationListView

_SEARCH_DELAY_MS = 120  # typing does not query the store for every letter


class Sidebar(Ground):
    """Shows what the desk lists, and marks the conversation that is open."""

    def __init__(self, desk: ConversationDesk, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._desk = desk
        self._refresh_waits = False
        self.list = ConversationListView(theme, self)
        self.search = self._build_search()
        self._empty = ThemedLabel(theme, "", "muted", -1)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._empty.setWordWrap(True)
        self._empty.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        row = QHBoxLayout()
        row.setContentsMargins(MEDIUM, MEDIUM, MEDIUM, SMALL)
        row.addWidget(self.search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, SMALL)
        layout.setSpacing(0)
        layout.addLayout(row)
        layout.addWidget(self._empty)
        layout.addWidget(self.list, 1)
        self.setMinimumWidth(170)
        self._connect()
        self._draw_icons()
        self.refresh()

    def refresh(self) -> None:
        """List the conversations anew; waits while a title is being edited, which a new list would end."""
        self._refresh_waits = self.list.editing
        if self._refresh_waits:
            return
        conversations = self._desk.conversations()
        self.list.rows.set_conversations(conversations)
        self.mark_open()
        searching = bool(self.search.text().strip())
        self._empty.setText("No conversation has these words." if searching else "Your conversations appear here.")
        self._empty.setVisible(not conversations)

    def mark_open(self) -> None:
        conversation = self._desk.conversation
        self.list.select(conversation.id if conversation else None)

    def focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.search and isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
            if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._go_to_list()
                return True
        return super().eventFilter(watched, event)

    def _build_search(self) -> QLineEdit:
        search = QLineEdit()
        search.setPlaceholderText("Search")
        search.setAccessibleName("Search conversations")
        search.setToolTip("Search titles and messages")
        search.setClearButtonEnabled(True)
        search.installEventFilter(self)
        return search

    def _connect(self) -> None:
        self._search_icon = QAction(self.search)
        self.search.addAction(self._search_icon, QLineEdit.ActionPosition.LeadingPosition)
        self._search_timer = QTimer(self, interval=_SEARCH_DELAY_MS, singleShot=True)
        self._search_timer.timeout.connect(lambda: self._desk.search(self.search.text().strip()))
        self.search.textChanged.connect(self._search_timer.start)
        self.list.open_requested.connect(self._open)
        self.list.delete_requested.connect(self._desk.delete_conversation)
        self.list.rows.rename_submitted.connect(self._desk.rename_conversation)
        # queued: the view leaves its editing state only after the delegate's signal
        self.list.edit_ended.connect(self._refresh_after_edit, Qt.ConnectionType.QueuedConnection)
        self._desk.conversations_changed.connect(self.refresh)
        self._desk.conversation_opened.connect(self.mark_open)
        self._theme.changed.connect(self._draw_icons)

    def _open(self, conversation_id: int) -> None:
        current = self._desk.conversation
        if current is None or current.id != conversation_id:
            self._desk.open_conversation(conversation_id)

    def _go_to_list(self) -> None:
        self.list.setFocus()
        if self.list.current_id is None and self.list.rows.rowCount():
            self.list.setCurrentIndex(self.list.rows.index(0))

    def _refresh_after_edit(self) -> None:
        if self._refresh_waits:
            self.refresh()

    def _draw_icons(self) -> None:
        self._search_icon.setIcon(line_icon("search", self._theme.colors.muted, 16))
