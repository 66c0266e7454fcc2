"""The command palette: finds commands, models and chats by their words, and carries out the chosen one."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QApplication, QStyle, QStyleOptionViewItem, QTreeWidget, QTreeWidgetItem, QWidget
from shiboken6 import isValid

from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.ui.style.labels import Separator, cut
from rdchat.ui.style.layouts import SearchField, column
from rdchat.ui.style.opening import announce
from rdchat.ui.style.theme import LARGE, MEDIUM, RADIUS, SMALL, Theme, control_font, paint_card, paint_row_ground

_WIDTH, _ROW, _ROWS, _TOP = 580, 30, 10, 84
# Rows that are listed, and choices that are remembered.
_MAX_LISTED, _MAX_RECENT = 100, 30
_NAME = "Find a command, a chat, a model or a preset"
_OF_LIST = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)
_ACCENTS, _BETWEEN = re.compile("[\u0300-\u036f]+"), re.compile(r"[\W_]+")
_UNUSED = (Qt.Key.Key_Tab, Qt.Key.Key_Backtab)
_STAYS = (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason)


@dataclass(frozen=True, slots=True)
class Entry:
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


def _folded(text: str) -> str:
    """Return the words of a text in lower case without accents, each after a space."""
    letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return f" {_BETWEEN.sub(' ', letters)}"


class _Results(QTreeWidget):
    """Names with their details at the right; the current row has the look of the sidebar's."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setColumnCount(2)
        self.setHeaderHidden(True)
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.setAccessibleName("Results")
        self.setFrameShape(QTreeWidget.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setSelectionMode(QTreeWidget.SelectionMode.NoSelection)
        self.viewport().setAutoFillBackground(False)
        header = self.header()
        header.setStretchLastSection(False)
        header.setSectionResizeMode(0, header.ResizeMode.Stretch)
        header.setSectionResizeMode(1, header.ResizeMode.ResizeToContents)

    def show_entries(self, entries: Iterable[Entry]) -> None:
        """List these entries; the first one is current."""
        self.clear()
        for entry in entries:
            # The spaces keep the texts off the ends of the row's ground.
            item = QTreeWidgetItem(self, [f"  {entry.text}", f"{entry.detail}  "])
            item.setSizeHint(0, QSize(0, _ROW))
            item.setForeground(1, self._theme.colors.muted)
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setCurrentIndex(self.model().index(0, 0))

    def drawRow(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.row() == self.currentIndex().row():
            paint_row_ground(painter, option.rect, QStyle.StateFlag.State_Selected, self._theme.colors)
        super().drawRow(painter, option, index)


class CommandPalette(QWidget):
    """Lies over the window while it is open; a click beside it or Escape closes it. The keyboard stays in its field.

    Args:
        settings: Remember what was chosen last.
        theme: The appearance to follow.
        window: The main window.

    Attributes:
        sources: Each returns the entries of one kind, whenever the palette opens.
        listed: The entries in the list.
        search_requested: Emitted with words to search all messages for.
    """

    search_requested = Signal(str)

    def __init__(self, settings: SettingsControl, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._settings, self._theme, self._window = settings, theme, window
        self.sources: list[Callable[[], Iterable[Entry]]] = []
        self.listed: list[Entry] = []
        # Each with the words by which it is found.
        self._entries: list[tuple[str, Entry]] = []
        self._before: QWidget | None = None
        self.field = SearchField(theme, _NAME, _NAME, escape_clears=False)
        self.field.setFrame(False)
        self.field.setFont(control_font(2))
        self.list = _Results(theme)
        self._card = QWidget(self)
        column(self.field, Separator(theme), self.list, within=self._card, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        self.field.textChanged.connect(self._show_found)
        self.field.returnPressed.connect(self._run)
        self.field.installEventFilter(self)
        self.list.itemClicked.connect(self._run)
        self.list.currentItemChanged.connect(self._announce)
        theme.changed.connect(self.refresh)
        self.hide()

    def open(self) -> None:
        """Show it, or close it if it is open."""
        if self.isVisible():
            self._end()
            return
        self._before = self._window.focusWidget()
        self.field.clear()
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.refresh()

    def place(self) -> None:
        """Cover the window, which has perhaps another size now."""
        self.setGeometry(self._window.rect())
        width, top = min(_WIDTH, self.width() - 2 * LARGE), min(_TOP, self.height() // 8)
        rows = min(max(len(self.listed), 1), _ROWS, (self.height() - top) // _ROW - 3)
        self.list.setFixedHeight(rows * _ROW)
        self._card.setGeometry((self.width() - width) // 2, top, width, self._card.sizeHint().height())
        self.update()

    def refresh(self) -> None:
        """Read the entries again, if it is open."""
        if self.isVisible():
            entries = (entry for source in self.sources for entry in source())
            self._entries = [(_folded(f"{each.text} {each.more} {each.detail}"), each) for each in entries]
            self._show_found()

    def _show_found(self) -> None:
        text, recent = self.field.text().strip(), self._settings.values.palette_recent
        words = _folded(text).split()

        def rank(found: tuple[str, Entry]) -> tuple[int, bool]:
            entry = found[1]
            used = recent.index(entry.key) if entry.key in recent else len(recent)
            return used, not all(f" {word}" in _folded(entry.text) for word in words)

        found = [each for each in self._entries if all(f" {word}" in each[0] for word in words)]
        self.listed = [entry for _, entry in sorted(found, key=rank)[:_MAX_LISTED]]
        if text:
            act = partial(self.search_requested.emit, text)
            self.listed.append(Entry("", f"Search messages for “{cut(text, 40)}”", "", act))
        self.list.show_entries(self.listed)
        self.place()

    def _announce(self) -> None:
        if (item := self.list.currentItem()) is not None:
            self.field.setAccessibleDescription(f"{item.text(0).strip()}, {item.text(1).strip()}")
            announce(self.field)

    def _run(self) -> None:
        """Close it, and carry out the current entry where the keyboard was."""
        self._end()
        if not self.listed:
            return
        entry = self.listed[self.list.currentIndex().row()]
        if entry.key:
            others = (key for key in self._settings.values.palette_recent if key != entry.key)
            self._settings.update(palette_recent=(entry.key, *others)[:_MAX_RECENT])
        entry.act()

    def _end(self) -> None:
        # The widget may have been deleted meanwhile.
        if self._before is not None and isValid(self._before):
            self._before.setFocus()
        self.hide()

    def eventFilter(self, _field: QObject, event: QEvent) -> bool:
        """Use the keys of the list and Escape, which elsewhere stops a reply; close when the focus goes elsewhere."""
        if isinstance(event, QFocusEvent) and event.lostFocus() and event.reason() not in _STAYS:
            self.hide()
        if not isinstance(event, QKeyEvent):
            return False
        is_press, key = event.type() is QEvent.Type.KeyPress, event.key()
        if key == Qt.Key.Key_Escape:
            event.accept()
            if is_press:
                self._end()
        elif is_press and key in _OF_LIST:
            QApplication.sendEvent(self.list, event)
        return key == Qt.Key.Key_Escape or (is_press and key in (*_OF_LIST, *_UNUSED))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self._card.geometry().contains(event.position().toPoint()):
            self._end()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the card with a soft shadow."""
        area, colors = QRectF(self._card.geometry()), self._theme.colors
        for spread in range(24):
            around = area.adjusted(-spread, 6 - spread, spread, 6 + spread)
            paint_card(self, around, QColor(0, 0, 0, 2), radius=RADIUS + spread)
        paint_card(self, area.adjusted(0.5, 0.5, -0.5, -0.5), colors.surface, colors.border)
