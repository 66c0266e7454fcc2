"""What stands around the sidebar's list: the filter, the header, and the buttons of the archive and the bin."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from rdchat.chat.storage.search_reader import SearchAnswer, SearchQuery
from rdchat.services.order.chat_list import ChatList
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.buttons import IconButton, OpenMenu, add_action, push_button
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import show_icon
from rdchat.ui.look.labels import ElidedLabel, Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font

_NAMES = {Place.CHATS: "Chats", Place.ARCHIVE: "Archive", Place.BIN: "Bin"}


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


class PlaceHeader(QWidget):
    """Names what is listed, unless that is the chats, and leads back to them."""

    def __init__(self, theme: Theme, go_back: Callable[[], object]) -> None:
        super().__init__()
        back = IconButton("previous", "Back to the chats", theme)
        back.clicked.connect(go_back)
        self.words = ElidedLabel(theme, "", bold=True)
        row(back, (self.words, 1), within=self, spacing=TIGHT, margins=(SMALL, TIGHT, MEDIUM, TIGHT))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    def show_place(self, place: Place, answer: SearchAnswer | None, searching: bool) -> None:
        """Name the place, or tell how many chats a search found; `answer` is None while the search runs."""
        if searching:
            self.words.setText("Searching…" if answer is None else _found_words(answer))
        else:
            self.words.setText(_NAMES[place])
        self.setVisible(searching or place is not Place.CHATS)


def _found_words(answer: SearchAnswer) -> str:
    if len(answer.hits) < answer.found:
        found = f"{'more than ' if answer.is_part else ''}{answer.found:,}"
        return f"Newest {len(answer.hits):,} of {found} found"
    if answer.is_part:
        return f"More than {counted(answer.found, 'chat')} found"
    return f"{counted(answer.found, 'chat')} found"


class PlaceBar(QWidget):
    """The buttons of the archive and the bin, at the bottom of the sidebar."""

    def __init__(self, theme: Theme, show_place: Callable[[Place], object]) -> None:
        super().__init__()
        self._theme, self._show_place = theme, show_place
        self.archive = self._button(Place.ARCHIVE, "archive", "Archived chats")
        self.bin = self._button(Place.BIN, "bin", "Deleted chats, kept for 30 days")
        buttons = row(self.archive, self.bin, None, spacing=TIGHT, margins=(SMALL, TIGHT, SMALL, TIGHT))
        column(Separator(theme), buttons, within=self, spacing=0)

    def show_counts(self, place: Place, archived: int, deleted: int) -> None:
        """Show how many chats there are in each, and which of them is listed."""
        for button, own, count in ((self.archive, Place.ARCHIVE, archived), (self.bin, Place.BIN, deleted)):
            button.setChecked(place is own)
            button.setText(f"{_NAMES[own]} {count:,}" if count else _NAMES[own])
            button.setAccessibleDescription(counted(count, "item"))

    def _button(self, place: Place, icon: str, tip: str) -> QToolButton:
        button = QToolButton(autoRaise=True)
        button.setCheckable(True)
        button.setText(_NAMES[place])
        button.setFont(control_font(-1))
        button.setAccessibleName(_NAMES[place])
        set_tip(button, tip)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setIconSize(QSize(16, 16))
        show_icon(button, icon, self._theme, size=16)
        button.clicked.connect(lambda on: self._show_place(place if on else Place.CHATS))
        return button


def bin_bar(theme: Theme, actions: Mapping[str, tuple[str, Callable[[], object]]]) -> QWidget:
    """Return the buttons below the list of the bin; `actions` are tooltips and functions by the buttons' texts."""
    bar, buttons = QWidget(), [push_button(text, tip, act) for text, (tip, act) in actions.items()]
    for button in buttons:
        button.setMinimumWidth(0)
        button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
    line = row(*((button, 1) for button in buttons), spacing=TIGHT, margins=SMALL)
    column(Separator(theme), line, within=bar, spacing=0)
    bar.hide()
    return bar
