"""The parts around the sidebar's list: the filter, lines of text with buttons, and the buttons of the places."""

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QPushButton, QSizePolicy, QToolButton, QWidget

from rdchat.chat.storage.search import SearchAnswer, SearchQuery
from rdchat.services.order.chat_list import ChatList
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.buttons import FlatButton, IconButton, OpenMenu, add_action, push_button
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import show_icon
from rdchat.ui.look.layouts import Part, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme, control_font


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
            self._add(model or "Any Model", replace(chosen, model=model))
        menu.addSection("Folder")
        self._add("Any Folder", replace(chosen, folder_id=None))
        for folder in self._desk.order.folders:
            self._add(folder.name, replace(chosen, folder_id=folder.id))
        if not self._desk.order.folders:
            menu.actions()[-1].setText("No folders yet")
            menu.actions()[-1].setEnabled(False)

    def _add(self, words: str, query: SearchQuery) -> None:
        add_action(self._menu, words, lambda: self.choose(query), query == self.chosen)


def line(*parts: Part, margins: tuple[int, int, int, int]) -> QWidget:
    """Return a line of widgets as high as they are, hidden at first."""
    widget = QWidget()
    row(*parts, within=widget, spacing=TIGHT, margins=margins)
    widget.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
    widget.hide()
    return widget


def place_button(place: Place, icon: str, tip: str, theme: Theme) -> QToolButton:
    """Return the button that lists the archive or the bin."""
    button = FlatButton()
    button.setCheckable(True)
    button.setFont(control_font(-1))
    button.setAccessibleName(place_name(place))
    set_tip(button, tip)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIconSize(QSize(16, 16))
    show_icon(button, icon, theme, size=16)
    return button


def bin_button(text: str, tip: str, act: Callable[[], object]) -> QPushButton:
    """Return a button of the bin; the buttons share the width."""
    button = push_button(text, tip, act)
    button.setMinimumWidth(0)
    button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
    return button


def place_name(place: Place) -> str:
    return place.name.capitalize()


def found_words(answer: SearchAnswer | None) -> str:
    """Return how many chats a search found; None while it runs."""
    if answer is None:
        return "Searching…"
    if len(answer.hits) < answer.found:
        found = f"{'more than ' if answer.is_part else ''}{answer.found:,}"
        return f"Newest {len(answer.hits):,} of {found} found"
    return f"{'More than ' if answer.is_part else ''}{counted(answer.found, 'chat')} found"
