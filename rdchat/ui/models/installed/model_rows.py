"""The list of models: its rows, filtered and sorted, how one is drawn, and its keys."""

from collections.abc import Sequence
from enum import StrEnum

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import QFrame, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.row_ground import paint_row_ground
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font
from rdchat.ui.models.installed.words import Row, row_line, short_name

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()
_ROW_HEIGHT, _MARK = 46, 14
_ROW = Qt.ItemDataRole.UserRole
_LOADED = Qt.ItemDataRole.UserRole + 1


class SortBy(StrEnum):
    """What comes first."""

    NAME = "Name"
    SIZE = "Size"
    NEWEST = "Newest"


class ModelRows(QAbstractListModel):
    """The rows that a search leaves: models, then drafters, then those that were deleted."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._all: tuple[Row, ...] = ()
        self._words: list[str] = []
        self._sort = SortBy.NAME
        self._rows: list[Row] = []
        self._loaded: Row | None = None

    @property
    def shown(self) -> Sequence[Row]:
        """The rows in their order."""
        return self._rows

    def set_rows(self, rows: Sequence[Row]) -> None:
        self._all = tuple(rows)
        self._arrange()

    def set_loaded(self, row: Row | None) -> None:
        """Mark the model that answers."""
        self._loaded = row
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def search(self, text: str) -> None:
        """Leave the rows that have all these words."""
        self._words = text.casefold().split()
        self._arrange()

    def sort_by(self, sort: SortBy) -> None:
        self._sort = sort
        self._arrange()

    def row_of(self, key: tuple[str, str] | None) -> int | None:
        return next((number for number, row in enumerate(self._rows) if key_of(row) == key), None)

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return short_name(row)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            loaded = ", loaded" if row is self._loaded else ""
            return f"{row.name}, {row_line(row).replace('  ·  ', ', ')}{loaded}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(row.name)
        if role == _ROW:
            return row
        return row is self._loaded if role == _LOADED else None

    def _arrange(self) -> None:
        rows = [row for row in self._all if all(word in _searched(row) for word in self._words)]
        order = {SortBy.NAME: _name, SortBy.SIZE: _size, SortBy.NEWEST: _age}[self._sort]
        rows.sort(key=lambda row: (_group(row), order(row), _name(row)))
        if [key_of(row) for row in rows] == [key_of(row) for row in self._rows]:
            self._rows = rows  # same rows: the view keeps its selection and place
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()


def key_of(row: Row) -> tuple[str, str]:
    """Return what stays the same of a row while its figures change."""
    if isinstance(row, TrashedModel):
        return str(row.entry), "deleted"
    return str(row.path), "download" if row.is_unfinished else ""


def _searched(row: Row) -> str:
    if isinstance(row, TrashedModel):
        return f"{row.name} deleted".casefold()
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.place}".casefold()


def _group(row: Row) -> int:
    return 2 if isinstance(row, TrashedModel) else int(row.is_drafter)


def _name(row: Row) -> tuple[str, str]:
    return short_name(row).casefold(), row.name.casefold()


def _size(row: Row) -> int:
    return -(row.size if isinstance(row, TrashedModel) else row.disk_bytes)


def _age(row: Row) -> float:
    return -(row.deleted if isinstance(row, TrashedModel) else row.changed)


class RowDelegate(QStyledItemDelegate):
    """Draws a name over its figures, with a mark for the one that is loaded and those that cannot be."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._title, self._bold, self._small = control_font(), control_font(bold=True), control_font(-1.5)

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(80, _ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        row: Row = index.data(_ROW)
        colors = self._theme.colors
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        paint_row_ground(painter, area, option.state, self._theme.colors)
        text = area.adjusted(SMALL + 2, 5, -SMALL, -5)
        text.setRight(text.right() - self._paint_mark(painter, text, row, bool(index.data(_LOADED))))
        deleted = isinstance(row, TrashedModel)
        self._line(
            painter, text, short_name(row), top=True, color=colors.muted if deleted else colors.text, bold=selected
        )
        self._line(painter, text, row_line(row), top=False, color=colors.muted, bold=False)
        painter.restore()

    def _paint_mark(self, painter: QPainter, text: QRect, row: Row, loaded: bool) -> int:
        """Draw the mark at the right; return the width that it takes."""
        colors = self._theme.colors
        if isinstance(row, TrashedModel):
            return 0
        if loaded:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.success)
            painter.drawEllipse(QPoint(text.right() - 5, text.top() + 9), 4, 4)
            return _MARK + TIGHT
        if row.problem or row.is_unfinished:
            device = painter.device()
            ratio = device.devicePixelRatioF() if device is not None else 1.0
            icon = line_pixmap("warning" if row.problem else "latest", colors.warning, _MARK, ratio)
            painter.drawPixmap(text.right() - _MARK + 2, text.top() + 2, icon)
            return _MARK + TIGHT
        return 0

    def _line(self, painter: QPainter, area: QRect, words: str, *, top: bool, color: QColor, bold: bool) -> None:
        font = (self._bold if bold else self._title) if top else self._small
        painter.setFont(font)
        painter.setPen(color)
        # names of one family differ in their ends
        mode = Qt.TextElideMode.ElideMiddle if top else Qt.TextElideMode.ElideRight
        shown = QFontMetrics(font).elidedText(words, mode, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignTop if top else Qt.AlignmentFlag.AlignBottom, shown)


class ModelListView(QListView):
    """Return loads, Delete deletes; a double click loads."""

    chosen = Signal()  # another row is the current one
    load_requested = Signal()
    delete_requested = Signal()
    menu_requested = Signal(QPoint)  # on the screen

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = ModelRows(self)
        self.setModel(self.rows)
        self.setItemDelegate(RowDelegate(theme, self))
        self.setAccessibleName("Models on this machine")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setMouseTracking(True)  # hover
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.viewport().setAutoFillBackground(False)
        self.customContextMenuRequested.connect(self._ask_for_menu)
        self.doubleClicked.connect(self.load_requested)
        self.selectionModel().currentChanged.connect(self._note_current)
        self._key: tuple[str, str] | None = None
        self.rows.modelReset.connect(self._select_again)
        theme.changed.connect(self.viewport().update)

    @property
    def current(self) -> Row | None:
        """The row that is selected."""
        index = self.currentIndex()
        return self.rows.shown[index.row()] if index.isValid() else None

    def select(self, key: tuple[str, str] | None) -> None:
        """Select a row, else the first one."""
        row = self.rows.row_of(key)
        if row is None and self.rows.shown:
            row = 0
        self.setCurrentIndex(QModelIndex() if row is None else self.rows.index(row))
        self.chosen.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.current is not None:
            self.load_requested.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self.current is not None:
            self.delete_requested.emit()
        else:
            super().keyPressEvent(event)

    def _note_current(self, index: QModelIndex) -> None:
        if index.isValid():
            self._key = key_of(self.rows.shown[index.row()])
            self.chosen.emit()

    def _select_again(self) -> None:
        """Keep the selection over a reset of the rows, which ends it."""
        if self._key is not None:
            self.select(self._key)

    def _ask_for_menu(self, place: QPoint) -> None:
        if self.indexAt(place).isValid():
            self.menu_requested.emit(self.viewport().mapToGlobal(place))
