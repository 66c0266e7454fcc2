"""The rows of the sidebar as a Qt model, with drag and drop."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from PySide6.QtCore import QByteArray, QMimeData, QModelIndex, QPersistentModelIndex, QStringListModel, Qt, QTimer
from PySide6.QtWidgets import QWidget

from rdchat.chat.listing import FOLDERS, PINNED, ChatRow, FolderRow, Key, Listing, Row, SectionRow, key_of
from rdchat.errors import StorageError
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.plain_text import tip_text

_Index = QModelIndex | QPersistentModelIndex
_MIME = "application/x-rdchat-row"
_LONG = 24  # characters of a title that gets a tooltip
_SEARCHED = 1000  # rows that typing in the list looks through; the search field is for more
ROW = Qt.ItemDataRole.UserRole


@dataclass(frozen=True, slots=True)
class DropTarget:
    """Where a row is dropped: among the pinned chats, or into a folder."""

    folder_id: int | None = None  # None: out of all folders
    pinned: bool = False


class SidebarRows(QStringListModel):
    """Sections, folders and conversations in one list. Rows are read when they come into view.

    The strings are empty and only counted: Qt asks for the number of rows with each row that it lays out, and a
    `rowCount` in Python would take half a second for 100,000 rows.

    The model does not change by itself: edits and drops go to the store, whose list then comes back.

    Args:
        set_title: Renames the chat or folder of a row.
        drop: Moves a row to a drop target.
        parent: The view.
    """

    def __init__(
        self, set_title: Callable[[Row, str], object], drop: Callable[[Key, DropTarget], object], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._set_title, self._drop = set_title, drop
        self._rows = Listing()
        self.in_bin = False

    def set_rows(self, rows: Listing, in_bin: bool = False) -> bool:
        """Show these rows; return False if their layout is as before, so that the view stays where it is."""
        before, self._rows, self.in_bin = self._rows, rows, in_bin
        if len(rows) != len(before):
            self.setStringList([""] * len(rows))
            return True
        if rows.shape != before.shape:
            self.beginResetModel()
            self.endResetModel()
            return True
        if rows:
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
        return False

    def place_of(self, key: Key) -> int | None:
        """Return the row number of a chat or folder; None if it is not listed."""
        try:
            return self._rows.place_of(key)
        except StorageError:  # the caller's own read of the store reports the error
            return None

    def row_at(self, index: _Index) -> Row | None:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        try:
            return self._rows[index.row()]
        except StorageError:  # the row stays empty until the list is read again
            return None

    def flags(self, index: _Index) -> Qt.ItemFlag:
        row, flag = self.row_at(index), Qt.ItemFlag
        if row is None or isinstance(row, SectionRow):
            return flag.ItemIsDropEnabled  # not enabled: the arrow keys pass over it
        usual = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemNeverHasChildren
        if self.in_bin:
            return usual
        return usual | flag.ItemIsEditable | flag.ItemIsDragEnabled | flag.ItemIsDropEnabled

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.row_at(index)
        if row is None:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return _title(row)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return _spoken(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(_title(row)) if len(_title(row)) > _LONG else None
        return row if role == ROW else None

    def match(
        self, start: _Index, role: int, value: object, hits: int = 1, flags: Qt.MatchFlag = Qt.MatchFlag.MatchStartsWith
    ) -> list[QModelIndex]:
        """Find the row to go to when the person types: the first near `start` whose title begins with the text."""
        typed = str(value).casefold()
        near = range(start.row(), start.row() + min(len(self._rows), _SEARCHED))
        indexes = (self.index(place % len(self._rows)) for place in near)
        found = (index for index in indexes if str(self.data(index, role) or "").casefold().startswith(typed))
        return list(islice(found, 1))

    def setData(self, index: _Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        title, row = str(value).strip(), self.row_at(index)
        if role != Qt.ItemDataRole.EditRole or row is None or not title or title == _title(row):
            return False
        self._set_title(row, title)
        return True

    # Dragging

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def mimeTypes(self) -> list[str]:
        return [_MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        rows = [row for index in indexes if (row := self.row_at(index)) is not None]
        data.setData(_MIME, QByteArray(json.dumps([key_of(row) for row in rows][:1]).encode()))
        return data

    def canDropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: _Index) -> bool:
        return self._dragged(data) is not None and self.target_at(parent, row, self._dragged(data)) is not None

    def dropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: _Index) -> bool:
        key = self._dragged(data)
        target = self.target_at(parent, row, key)
        if key is not None and target is not None:
            QTimer.singleShot(0, self, lambda: self._drop(key, target))  # once Qt has finished the drop
        return False  # the store moves it, and the list follows

    def _dragged(self, data: QMimeData) -> Key | None:
        try:
            keys = json.loads(bytes(data.data(_MIME).data()))
            kind, number = keys[0]
        except (ValueError, TypeError, LookupError, RecursionError):
            return None
        key = str(kind), number
        return key if self.place_of(key) is not None else None

    def target_at(self, index: _Index, between: int, key: Key | None) -> DropTarget | None:
        """Return the target of a drop on a row, or `between` it and the row above; None if it is not allowed."""
        if key is None:
            return None
        place = index.row() if index.isValid() else min(between, len(self._rows) - 1)
        target = self._target(place) if 0 <= place < len(self._rows) else DropTarget()
        if key[0] == "folder":
            return self._target_of_folder(key, target)
        return target

    def _target_of_folder(self, key: Key, target: DropTarget | None) -> DropTarget | None:
        """Folders nest one level deep: a folder with folders in it stays at the top level."""
        if target is None or target.pinned:
            return None
        folders = {folder.id: folder for folder in self._rows.folders}
        into = folders.get(target.folder_id) if target.folder_id is not None else None
        if into is None:
            return DropTarget()
        holds = any(folder.parent_id == key[1] for folder in folders.values())
        return None if into.id == key[1] or into.parent_id is not None or holds else target

    def _target(self, place: int) -> DropTarget | None:
        row = self.row_at(self.index(place))
        if isinstance(row, FolderRow):
            return DropTarget(row.folder.id)
        if isinstance(row, ChatRow) and row.depth:
            return DropTarget(row.conversation.folder_id)
        section = self._rows.section_of(place)
        if section is None:
            return None  # search results and the archive
        return DropTarget(pinned=section.words == PINNED)


def _title(row: Row) -> str:
    if isinstance(row, ChatRow):
        return row.conversation.title
    return row.folder.name if isinstance(row, FolderRow) else row.words


def _spoken(row: Row) -> str:
    """Return a row's text for screen readers."""
    if isinstance(row, FolderRow):
        state = "expanded" if row.folder.expanded else "collapsed"
        return f"{row.folder.name}, folder, {state}, {counted(row.chats, 'chat')}"
    if isinstance(row, ChatRow):
        pinned = ", pinned" if row.conversation.pinned_at is not None else ""
        found = f", {counted(row.messages, 'message')} found" if row.messages else ""
        return f"{row.conversation.title}{pinned}{found}"
    return f"{row.words}, section" if row.words != FOLDERS else FOLDERS
