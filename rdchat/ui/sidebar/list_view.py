"""The list in the sidebar: keys, mouse, drag and drop, and the current row.

The view only finds out which row is meant; `RowActions` does what is asked, `SidebarRows` reads the rows, and
`RowPainter` draws them.
"""

from PySide6.QtCore import QMimeData, QModelIndex, QPoint, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import (
    QDrag,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QKeyEvent,
    QMouseEvent,
)
from PySide6.QtWidgets import QListView

from rdchat.chat.listing import PINNED, ChatRow, FolderRow, Key, Listing, Row, SectionRow, key_of
from rdchat.chat.storage import WordMatcher
from rdchat.ui.sidebar.row_actions import DropTarget, RowActions, thing_of
from rdchat.ui.sidebar.rows import RowPainter, SidebarRows
from rdchat.ui.style import Theme, plain_list, pop_up

_DELETE = (Qt.Key.Key_Delete, Qt.Key.Key_Backspace)
_RETURN = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class SidebarListView(QListView):
    """Lists chats and folders; making a chat current opens it.

    Up and Down go from row to row and open chats. Right and Left expand and collapse folders. F2 renames, Delete
    deletes, and Return goes to the message field, or expands or collapses a folder.

    Attributes:
        dragged: The row that is being dragged.
    """

    write_requested = Signal()

    def __init__(self, theme: Theme, actions: RowActions) -> None:
        super().__init__()
        self._actions = actions
        self.dragged: Key | None = None
        self.rows = SidebarRows(actions, self)
        self.setModel(self.rows)
        self.painter = RowPainter(theme, self.rows, self)
        self.setItemDelegate(self.painter)
        plain_list(self, "Chats")
        self.setUniformItemSizes(True)  # Qt measures one row, not a thousand
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)  # F2 and double click, the same on every system
        self.setDragDropMode(QListView.DragDropMode.DragDrop)
        self.setDropIndicatorShown(False)  # RowPainter frames the row
        self.customContextMenuRequested.connect(self._show_menu)
        self.doubleClicked.connect(self._edit_clicked)
        self.clicked.connect(self._unfold_clicked)
        self.selectionModel().currentChanged.connect(self._open_current)

    @property
    def editing(self) -> bool:
        return self.state() is QListView.State.EditingState

    @property
    def current_row(self) -> Row | None:
        return self.rows.row_at(self.currentIndex())

    def show_rows(self, rows: Listing, matcher: WordMatcher, *, in_trash: bool) -> None:
        """Show other rows and mark the matcher's words in them; keep the scroll position and a current folder.

        In the Trash any current row is kept: nothing of it is open, so `select` does not choose one.
        """
        bar = self.verticalScrollBar()
        current = self.current_row
        height = self.painter.row_height
        scrolled = bar.value()
        # These two decide `row_height`.
        self.rows.in_trash = in_trash
        self.painter.matcher = matcher
        with QSignalBlocker(self.selectionModel()):  # Qt makes the first row current, which must not open it
            # The rows of a search and of the Trash are higher, as they have a second line.
            if self.painter.row_height != height:
                self.rows.set_rows(Listing())  # Qt measures a row again only in another layout.
            if self.rows.set_rows(rows):
                self.doItemsLayout()
                bar.setValue(scrolled)
                if current is not None and (isinstance(current, FolderRow) or in_trash):
                    self._make_current(key_of(current))
        self.viewport().update()

    def select(self, conversation_id: int | None) -> None:
        """Make a chat current without opening it; None or a chat that is not listed clears the selection.

        A folder that the person moved to with the keyboard stays current.
        """
        if self.rows.in_trash or (self.hasFocus() and isinstance(self.current_row, FolderRow)):
            return
        with QSignalBlocker(self.selectionModel()):
            self._make_current(None if conversation_id is None else ("chat", conversation_id))
        self.viewport().update()

    def _make_current(self, key: Key | None) -> None:
        row = None if key is None else self.rows.index_of(key)
        self.setCurrentIndex(QModelIndex() if row is None else self.rows.index(row))
        if row is None:
            self.selectionModel().clear()

    def rename(self, key: Key) -> None:
        """Open the editor of a row's title."""
        row = self.rows.index_of(key)
        if row is not None:
            index = self.rows.index(row)
            self.setFocus()
            self.scrollTo(index)
            self.edit(index)

    def go_to_first(self) -> None:
        """Make the first chat or folder current; if a chat is current already, open it again."""
        self.setFocus()
        if isinstance(self.current_row, ChatRow):
            self._open_current(self.currentIndex())
        elif self.current_row is None:
            for row in range(self.rows.rowCount()):
                index = self.rows.index(row)
                if not isinstance(self.rows.row_at(index), SectionRow):
                    self.setCurrentIndex(index)
                    return

    def keyboardSearch(self, search: str) -> None:
        """Do nothing: Qt would read up to 100,000 rows; the search field is for that."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.editing:
            # The Return that ends a rename goes on from the editor to the list.
            event.accept()
        elif not self._act_on(self.current_row, event.key()):
            super().keyPressEvent(event)

    def _act_on(self, row: Row | None, key: int) -> bool:
        """Do what a key does to a row; return whether it does anything."""
        thing = thing_of(row)
        if thing is not None and key in _DELETE:
            self._actions.delete(thing)
        elif thing is not None and key in _RETURN and self.rows.in_trash:
            self._actions.restore_row(thing)
        elif thing is not None and key == Qt.Key.Key_F2 and not self.rows.in_trash:
            self.edit(self.currentIndex())
        elif isinstance(row, FolderRow) and key in (Qt.Key.Key_Left, Qt.Key.Key_Right, *_RETURN):
            expanded = not row.folder.expanded if key in _RETURN else key == Qt.Key.Key_Right
            if expanded != row.folder.expanded:
                self._actions.order.set_expanded(row.folder, expanded)
        elif isinstance(row, ChatRow) and row.depth and key == Qt.Key.Key_Left:
            self.setFocus()
            self._make_current(("folder", row.conversation.folder_id))
        elif key in _RETURN:
            self.write_requested.emit()
        else:
            return False
        return True

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if isinstance(self.rows.row_at(self.indexAt(event.position().toPoint())), SectionRow):
            # Qt would clear the selection, as a section heading cannot be selected.
            event.accept()
            return
        # A click on the current row opens its chat again, to show its hits or when another one is open.
        current = self.currentIndex()
        super().mousePressEvent(event)
        if current == self.currentIndex() and event.button() is Qt.MouseButton.LeftButton:
            self._open_current(current)

    def _open_current(self, index: QModelIndex) -> None:
        """Open the chat of a row; a row of the Trash is not opened."""
        row = self.rows.row_at(index)
        if isinstance(row, ChatRow) and not self.rows.in_trash:
            self._actions.open_row(row.conversation.id)

    def _unfold_clicked(self, index: QModelIndex) -> None:
        row = self.rows.row_at(index)
        if isinstance(row, FolderRow) and not self.rows.in_trash:
            self._actions.order.set_expanded(row.folder, not row.folder.expanded)

    def _edit_clicked(self, index: QModelIndex) -> None:
        if isinstance(self.rows.row_at(index), ChatRow) and not self.rows.in_trash:
            self.edit(index)

    def _show_menu(self, position: QPoint) -> None:
        menu = self._actions.menu_for(self.rows.row_at(self.indexAt(position)))
        pop_up(menu, self.viewport().mapToGlobal(position))

    # Dragging: the view knows which of its rows is dragged, so that nothing from elsewhere can be dropped

    def startDrag(self, _actions: Qt.DropAction) -> None:
        """Drag the current row, with a picture of it."""
        if (row := self.current_row) is None:
            return
        self.dragged = key_of(row)
        drag = QDrag(self)
        data = QMimeData()
        data.setData("application/x-rdchat-row", b"row")
        drag.setMimeData(data)
        drag.setPixmap(self.viewport().grab(self.visualRect(self.currentIndex())))
        drag.exec(Qt.DropAction.MoveAction)
        self.dragged = None

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(self.dragged is not None)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        # Qt scrolls the list here.
        super().dragMoveEvent(event)
        index = self.indexAt(event.position().toPoint())
        allowed = self._drop_on(index) is not None
        event.setAccepted(allowed)
        self._frame(index.row() if allowed else -1)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        super().dragLeaveEvent(event)
        self._frame(-1)

    def dropEvent(self, event: QDropEvent) -> None:
        """Drop on the row under the mouse: Qt would take the row's edges for the gaps between rows."""
        drop = self._drop_on(self.indexAt(event.position().toPoint()))
        event.setAccepted(drop is not None)
        if drop is not None:
            # This waits until Qt has finished the drop.
            QTimer.singleShot(0, self, lambda: self._actions.drop(*drop))
        self._frame(-1)
        self.stopAutoScroll()
        self.setState(QListView.State.NoState)

    def _drop_on(self, index: QModelIndex) -> tuple[Key, DropTarget] | None:
        """Return the dragged row and where a drop on a row puts it; None if that is not allowed."""
        target = self._target(index)
        if self.dragged is None or target is None or not self._actions.may_drop(self.dragged, target):
            return None
        return self.dragged, target

    def _target(self, index: QModelIndex) -> DropTarget | None:
        """Return where a drop on a row puts what is dragged; None in lists without sections, which have no order.

        A folder takes it, a chat in a folder stands for its folder, and other rows stand for their section. The empty
        area below the rows is outside of all folders.
        """
        row = self.rows.row_at(index)
        if not index.isValid() and self.rows.section_of(0) is not None:
            return DropTarget()
        if isinstance(row, FolderRow):
            return DropTarget(row.folder.id)
        if isinstance(row, ChatRow) and row.depth:
            return DropTarget(row.conversation.folder_id)
        section = self.rows.section_of(index.row())
        return None if section is None else DropTarget(pinned=section.title == PINNED)

    def _frame(self, row: int) -> None:
        """Frame the row that something is dragged over; -1 for none."""
        if row != self.painter.drop_row:
            self.painter.drop_row = row
            self.viewport().update()
