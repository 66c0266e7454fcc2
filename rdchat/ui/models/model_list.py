"""The list of a page of the Models window, and the two columns of a list and its details.

`Entry` (in `list_entries`) is one row of a list: a model with a key, or a heading, whose key is empty.
"""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QListWidget,
    QListWidgetItem,
    QSplitter,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from rdchat.ui.models.list_entries import Entry
from rdchat.ui.style import (
    SMALL,
    Ground,
    Part,
    Theme,
    column,
    control_font,
    paint_row_ground,
    plain_list,
    scaled,
    splitter,
    tip_text,
)

_ENTRY = Qt.ItemDataRole.UserRole
_ENTRY_HEIGHT = 48
_HEADING_HEIGHT = 34
# Width of the left column at first, and the least width of both columns.
_LEFT_WIDTH = 320
_MIN_WIDTH = 240
# So much of a title is drawn even if the marks at its right need the room.
_MIN_TITLE_WIDTH = 60
# This many pixels before the end of the list, `more_requested` is emitted.
_NEARLY = 300
_TOP = Qt.AlignmentFlag.AlignTop
_BOTTOM = Qt.AlignmentFlag.AlignBottom
_LEFT_SIDE = Qt.AlignmentFlag.AlignLeft
_RIGHT_SIDE = Qt.AlignmentFlag.AlignRight


