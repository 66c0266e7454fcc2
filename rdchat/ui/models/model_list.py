"""A list of models: two lines for each, with marks beside the name; headings in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import QFrame, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.painting import paint_row_ground
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font

Index = QModelIndex | QPersistentModelIndex
DOT = "dot"
"""The icon that is a filled circle."""
_ROOT = QModelIndex()
_ENTRY = Qt.ItemDataRole.UserRole
_ENTRY_HEIGHT, _HEADING_HEIGHT, _ICON = 48, 34, 14
_LEAST_TITLE = 60  # pixels
_NEARLY = 300  # pixels from the end at which more is asked for
_TOP, _BOTTOM = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignBottom
_LEFT, _RIGHT = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it is drawn, or a heading."""

    key: str  # stays the same while the figures change; empty for a heading
    title: str  # the name, or the heading
    facts: str = ""  # below the name, at the left
    use: str = ""  # below the name, at the right
    marks: tuple[tuple[str, str], ...] = ()  # words beside the name, at the right, each with its colour's name
    icon: tuple[str, str] | None = None  # at the right: an icon of `look.icons` or `DOT`, and its colour's name
    color: str = "text"  # of the name
    tip: str = ""
    spoken: str = ""  # all of it for a screen reader, unless the parts say it
    item: Any = None  # what it stands for


class Entries(QAbstractListModel):
    """The entries. Those that only get more at the end keep their place and their selection."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.shown: list[Entry] = []

    def set_entries(self, entries: Sequence[Entry]) -> None:
        kept = len(self.shown)
        if not kept or [entry.key for entry in entries[:kept]] != [entry.key for entry in self.shown]:
            self.beginResetModel()
            self.shown = list(entries)
            self.endResetModel()
            return
        if entries[:kept] != self.shown:
            self.shown[:] = entries[:kept]
            self.dataChanged.emit(self.index(0), self.index(kept - 1))
        if len(entries) > kept:
            self.beginInsertRows(_ROOT, kept, len(entries) - 1)
            self.shown += entries[kept:]
            self.endInsertRows()

    def row_at(self, index: Index) -> Entry:
        return self.shown[index.row()]

    def index_of(self, key: str) -> QModelIndex:
        """Return the index of an entry; an invalid one where it is not listed."""
        place = next((place for place, entry in enumerate(self.shown) if entry.key == key), None)
        return QModelIndex() if place is None or not key else self.index(place)

    def rowCount(self, parent: Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self.shown)

    def flags(self, index: Index) -> Qt.ItemFlag:
        return super().flags(index) if self.row_at(index).key else Qt.ItemFlag.NoItemFlags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        entry = self.row_at(index)
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            parts = (entry.title, *(mark for mark, _ in entry.marks), entry.facts, entry.use)
            return entry.spoken or ", ".join(part for part in parts if part)
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(entry.tip)
        return entry if role == _ENTRY else None


class _Delegate(QStyledItemDelegate):
    """Draws a name and its marks over its facts; a heading in one muted line."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._title, self._small, self._heading = control_font(), control_font(-1.5), control_font(-1, bold=True)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(120, _ENTRY_HEIGHT if index.data(_ENTRY).key else _HEADING_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
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
        right = text.right() - (self._paint_icon(painter, text, *entry.icon) if entry.icon else 0)
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

    def _paint_icon(self, painter: QPainter, text: QRect, icon: str, color: str) -> int:
        """Draw an icon at the right and return the width that it takes."""
        shown = getattr(self._theme.colors, color)
        if icon == DOT:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(shown)
            painter.drawEllipse(QPoint(text.right() - 5, text.top() + 9), 4, 4)
        else:
            device = painter.device()
            ratio = device.devicePixelRatioF() if device is not None else 1.0
            painter.drawPixmap(text.right() - _ICON + 2, text.top() + 2, line_pixmap(icon, shown, _ICON, ratio))
        return _ICON + TIGHT


class ModelList(QListView):
    """The view. Up and Down go from entry to entry, Return and a double click open one, Delete deletes it."""

    chosen = Signal(object)  # the Entry that the person went to
    opened = Signal()
    delete_requested = Signal()
    menu_requested = Signal(QPoint)  # on the screen
    more_wanted = Signal()  # the end of the list is near

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.rows = Entries(self)
        self.setModel(self.rows)
        self.setItemDelegate(_Delegate(theme, self))
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setMouseTracking(True)  # hover
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._ask_for_menu)
        self.doubleClicked.connect(self.opened)
        self.selectionModel().currentChanged.connect(self._choose)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._ask_for_more)
        bar.rangeChanged.connect(self._ask_for_more)
        theme.changed.connect(self.viewport().update)

    @property
    def current(self) -> Entry | None:
        """The entry that is selected."""
        index = self.currentIndex()
        return self.rows.row_at(index) if index.isValid() else None

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Show these entries; the selected one stays selected if it is among them."""
        key = self.current.key if self.current is not None else ""
        # else the view asks for each height, at each change; headings are lower
        self.setUniformItemSizes(all(entry.key for entry in entries))
        self.rows.set_entries(entries)
        if self.current is None:
            self.select(key)

    def select(self, key: str) -> None:
        """Select an entry, or none, without emitting `chosen`."""
        index = self.rows.index_of(key)
        self.selectionModel().blockSignals(True)
        self.setCurrentIndex(index)
        if not index.isValid():
            self.selectionModel().clear()
        self.selectionModel().blockSignals(False)
        self.viewport().update()

    def choose_first(self) -> None:
        """Take the focus, and go to the first entry where none is selected."""
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        place = next((place for place, entry in enumerate(self.rows.shown) if entry.key), None)
        if not self.currentIndex().isValid() and place is not None:
            self.setCurrentIndex(self.rows.index(place))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.current is not None:
            self.opened.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self.current is not None:
            self.delete_requested.emit()
        else:
            super().keyPressEvent(event)

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.row_at(index))

    def _ask_for_more(self) -> None:
        bar = self.verticalScrollBar()
        if self.rows.rowCount() and bar.maximum() - bar.value() < _NEARLY:
            self.more_wanted.emit()

    def _ask_for_menu(self, place: QPoint) -> None:
        if self.indexAt(place).isValid():
            self.menu_requested.emit(self.viewport().mapToGlobal(place))
