"""The command palette: finds commands, models and chats by their words, and carries out the chosen one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QFrame, QTreeWidget, QTreeWidgetItem, QWidget

from rdchat.chat.storage import WordMatcher
from rdchat.services.storage_watch import SettingsControl
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    Popover,
    SearchField,
    Separator,
    Theme,
    announce,
    column,
    control_font,
    cut,
)

# In pixels: width of the palette, height of a row, and distance from the window's top; and the most visible rows.
_WIDTH = 580
_ROW = 30
_TOP = 84
_ROWS = 10
# Rows that are listed, and choices that are remembered.
_MAX_LISTED = 100
_MAX_RECENT = 30
_NAME = "Find a command, a chat, a model or a preset"
# Keys that go from the field to the list.
_OF_LIST = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One choice.

    Attributes:
        key: Its identity in later runs, such as `chat 12`; empty for one that is not remembered.
        text: Its name.
        detail: Its kind, or its menu and keys, at the right.
        act: Carries it out.
        more: Further words by which it is found.
    """

    key: str
    text: str
    detail: str
    act: Callable[[], object]
    more: str = ""


class CommandPalette(Popover):
    """A popup over the window; a click beside it or Escape closes it. The keyboard stays in its field.

    Args:
        settings: Remember what was chosen last.
        theme: The appearance to follow.
        window: The main window.
        search: Searches all messages for words.

    Attributes:
        sources: Each returns entries, whenever the palette opens.
        listed: The entries in the list.
    """

    def __init__(
        self, settings: SettingsControl, theme: Theme, window: QWidget, search: Callable[[str], object]
    ) -> None:
        super().__init__(theme, "surface", window)
        self._settings = settings
        self._window = window
        self._search = search
        self.sources: list[Callable[[], Iterable[PaletteEntry]]] = []
        self.listed: list[PaletteEntry] = []
        self._entries: list[PaletteEntry] = []
        self.setAccessibleName("Command palette")
        self.field = SearchField(theme, _NAME, _NAME, escape_clears=False)
        self.field.setFrame(False)
        self.field.setFont(control_font(2))
        self.list = QTreeWidget(columnCount=2)
        self.list.setHeaderHidden(True)
        self.list.setRootIsDecorated(False)
        self.list.setUniformRowHeights(True)
        self.list.setAccessibleName("Results")
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        header = self.list.header()
        header.setStretchLastSection(False)
        header.setSectionResizeMode(0, header.ResizeMode.Stretch)
        header.setSectionResizeMode(1, header.ResizeMode.ResizeToContents)
        column(self.field, Separator(theme), self.list, within=self, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        self.field.textChanged.connect(self._show_matches)
        self.field.returnPressed.connect(self._run)
        self.field.installEventFilter(self)
        self.list.itemClicked.connect(self._run)
        self.list.currentItemChanged.connect(self._announce)
        theme.changed.connect(self.read_entries)

    def open(self) -> None:
        """Show it, or close it if it is open."""
        if self.isVisible():
            self.close()
            return
        self.field.clear()
        self.show()
        self.field.setFocus()
        self.read_entries()

    def read_entries(self) -> None:
        """Read the entries again, if it is open."""
        if self.isVisible():
            self._entries = [entry for source in self.sources for entry in source()]
            self._show_matches()

    def _show_matches(self) -> None:
        """List the entries with all typed words, and a search of messages for them."""
        text = self.field.text().strip()
        recent = self._settings.values.palette_recent
        matcher = WordMatcher(text, beginnings=True)

        def rank(entry: PaletteEntry) -> tuple[int, bool]:
            """The latest choices come first, then entries with the words in their names."""
            used = recent.index(entry.key) if entry.key in recent else len(recent)
            return used, not matcher.is_in(entry.text)

        results = self._entries
        if matcher:
            results = [each for each in results if matcher.is_in(f"{each.text} {each.more} {each.detail}")]
        self.listed = sorted(results, key=rank)[:_MAX_LISTED]
        if text:
            act = partial(self._search, text)
            self.listed.append(PaletteEntry("", f"Search messages for “{cut(text, 40)}”", "", act))
        self.list.clear()
        for entry in self.listed:
            item = QTreeWidgetItem(self.list, [entry.text, entry.detail])
            item.setSizeHint(0, QSize(0, _ROW))
            item.setForeground(1, self._theme.colors.muted)
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.list.setCurrentIndex(self.list.model().index(0, 0))
        self._move_and_fit()

    def _move_and_fit(self) -> None:
        """Stand in the middle of the window's upper part, as high as the list needs."""
        width = min(_WIDTH, self._window.width() - 2 * LARGE)
        top = min(_TOP, self._window.height() // 8)
        rows = min(max(len(self.listed), 1), _ROWS, (self._window.height() - top) // _ROW - 3)
        self.list.setFixedHeight(rows * _ROW)
        self.setFixedSize(width, self.sizeHint().height())
        self.move(self._window.mapToGlobal(QPoint((self._window.width() - width) // 2, top)))

    def _announce(self) -> None:
        if (item := self.list.currentItem()) is not None:
            self.field.setAccessibleDescription(f"{item.text(0)}, {item.text(1)}")
            announce(self.field)

    def _run(self) -> None:
        """Close it, and carry out the current entry where the keyboard was."""
        self.close()
        if not self.listed:
            return
        entry = self.listed[self.list.currentIndex().row()]
        if entry.key:
            others = (key for key in self._settings.values.palette_recent if key != entry.key)
            self._settings.change_values(palette_recent=(entry.key, *others)[:_MAX_RECENT])
        entry.act()

    def eventFilter(self, _field: QObject, event: QEvent) -> bool:
        """Pass keys of the list on from the field."""
        is_of_list = isinstance(event, QKeyEvent) and event.key() in _OF_LIST
        if is_of_list and event.type() is QEvent.Type.KeyPress:
            QApplication.sendEvent(self.list, event)
            return True
        return False
