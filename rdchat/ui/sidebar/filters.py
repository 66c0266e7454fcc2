"""Which conversations a search looks at: those of a model, those in a folder."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QToolButton, QWidget

from rdchat.chat.storage.search_reader import SearchQuery
from rdchat.services.chat.chat_list import ChatList
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.labels import ElidedLabel
from rdchat.ui.look.open_menu import refill
from rdchat.ui.look.plain_text import button_text
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme


class FilterButton(IconButton):
    """Opens a menu of models and folders.

    Attributes:
        chosen: The model and the folder that are looked at; without words.
    """

    changed = Signal()

    def __init__(self, desk: ChatList, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("filter", "Filter by model or folder", theme, parent)
        self._desk = desk
        self.chosen = SearchQuery()
        self._menu = QMenu(self)
        self._menu.aboutToShow.connect(self._open)
        self.setMenu(self._menu)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        desk.finder.models_found.connect(self._fill_open)

    def choose(self, query: SearchQuery) -> None:
        """Look at these from now on."""
        if query != self.chosen:
            self.chosen = query
            self.changed.emit()

    @property
    def words(self) -> str:
        """What is looked at, such as `Work, tiny`; empty where everything is."""
        folder = self._desk.order.folder(self.chosen.folder_id)
        return ", ".join(part for part in (folder.name if folder else "", self.chosen.model or "") if part)

    def _open(self) -> None:
        self._desk.finder.look_for_models()
        refill(self._menu, self._fill)

    def _fill_open(self) -> None:
        if self._menu.isVisible():
            refill(self._menu, self._fill)

    def _fill(self) -> None:
        menu, chosen = self._menu, self.chosen
        menu.addSection("Model")
        for model in (None, *self._desk.finder.models):
            self._add(model or "Any model", replace(chosen, model=model))
        menu.addSection("Folder")
        self._add("Any folder", replace(chosen, folder_id=None))
        for folder in self._desk.order.folders:
            self._add(folder.name, replace(chosen, folder_id=folder.id))
        if not self._desk.order.folders:
            menu.actions()[-1].setText("There are no folders yet")
            menu.actions()[-1].setEnabled(False)

    def _add(self, words: str, query: SearchQuery) -> None:
        action = QAction(button_text(words), self._menu, checkable=True, checked=query == self.chosen)
        action.triggered.connect(lambda: self.choose(query))
        self._menu.addAction(action)


class FilterLine(QWidget):
    """Says which filter holds, and takes it away."""

    def __init__(self, button: FilterButton, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._button = button
        self._words = ElidedLabel(theme, "", "accent", -1)
        self._clear = IconButton("close", "Take the filter away", theme)
        self._clear.clicked.connect(lambda: button.choose(SearchQuery()))
        row = QHBoxLayout(self)
        row.setContentsMargins(MEDIUM + TIGHT, 0, MEDIUM, 0)
        row.addWidget(self._words, 1)
        row.addWidget(self._clear)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        button.changed.connect(self.refresh)
        theme.changed.connect(self._clear.restyle)
        self.refresh()

    def refresh(self) -> None:
        """Show the filter, if there is one."""
        words = self._button.words
        self._words.setText(f"Only {words}")
        self.setVisible(bool(self._button.chosen))
