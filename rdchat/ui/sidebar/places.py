"""The archive and the bin: the ways there and back, and what can be done in the bin."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QPushButton, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from rdchat.chat.storage.search_reader import SearchAnswer
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import ElidedLabel, Separator
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font

_NAMES = {Place.CHATS: "Chats", Place.ARCHIVE: "Archive", Place.BIN: "Bin"}


class PlaceHeader(QWidget):
    """Says what is listed where that is not simply the chats, and goes back to them."""

    back_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._back = IconButton("previous", "Back to the chats", theme)
        self._back.clicked.connect(self.back_requested)
        self.words = ElidedLabel(theme, "", bold=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(SMALL, TIGHT, MEDIUM, TIGHT)
        row.setSpacing(TIGHT)
        row.addWidget(self._back)
        row.addWidget(self.words, 1)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._back.restyle)
        self.hide()

    def show_place(self, place: Place, answer: SearchAnswer | None, searching: bool) -> None:
        """Name the place, or how many conversations a search found; None while it looks."""
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
    """Two buttons at the foot of the sidebar."""

    place_requested = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._group = QButtonGroup(self)
        self._group.setExclusive(False)
        self.archive = self._button("Archive", "archive", Place.ARCHIVE)
        self.bin = self._button("Bin", "bin", Place.BIN)
        row = QHBoxLayout()
        row.setContentsMargins(SMALL, TIGHT, SMALL, TIGHT)
        row.setSpacing(TIGHT)
        row.addWidget(self.archive)
        row.addWidget(self.bin)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(Separator(theme))
        layout.addLayout(row)
        theme.changed.connect(self._draw)
        self._draw()

    def show_counts(self, place: Place, archived: int, deleted: int) -> None:
        """Say how many there are, and which place is shown."""
        for button, own, count in ((self.archive, Place.ARCHIVE, archived), (self.bin, Place.BIN, deleted)):
            button.setChecked(place is own)
            button.setText(f"{_NAMES[own]} {count:,}" if count else _NAMES[own])
            button.setAccessibleDescription(counted(count, "item"))

    def _button(self, name: str, icon: str, place: Place) -> QToolButton:
        button = QToolButton()
        button.setAutoRaise(True)
        button.setCheckable(True)
        button.setText(name)
        button.setFont(control_font(-1))
        button.setAccessibleName(name)
        set_tip(button, "Chats put aside" if place is Place.ARCHIVE else "Deleted chats, kept for 30 days")
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setIconSize(QSize(16, 16))
        button.setProperty("icon_name", icon)
        button.clicked.connect(lambda on: self.place_requested.emit(place if on else Place.CHATS))
        return button

    def _draw(self) -> None:
        for button in (self.archive, self.bin):
            button.setIcon(line_icon(button.property("icon_name"), self._theme.colors.muted, 16))


class BinBar(QWidget):
    """What can be done with what is in the bin."""

    restore_requested = Signal()
    erase_requested = Signal()
    empty_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(Separator(theme))
        row = QHBoxLayout()
        row.setContentsMargins(SMALL, SMALL, SMALL, SMALL)
        row.setSpacing(TIGHT)
        for words, tip, asked in (
            ("Restore", "Take the chosen chat out of the bin", self.restore_requested),
            ("Delete…", "Delete the chosen chat for good", self.erase_requested),
            ("Empty…", "Delete everything in the bin for good", self.empty_requested),
        ):
            button = QPushButton(words)
            set_tip(button, tip)
            button.setMinimumWidth(0)
            button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            button.clicked.connect(asked)
            row.addWidget(button, 1)
        layout.addLayout(row)
        self.hide()
