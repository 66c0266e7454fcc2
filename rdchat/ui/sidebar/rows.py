"""The rows of the sidebar as a Qt model."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QStringListModel, Qt
from PySide6.QtWidgets import QWidget

from rdchat.chat.listing import FOLDERS, ChatRow, FolderRow, Key, Listing, Row, SectionRow
from rdchat.errors import StorageError
from rdchat.services.order.chat_list import Activity
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import tip_text
from rdchat.ui.sidebar.row_actions import RowActions

_Index = QModelIndex | QPersistentModelIndex
_LONG = 24  # characters of a title that gets a tooltip
ROW = Qt.ItemDataRole.UserRole
ACTIVITY = ROW + 1


class SidebarRows(QStringListModel):
    """Sections, folders and conversations in one list. Rows are read when they come into view.

    The strings are empty and only counted: Qt asks for the number of rows with each row that it lays out, and a
    `rowCount` in Python would take half a second for 100,000 rows.

    The model does not change by itself: edits go to the store, whose list then comes back.

    Args:
        actions: Carry out edits.
        parent: The view.
    """

    def __init__(self, actions: RowActions, parent: QWidget) -> None:
        super().__init__(parent)
        self._actions = actions
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

    def section_of(self, place: int) -> SectionRow | None:
        """Return the section of a row; None in search results, the archive and the bin."""
        return self._rows.section_of(place)

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
            return flag.NoItemFlags  # the arrow keys pass over it
        usual = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemNeverHasChildren
        return usual if self.in_bin else usual | flag.ItemIsEditable | flag.ItemIsDragEnabled

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.row_at(index)
        if row is None:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return _title(row)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            activity = self._activity(row)
            return f"{_spoken(row)}, {activity}" if activity else _spoken(row)
        if role == ACTIVITY:
            return self._activity(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(_title(row)) if len(_title(row)) > _LONG else None
        return row if role == ROW else None

    def _activity(self, row: Row) -> Activity:
        return self._actions.activity(row.conversation.id) if isinstance(row, ChatRow) else Activity.NONE

    def setData(self, index: _Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        title, row = str(value).strip(), self.row_at(index)
        if role != Qt.ItemDataRole.EditRole or row is None or not title or title == _title(row):
            return False
        self._actions.set_title(row, title)
        return True


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