class _Delegate(QStyledItemDelegate):
    """Draws a name and its marks over its facts; a heading in one muted line."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(120, scaled(_ENTRY_HEIGHT if index.data(_ENTRY).key else _HEADING_HEIGHT))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        entry: Entry = index.data(_ENTRY)
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if entry.key:
            paint_row_ground(painter, area, option.state, self._theme.colors)
            self._paint_entry(painter, entry, area.adjusted(SMALL + 2, 6, -SMALL, -6))
        else:
            painter.setPen(self._theme.colors.muted)
            painter.setFont(control_font(-1, bold=True))
            text = painter.fontMetrics().elidedText(entry.title, Qt.TextElideMode.ElideRight, area.width() - SMALL)
            painter.drawText(area.adjusted(SMALL + 2, 0, 0, -4), _BOTTOM, text)
        painter.restore()

    def _paint_entry(self, painter: QPainter, entry: Entry, text: QRect) -> None:
        """Draw the name and the marks of an entry, and below them its facts and its use."""
        colors = self._theme.colors
        painter.setFont(control_font(-1.5))
        metrics = painter.fontMetrics()
        # The marks are drawn from the right edge on, the last one first; `right` is where the next one ends.
        right = text.right()
        for mark, color in reversed(entry.marks):
            painter.setPen(getattr(colors, color))
            width = metrics.horizontalAdvance(mark)
            painter.drawText(QRect(right - width, text.top() + 1, width + 1, text.height()), _TOP, mark)
            right -= width + SMALL
        painter.setPen(colors.muted)
        room = text.width() - (metrics.horizontalAdvance(entry.use) + SMALL if entry.use else 0)
        painter.drawText(text, _BOTTOM | _LEFT_SIDE, metrics.elidedText(entry.facts, Qt.TextElideMode.ElideRight, room))
        painter.drawText(text, _BOTTOM | _RIGHT_SIDE, entry.use)
        painter.setPen(getattr(colors, entry.color))
        painter.setFont(control_font())
        # Titles are elided in the middle, as names of a family differ at the end.
        width = max(right - text.left(), _MIN_TITLE_WIDTH)
        title = painter.fontMetrics().elidedText(entry.title, Qt.TextElideMode.ElideMiddle, width)
        painter.drawText(text, _TOP | _LEFT_SIDE, title)


class ModelList(QListWidget):
    """A list of entries. Up and Down go from one to the next, Return and a double click open one, Delete deletes it.

    Attributes:
        entries: The entries that are shown.
        chosen: Emitted with the Entry that the person selected.
        opened: Emitted when the person opens the current entry.
        delete_requested: Emitted when the person presses Delete on the current entry.
        more_requested: Emitted when the end of the list is near.
    """

    chosen = Signal(object)
    opened = Signal()
    delete_requested = Signal()
    more_requested = Signal()

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.setItemDelegate(_Delegate(theme, self))
        plain_list(self, name)
        self.doubleClicked.connect(self.opened)
        self.currentItemChanged.connect(self._choose)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._ask_for_more)
        bar.rangeChanged.connect(self._ask_for_more)
        theme.changed.connect(self.viewport().update)

    @property
    def current(self) -> Entry | None:
        """The entry that is selected."""
        return self.entries[self.currentRow()] if self.currentRow() >= 0 else None

    def row_of(self, key: str) -> int:
        """Return the row of an entry; -1 if it is not listed."""
        return next((position for position, entry in enumerate(self.entries) if key and entry.key == key), -1)

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Show these entries; the selected one stays selected if it is among them."""
        key = self.current.key if self.current is not None else ""
        bar = self.verticalScrollBar()
        # A list that begins with the same entry has changed only in figures, or at its end.
        same_start = [entry.key for entry in entries[:1]] == [entry.key for entry in self.entries[:1]]
        position = bar.value() if same_start else 0
        # Headings are lower than models.
        self.setUniformItemSizes(all(entry.key for entry in entries))
        with QSignalBlocker(self):
            self.clear()
            self.entries = list(entries)
            for entry in entries:
                self.addItem(_item(entry))
        self.select(key)
        # Without a layout the scroll bar would not tell whether the list is full.
        self.executeDelayedItemsLayout()
        bar.setValue(position)

    def renew(self, entry: Entry) -> None:
        """Show newer figures of an entry that is listed."""
        position = self.row_of(entry.key)
        self.entries[position] = entry
        self.item(position).setData(_ENTRY, entry)

    def select(self, key: str) -> None:
        """Select the entry with a key, or none if it is not listed, without emitting `chosen`."""
        with QSignalBlocker(self):
            self.setCurrentRow(self.row_of(key))

    def choose_first(self) -> None:
        """Take the focus, and go to the first entry if none is selected."""
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        position = next((position for position, entry in enumerate(self.entries) if entry.key), None)
        if self.current is None and position is not None:
            self.setCurrentRow(position)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.current is not None:
            self.opened.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self.current is not None:
            self.delete_requested.emit()
        else:
            super().keyPressEvent(event)

    def _choose(self) -> None:
        if self.current is not None:
            self.chosen.emit(self.current)

    def _ask_for_more(self) -> None:
        bar = self.verticalScrollBar()
        if self.count() and bar.maximum() - bar.value() < _NEARLY:
            self.more_requested.emit()


def _item(entry: Entry) -> QListWidgetItem:
    item = QListWidgetItem(entry.title)
    if not entry.key:
        item.setFlags(Qt.ItemFlag.NoItemFlags)
    item.setData(_ENTRY, entry)
    item.setToolTip(tip_text(entry.tip))
    item.setData(Qt.ItemDataRole.AccessibleTextRole, entry.spoken)
    return item


def two_columns(theme: Theme, left: Sequence[Part], right: Sequence[Part]) -> QSplitter:
    """Return two columns with a movable divider: a list at the left, its details at the right.

    Args:
        theme: The appearance to follow.
        left: The parts of the left column.
        right: The parts of the right column.
    """
    grounds = Ground(theme, "window"), Ground(theme, "surface")
    for ground, parts in zip(grounds, (left, right), strict=True):
        column(*parts, within=ground, spacing=0)
        ground.setMinimumWidth(_MIN_WIDTH)
    columns = splitter(Qt.Orientation.Horizontal, (grounds[0], _LEFT_WIDTH), (grounds[1], 10_000))
    columns.setStretchFactor(1, 1)
    return columns
