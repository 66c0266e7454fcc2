"""A list of models: two lines for each, with marks beside the name; headings in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QFrame,
    QListWidget,
    QListWidgetItem,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from rdchat.ui.look.painting import paint_row_ground
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.theme import SMALL, Theme, control_font

_ENTRY = Qt.ItemDataRole.UserRole
_ENTRY_HEIGHT, _HEADING_HEIGHT = 48, 34
_LEAST_TITLE = 60  # pixels
_NEARLY = 300  # pixels from the end at which more is asked for
_TOP, _BOTTOM = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignBottom
_LEFT, _RIGHT = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in the list, or a heading."""

    key: str  # stays the same while the figures change; empty for a heading
    title: str  # the name, or the heading
    facts: str = ""  # below the name, at the left
    use: str = ""  # below the name, at the right
    marks: tuple[tuple[str, str], ...] = ()  # words beside the name, at the right, each with its colour's name
    color: str = "text"  # of the name
    tip: str = ""
    item: Any = None  # the model

    @property
    def spoken(self) -> str:
        """All of it, for a screen reader."""
        parts = (self.title, *(mark for mark, _ in self.marks), self.facts.replace("  ·  ", ", "), self.use)
        return ", ".join(part for part in parts if part)


class _Delegate(QStyledItemDelegate):
    """Draws a name and its marks over its facts; a heading in one muted line."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._title, self._small, self._heading = control_font(), control_font(-1.5), control_font(-1, bold=True)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(120, _ENTRY_HEIGHT if index.data(_ENTRY).key else _HEADING_HEIGHT)

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
            painter.setFont(self._heading)
            text = painter.fontMetrics().elidedText(entry.title, Qt.TextElideMode.ElideRight, area.width() - SMALL)
            painter.drawText(area.adjusted(SMALL + 2, 0, 0, -4), _BOTTOM, text)
        painter.restore()

    def _paint_entry(self, painter: QPainter, entry: Entry, text: QRect) -> None:
        colors = self._theme.colors
        painter.setFont(self._small)
        metrics = painter.fontMetrics()
        right = text.right()
        for mark, color in reversed(entry.marks):
            painter.setPen(getattr(colors, color))
            width = metrics.horizontalAdvance(mark)
            painter.drawText(QRect(right - width, text.top() + 1, width + 1, text.height()), _TOP, mark)
            right -= width + SMALL
        painter.setPen(colors.muted)
        room = text.width() - (metrics.horizontalAdvance(entry.use) + SMALL if entry.use else 0)
        painter.drawText(text, _BOTTOM | _LEFT, metrics.elidedText(entry.facts, Qt.TextElideMode.ElideRight, room))
        painter.drawText(text, _BOTTOM | _RIGHT, entry.use)
        painter.setPen(getattr(colors, entry.color))
        painter.setFont(self._title)
        width = max(right - text.left(), _LEAST_TITLE)  # names of one family differ in their ends
        title = painter.fontMetrics().elidedText(entry.title, Qt.TextElideMode.ElideMiddle, width)
        painter.drawText(text, _TOP | _LEFT, title)


class ModelList(QListWidget):
    """The list. Up and Down go from entry to entry, Return and a double click open one, Delete deletes it."""

    chosen = Signal(object)  # the Entry that the person went to
    opened = Signal()
    delete_requested = Signal()
    more_wanted = Signal()  # the end of the list is near

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.setItemDelegate(_Delegate(theme, self))
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setMouseTracking(True)  # hover
        self.setVerticalScrollMode(QListWidget.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.doubleClicked.connect(self.opened)
        self.currentItemChanged.connect(self._choose)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._ask_for_more)
        bar.rangeChanged.connect(self._ask_for_more)
        theme.changed.connect(self.viewport().update)

    @property
    def entries(self) -> list[Entry]:
        """The entries that are shown."""
        return [self.item(place).data(_ENTRY) for place in range(self.count())]

    @property
    def current(self) -> Entry | None:
        """The entry that is selected."""
        item = self.currentItem()
        return cast("Entry", item.data(_ENTRY)) if item is not None else None

    def row_of(self, key: str) -> int:
        """Return the row of an entry; -1 if it is not listed."""
        return next((place for place, entry in enumerate(self.entries) if key and entry.key == key), -1)

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Show these entries; the selected one stays selected if it is among them."""
        shown, key = self.entries, self.current.key if self.current is not None else ""
        self.setUniformItemSizes(all(entry.key for entry in entries))  # headings are lower
        with QSignalBlocker(self):
            for place, entry in enumerate(entries):
                if place >= len(shown):
                    self.addItem(_item(entry))
                elif entry.key != shown[place].key:
                    self.takeItem(place)
                    self.insertItem(place, _item(entry))
                elif entry != shown[place]:
                    _fill(self.item(place), entry)
            while self.count() > len(entries):
                self.takeItem(self.count() - 1)
        if [entry.key for entry in entries[:1]] != [entry.key for entry in shown[:1]]:
            self.scrollToTop()
        self.select(key)
        self.executeDelayedItemsLayout()  # so that the scroll bar says whether the list is full

    def select(self, key: str) -> None:
        """Select an entry, or none, without emitting `chosen`."""
        if key != (self.current.key if self.current is not None else ""):
            with QSignalBlocker(self):
                self.setCurrentRow(self.row_of(key))

    def choose_first(self) -> None:
        """Take the focus, and go to the first entry if none is selected."""
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        place = next((place for place, entry in enumerate(self.entries) if entry.key), None)
        if self.current is None and place is not None:
            self.setCurrentRow(place)

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
            self.more_wanted.emit()


def _item(entry: Entry) -> QListWidgetItem:
    item = QListWidgetItem()
    if not entry.key:
        item.setFlags(Qt.ItemFlag.NoItemFlags)
    _fill(item, entry)
    return item


def _fill(item: QListWidgetItem, entry: Entry) -> None:
    item.setData(_ENTRY, entry)
    item.setText(entry.title)
    item.setToolTip(tip_text(entry.tip))
    item.setData(Qt.ItemDataRole.AccessibleTextRole, entry.spoken)
