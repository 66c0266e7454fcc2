"""The list of conversations: its rows, how a row is drawn, and its keys."""

from collections.abc import Sequence

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction, QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QFrame,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from rdchat.chat.conversation import Conversation
from rdchat.ui.look.formatting import day_words
from rdchat.ui.look.labels import wrapped
from rdchat.ui.look.theme import SMALL, Theme, control_font

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()
_ROW_HEIGHT, _EDITOR_HEIGHT = 44, 23
_CONVERSATION = Qt.ItemDataRole.UserRole


class ConversationModel(QAbstractListModel):
    """Conversations as rows. `rename_submitted` carries an edited title; the row changes when the store has it."""

    rename_submitted = Signal(int, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Conversation] = []

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        rows = list(conversations)
        if [row.id for row in rows] == [row.id for row in self._rows]:
            self._rows = rows  # same rows: the view keeps its selection and place
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def row_of(self, conversation_id: int) -> int | None:
        return next((row for row, entry in enumerate(self._rows) if entry.id == conversation_id), None)

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def flags(self, index: _Index) -> Qt.ItemFlag:
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole, Qt.ItemDataRole.AccessibleTextRole):
            return row.title
        if role == Qt.ItemDataRole.ToolTipRole:
            return wrapped(row.title) if len(row.title) > 24 else None
        return row if role == _CONVERSATION else None

    def setData(self, index: _Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        title = str(value).strip()
        row = self._rows[index.row()]
        if role != Qt.ItemDataRole.EditRole or not title or title == row.title:
            return False
        self.rename_submitted.emit(row.id, title)
        return True


class ConversationDelegate(QStyledItemDelegate):
    """Draws a title over its day; edits the title in place."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(80, _ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        row: Conversation = index.data(_CONVERSATION)
        colors = self._theme.colors
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        state: QStyle.StateFlag = option.state
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(colors.selection)
            painter.drawRoundedRect(area, 7, 7)
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.setBrush(colors.raised)
            painter.drawRoundedRect(area, 7, 7)
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(colors.accent)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, 7, 7)
        text = area.adjusted(SMALL + 2, 5, -SMALL, -5)
        selected = bool(state & QStyle.StateFlag.State_Selected)
        painter.setPen(colors.text)
        painter.setFont(control_font(bold=selected))
        title = painter.fontMetrics().elidedText(row.title, Qt.TextElideMode.ElideRight, text.width())
        painter.drawText(text, Qt.AlignmentFlag.AlignTop, title)
        painter.setPen(colors.muted)
        painter.setFont(control_font(-1.5))
        painter.drawText(text, Qt.AlignmentFlag.AlignBottom, day_words(row.updated_at))
        painter.restore()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setAccessibleName("New title of the conversation")
        editor.setMaxLength(200)
        palette = editor.palette()
        palette.setColor(QPalette.ColorRole.Base, self._theme.colors.surface)
        editor.setPalette(palette)
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: _Index) -> None:
        area: QRect = option.rect
        # over the title; the day stays to be seen below it
        editor.setGeometry(area.left() + SMALL + 3, area.top() + 3, area.width() - 2 * SMALL - 6, _EDITOR_HEIGHT)

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: _Index) -> None:
        assert isinstance(editor, QLineEdit)
        model.setData(index, editor.text())


class ConversationListView(QListView):
    """Up and Down open the neighbours, F2 renames, Delete deletes, Return goes to the composer."""

    open_requested = Signal(int)
    write_requested = Signal()
    delete_requested = Signal(int)
    edit_ended = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = ConversationModel(self)
        self.setModel(self.rows)
        delegate = ConversationDelegate(theme, self)
        delegate.closeEditor.connect(self._note_edit_end)
        self.setItemDelegate(delegate)
        self.setAccessibleName("Conversations")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setMouseTracking(True)  # hover
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)  # F2 and double click, the same on every system
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.viewport().setAutoFillBackground(False)
        self.customContextMenuRequested.connect(self._show_menu)
        self.doubleClicked.connect(self.edit)
        self.selectionModel().currentChanged.connect(self._open_current)

    @property
    def editing(self) -> bool:
        return self.state() is QListView.State.EditingState

    @property
    def current_id(self) -> int | None:
        index = self.currentIndex()
        return self.conversation_at(index).id if index.isValid() else None

    def conversation_at(self, index: QModelIndex) -> Conversation:
        conversation = index.data(_CONVERSATION)
        assert isinstance(conversation, Conversation)
        return conversation

    def select(self, conversation_id: int | None) -> None:
        """Mark a conversation without asking to open it; None, or one that the search left out, marks none."""
        row = None if conversation_id is None else self.rows.row_of(conversation_id)
        self.selectionModel().blockSignals(True)
        self.setCurrentIndex(QModelIndex() if row is None else self.rows.index(row))
        if row is None:
            self.selectionModel().clear()
        self.selectionModel().blockSignals(False)
        self.viewport().update()

    def rename(self, conversation_id: int) -> None:
        """Open the title's editor in its row."""
        row = self.rows.row_of(conversation_id)
        if row is not None:
            self.setFocus()
            self.edit(self.rows.index(row))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        current = self.current_id
        if self.editing:
            event.accept()  # the Return that ends a rename comes here from the editor after it
        elif current is not None and event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.delete_requested.emit(current)
        elif current is not None and event.key() == Qt.Key.Key_F2:
            self.edit(self.currentIndex())
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.write_requested.emit()
        else:
            super().keyPressEvent(event)

    def _open_current(self, index: QModelIndex) -> None:
        if index.isValid():
            self.open_requested.emit(self.conversation_at(index).id)

    def _note_edit_end(self, _editor: QWidget, _hint: QAbstractItemDelegate.EndEditHint) -> None:
        self.edit_ended.emit()

    def _show_menu(self, place: QPoint) -> None:
        index = self.indexAt(place)
        if index.isValid():
            self.menu_for(self.conversation_at(index)).popup(self.viewport().mapToGlobal(place))

    def menu_for(self, conversation: Conversation) -> QMenu:
        """Return the context menu of a row; it deletes itself when closed."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        rename = QAction("Rename", menu)
        rename.triggered.connect(lambda: self.rename(conversation.id))
        delete = QAction("Delete", menu)
        delete.triggered.connect(lambda: self.delete_requested.emit(conversation.id))
        menu.addActions([rename, delete])
        return menu
