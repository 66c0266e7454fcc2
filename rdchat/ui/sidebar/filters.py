"""The filter of a search: one model, one folder."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from rdchat.chat.storage.search_reader import SearchQuery
from rdchat.services.order.chat_list import ChatList
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.labels import ElidedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.open_menu import OpenMenu, add_action
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme


class FilterButton(IconButton):
    """Opens a menu of models and folders.

    Attributes:
        chosen: The chosen model and folder; a query without words.
    """

    changed = Signal()

    def __init__(self, desk: ChatList, theme: Theme) -> None:
        super().__init__("filter", "Filter by model or folder", theme)
        self._desk = desk
        self.chosen = SearchQuery()
        self._menu = OpenMenu(self._fill, self)
        self._menu.aboutToShow.connect(desk.finder.look_for_models)
        self.setMenu(self._menu)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        desk.finder.models_found.connect(self._menu.refresh)

    def choose(self, query: SearchQuery) -> None:
        """Change the filter."""
        if query != self.chosen:
            self.chosen = query
            self.changed.emit()

    @property
    def words(self) -> str:
        """The filter, such as `Work, tiny`; empty if there is none."""
        folder = self._desk.order.folder(self.chosen.folder_id)
        return ", ".join(part for part in (folder.name if folder else "", self.chosen.model or "") if part)

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
        add_action(self._menu, words, lambda: self.choose(query), query == self.chosen)


class FilterLine(QWidget):
    """Shows the filter and clears it."""

    def __init__(self, button: FilterButton, theme: Theme) -> None:
        super().__init__()
        self._button = button
        self._words = ElidedLabel(theme, "", "accent", -1)
        clear = IconButton("close", "Take the filter away", theme)
        clear.clicked.connect(lambda: button.choose(SearchQuery()))
        row((self._words, 1), clear, within=self, spacing=-1, margins=(MEDIUM + TIGHT, 0, MEDIUM, 0))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        button.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the filter, if there is one."""
        self._words.setText(f"Only {self._button.words}")
        self.setVisible(bool(self._button.chosen))
