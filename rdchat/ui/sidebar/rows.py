"""The rows of the sidebar as Qt's model, and what may be dragged where."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from PySide6.QtCore import QByteArray, QMimeData, QModelIndex, QPersistentModelIndex, QStringListModel, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.listing import FOLDERS, PINNED, ChatRow, FolderRow, Key, Listing, Row, SectionRow, key_of
from rdchat.errors import StorageError
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.plain_text import tip_text

_Index = QModelIndex | QPersistentModelIndex
_MIME = "application/x-rdchat-row"
_LONG = 24  # characters
_SEARCHED = 1000  # rows: the search field is for more
ROW = Qt.ItemDataRole.UserRole


@dataclass(frozen=True, slots=True)
class DropTarget:
    """Where a dragged row is dropped: `pinned`, `outside` of all folders, or into the folder `folder_id`."""

    kind: str
    folder_id: int | None = None


class SidebarRows(QStringListModel):
    """Sections, folders and conversations, one below the other; those that are in view are read.

    The strings are empty and only counted: Qt asks for the number of rows with each row that it lays out, and a
    `rowCount` of Python's would take 100,000 of them half a second.

    An edited title changes nothing here: `rename_submitted` and `folder_renamed` carry it, and the store's list
    follows.
    """

    rename_submitted = Signal(int, str)
    folder_renamed = Signal(object, str)  # its id, which is of any size
    dropped = Signal(object, object)  # the key of the row, and its DropTarget

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows = Listing()
        self._in_bin = False

    def set_rows(self, rows: Listing, in_bin: bool = False) -> bool:
        """Show these rows; False where as many stand at each place as before, so that a view keeps its place."""
        before, self._rows, self._in_bin = self._rows, rows, in_bin
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

    @property
    def in_bin(self) -> bool:
        """Whether the rows are those of the bin."""
        return self._in_bin

    def place_of(self, key: Key) -> int | None:
        """Return where a row stands; a conversation or folder that is not shown stands nowhere."""
        try:
            return self._rows.place_of(key)
        except StorageError:  # whoever asked for it to be shown is told why it is not
            return None

    def row_of(self, conversation_id: int) -> int | None:
        return self.place_of(("chat", conversation_id))

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
        if self._in_bin:
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
        """Find the row that a person goes to by typing: the first whose title begins so, not far below `start`."""
        typed = str(value).casefold()
        near = range(start.row(), start.row() + min(len(self._rows), _SEARCHED))
        indexes = (self.index(place % len(self._rows)) for place in near)
        found = (index for index in indexes if str(self.data(index, role) or "").casefold().startswith(typed))
        return list(islice(found, 1))

    def setData(self, index: _Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        title, row = str(value).strip(), self.row_at(index)
        if role != Qt.ItemDataRole.EditRole or row is None or not title or title == _title(row):
            return False
        if isinstance(row, ChatRow):
            self.rename_submitted.emit(row.conversation.id, title)
        elif isinstance(row, FolderRow):
            self.folder_renamed.emit(row.folder.id, title)
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
            self.dropped.emit(key, target)
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
        """Return where a row comes that is dropped on a row, or `between` that row and the one above; None: nowhere."""
        if key is None:
            return None
        place = index.row() if index.isValid() else min(between, len(self._rows) - 1)
        target = self._target(place) if 0 <= place < len(self._rows) else DropTarget("outside")
        if key[0] == "folder":
            return self._target_of_folder(key, target)
        return target

    def _target_of_folder(self, key: Key, target: DropTarget | None) -> DropTarget | None:
        """Folders are nested once: one that holds others goes to the top only."""
        if target is None or target.kind == "pinned":
            return None
        folders = {folder.id: folder for folder in self._rows.folders}
        into = folders.get(target.folder_id) if target.folder_id is not None else None
        if into is None:
            return DropTarget("outside")
        holds = any(folder.parent_id == key[1] for folder in folders.values())
        return None if into.id == key[1] or into.parent_id is not None or holds else target

    def _target(self, place: int) -> DropTarget | None:
        row = self.row_at(self.index(place))
        if isinstance(row, FolderRow):
            return DropTarget("folder", row.folder.id)
        if isinstance(row, ChatRow) and row.depth:
            return DropTarget("folder", row.conversation.folder_id)
        section = self._rows.section_of(place)
        if section is None:
            return None  # what a search found, the archive
        return DropTarget("pinned") if section.words == PINNED else DropTarget("outside")


def _title(row: Row) -> str:
    if isinstance(row, ChatRow):
        return row.conversation.title
    return row.folder.name if isinstance(row, FolderRow) else row.words


def _spoken(row: Row) -> str:
    """Return a row as a screen reader says it."""
    if isinstance(row, FolderRow):
        state = "expanded" if row.folder.expanded else "collapsed"
        return f"{row.folder.name}, folder, {state}, {counted(row.chats, 'chat')}"
    if isinstance(row, ChatRow):
        pinned = ", pinned" if row.conversation.pinned_at is not None else ""
        found = f", {counted(row.messages, 'message')} found" if row.messages else ""
        return f"{row.conversation.title}{pinned}{found}"
    return f"{row.words}, section" if row.words != FOLDERS else FOLDERS
