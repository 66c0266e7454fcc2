"""The time ledger's rows as Qt's tree views want them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, override

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from rdchat.inference.api.ledger_tree import LedgerRow
from rdchat.inference.api.reply_statistics import PATH_SEPARATOR
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.stage_words import stage_words

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()

NAME, CALLS, MEAN, TOTAL, PERCENT = range(5)
SHARE_ROLE = Qt.ItemDataRole.UserRole  # of the parent's time, from 0 to 1; None at the top
_HEADERS = (
    ("Stage", "What the time was spent on, and the parts of that."),
    ("Calls", "How often it ran."),
    ("Mean ms", "Time of one call, its parts included."),
    ("Total ms", "Time of all calls, its parts included."),
    ("% of parent", "Share of the time of the stage above it."),
)


@dataclass(slots=True)
class _Node:
    row: LedgerRow | None = None
    parent: "_Node | None" = None
    place: int = 0  # among its parent's children
    children: list["_Node"] = field(default_factory=list)


class LedgerModel(QAbstractItemModel):
    """A tree of `LedgerRow`; rows that are there already keep their place, so a view keeps what is unfolded."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: tuple[LedgerRow, ...] = ()
        self._root = _Node()
        self._nodes: dict[str, _Node] = {"": self._root}

    def show_rows(self, rows: Iterable[LedgerRow]) -> None:
        """Take new figures; stages that are new are added at the end of their parent's."""
        self.rows = tuple(rows)
        paths = [_path(row) for row in self.rows]
        if self._nodes.keys() - {"", *paths}:
            self._clear()
        for path, row in zip(paths, self.rows, strict=True):
            node = self._nodes.get(path)
            if node is None:
                self._append(path, row)
            elif node.row != row:
                node.row = row
                first, last = (self.createIndex(node.place, column, node) for column in (CALLS, PERCENT))
                self.dataChanged.emit(first, last)

    def _clear(self) -> None:
        self.beginResetModel()
        self._root = _Node()
        self._nodes = {"": self._root}
        self.endResetModel()

    def _append(self, path: str, row: LedgerRow) -> None:
        parent = self._nodes.get(row.parent, self._root)
        place = len(parent.children)
        self.beginInsertRows(self._index_of(parent), place, place)
        self._nodes[path] = _Node(row, parent, place)
        parent.children.append(self._nodes[path])
        self.endInsertRows()

    def _index_of(self, node: _Node) -> QModelIndex:
        return QModelIndex() if node.row is None else self.createIndex(node.place, NAME, node)

    def _node(self, index: _Index) -> _Node:
        return index.internalPointer() if index.isValid() else self._root

    @override
    def index(self, row: int, column: int, parent: _Index = _ROOT) -> QModelIndex:
        if not self.hasIndex(row, column, parent):
            return QModelIndex()
        return self.createIndex(row, column, self._node(parent).children[row])

    @override
    def parent(self, index: _Index) -> QModelIndex:  # type: ignore[override]  # QObject.parent() is the other overload
        above = self._node(index).parent
        return QModelIndex() if above is None else self._index_of(above)

    @override
    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.column() > 0 else len(self._node(parent).children)

    @override
    def columnCount(self, parent: _Index = _ROOT) -> int:
        return len(_HEADERS)

    @override
    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        name, words = _HEADERS[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return name
        return tip_text(words) if role == Qt.ItemDataRole.ToolTipRole else None

    @override
    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._node(index).row
        if row is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return _text(row, index.column())
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(f"{row.name}: {stage_words(row.name)}")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role == SHARE_ROLE and index.column() == PERCENT and row.percent_of_parent is not None:
            return row.percent_of_parent / 100
        return None


def _path(row: LedgerRow) -> str:
    return f"{row.parent}{PATH_SEPARATOR}{row.name}" if row.parent else row.name


def _text(row: LedgerRow, column: int) -> str:
    share = "" if row.percent_of_parent is None else f"{row.percent_of_parent:.1f}"
    return (row.name, f"{row.calls:,}", f"{row.mean_ms:,.2f}", f"{row.total_ms:,.1f}", share)[column]


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignLeft if column == NAME else Qt.AlignmentFlag.AlignRight
    return (side | Qt.AlignmentFlag.AlignVCenter).value
