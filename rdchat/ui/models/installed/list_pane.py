"""The left side of the page: a search field, what comes first, and the list."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QComboBox, QLineEdit, QWidget

from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.installed.model_rows import ModelListView, SortBy


class ListPane(Ground):
    """Attributes are the parts."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._theme = theme
        self.list = ModelListView(theme, self)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search")
        self.search.setAccessibleName("Search models")
        set_tip(self.search, "Search names, families and places")
        self.search.setClearButtonEnabled(True)
        self.search.installEventFilter(self)
        self._search_icon = QAction(self.search)
        self.search.addAction(self._search_icon, QLineEdit.ActionPosition.LeadingPosition)
        self.sort = QComboBox()
        self.sort.setAccessibleName("Sort by")
        set_tip(self.sort, "What comes first")
        for by in SortBy:
            self.sort.addItem(by.value, by)
        self.words = ThemedLabel(theme, "", "muted", -1)
        self.words.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.words.setWordWrap(True)
        self.words.setContentsMargins(LARGE, SMALL, LARGE, SMALL)
        row_layout = row((self.search, 1), self.sort, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        column(row_layout, (self.list, 1), self.words, within=self, spacing=0, margins=(0, 0, 0, TIGHT))
        self.search.textChanged.connect(self.list.rows.search)
        self.sort.activated.connect(lambda: self.list.rows.sort_by(self.sort.currentData()))
        theme.changed.connect(self._draw_icons)
        self._draw_icons()

    def say(self, words: str) -> None:
        """Say below the list what is to be said of it."""
        self.words.say(words)

    def focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.search and isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
            if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.list.setFocus()
                if self.list.current is None:
                    self.list.select(None)
                return True
        return super().eventFilter(watched, event)

    def _draw_icons(self) -> None:
        self._search_icon.setIcon(line_icon("search", self._theme.colors.muted, 16))
