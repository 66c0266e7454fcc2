"""The archive and the bin: their buttons, the header above the list, and what can be done in the bin."""

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton, QSizePolicy, QToolButton, QWidget

from rdchat.chat.storage.search_reader import SearchAnswer
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import ElidedLabel, Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font

_NAMES = {Place.CHATS: "Chats", Place.ARCHIVE: "Archive", Place.BIN: "Bin"}


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
        self.archive = self._button(Place.ARCHIVE, "Archived chats")
        self.bin = self._button(Place.BIN, "Deleted chats, kept for 30 days")
        buttons = row(self.archive, self.bin, None, spacing=TIGHT, margins=(SMALL, TIGHT, SMALL, TIGHT))
        column(Separator(theme), buttons, within=self, spacing=0)
        theme.changed.connect(self._draw)
        self._draw()

    def show_counts(self, place: Place, archived: int, deleted: int) -> None:
        """Show how many chats there are in each, and which of them is listed."""
        for button, own, count in ((self.archive, Place.ARCHIVE, archived), (self.bin, Place.BIN, deleted)):
            button.setChecked(place is own)
            button.setText(f"{_NAMES[own]} {count:,}" if count else _NAMES[own])
            button.setAccessibleDescription(counted(count, "item"))

    def _button(self, place: Place, tip: str) -> QToolButton:
        button = QToolButton(autoRaise=True)
        button.setCheckable(True)
        button.setText(_NAMES[place])
        button.setFont(control_font(-1))
        button.setAccessibleName(_NAMES[place])
        set_tip(button, tip)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setIconSize(QSize(16, 16))
        button.clicked.connect(lambda on: self._show_place(place if on else Place.CHATS))
        return button

    def _draw(self) -> None:
        for button, icon in ((self.archive, "archive"), (self.bin, "bin")):
            button.setIcon(line_icon(icon, self._theme.colors.muted, 16))


class BinBar(QWidget):
    """The buttons below the list of the bin."""

    def __init__(
        self, theme: Theme, restore: Callable[[], object], erase: Callable[[], object], empty: Callable[[], object]
    ) -> None:
        super().__init__()
        buttons = (
            _wide_button("Restore", "Take the chosen chat out of the bin", restore),
            _wide_button("Delete…", "Delete the chosen chat for good", erase),
            _wide_button("Empty…", "Delete everything in the bin for good", empty),
        )
        line = row(*((button, 1) for button in buttons), spacing=TIGHT, margins=SMALL)
        column(Separator(theme), line, within=self, spacing=0)
        self.hide()


def _wide_button(text: str, tip: str, act: Callable[[], object]) -> QPushButton:
    button = QPushButton(text)
    set_tip(button, tip)
    button.setMinimumWidth(0)
    button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
    button.clicked.connect(lambda _checked: act())
    return button
