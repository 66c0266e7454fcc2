"""The rows of the sidebar: `SidebarRows`, a Qt model, and its delegate `RowPainter`, which draws and edits them."""

import time

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QSize, QStringListModel, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen, QTextLayout
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.chat.listing import FOLDERS, ChatRow, FolderRow, Key, Listing, Row, SectionRow
from rdchat.chat.storage import TRASH_DAYS, WordMatcher
from rdchat.errors import StorageError
from rdchat.services.chat_list.chat_list import Activity
from rdchat.ui.sidebar.row_actions import RowActions
from rdchat.ui.style import (
    ROW_RADIUS,
    SMALL,
    TIGHT,
    Theme,
    control_font,
    day_text,
    line_pixmap,
    paint_row_ground,
    scaled,
    text_look,
    tip_text,
    utf16_spans,
)
from rdchat.wording import counted

_Index = QModelIndex | QPersistentModelIndex
# A title of more characters gets a tooltip, as it may be cut.
_LONG = 24
# Roles of a row itself, and of its `Activity`.
ROW = Qt.ItemDataRole.UserRole
ACTIVITY = ROW + 1

# In pixels: heights of a row, the indent of a row in a folder, and the sizes of a folder's icon, of its arrow, and of
# the sign of an activity.
_ONE_LINE = 30
_TWO_LINES = 48
_INDENT = 16
_ICON = 16
_ARROW = 12
_SIGN = 14
_DAY_S = 86_400.0
# Marked words in a line.
_MAX_MARKS = 20
_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_BOTTOM = Qt.AlignmentFlag.AlignBottom


class SidebarRows(QStringListModel):
    """Sections, folders and conversations in one list. Rows are read from the store when they come into view.

    A `QStringListModel` of empty strings only counts the rows: Qt asks for their number with each row that it lays out,
    and a `rowCount` in Python would take half a second for 100,000 rows.

    The model does not change by itself: edits go to the store, whose list then comes back.

    Args:
        actions: Carry out edits.
        parent: The view.

    Attributes:
        in_trash: Whether the rows are those of the Trash, which cannot be edited or dragged; the view sets it.
    """

    def __init__(self, actions: RowActions, parent: QWidget) -> None:
        super().__init__(parent)
        self._actions = actions
        self._rows = Listing()
        self.in_trash = False

    def set_rows(self, rows: Listing) -> bool:
        """Show these rows; return whether the places of sections, folders and groups of chats are others than before.

        If not, only chats within a group may have changed their order (see `Listing.shape`): the view is painted again,
        and stays where it is.
        """
        before = self._rows
        self._rows = rows
        if rows.shape != before.shape:
            self.setStringList([""] * len(rows))
            return True
        if rows:
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
        return False

    def index_of(self, key: Key) -> int | None:
        """Return the row number of a chat or folder; None if it is not listed."""
        try:
            return self._rows.index_of(key)
        except StorageError:  # The caller's own read of the store reports the error.
            return None

    def section_of(self, index: int) -> SectionRow | None:
        """Return the section of a row; None in search results, the archive and the Trash."""
        return self._rows.section_of(index)

    def row_at(self, index: _Index) -> Row | None:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        try:
            return self._rows[index.row()]
        except StorageError:  # The row stays empty until the list is read again.
            return None

    def flags(self, index: _Index) -> Qt.ItemFlag:
        row = self.row_at(index)
        flag = Qt.ItemFlag
        if row is None or isinstance(row, SectionRow):
            return flag.NoItemFlags  # The arrow keys pass over it.
        usual = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemNeverHasChildren
        return usual if self.in_trash else usual | flag.ItemIsEditable | flag.ItemIsDragEnabled

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
        title = str(value).strip()
        row = self.row_at(index)
        if role != Qt.ItemDataRole.EditRole or row is None or not title or title == _title(row):
            return False
        self._actions.set_title(row, title)
        return True


def _title(row: Row) -> str:
    if isinstance(row, ChatRow):
        return row.conversation.title
    return row.folder.name if isinstance(row, FolderRow) else row.title


def _spoken(row: Row) -> str:
    """Return a row's text for screen readers: `Work, folder, expanded, 3 chats`, `Bread, pinned`, `Today, section`.

    The section of the folders is read as `Folders` alone.
    """
    if isinstance(row, FolderRow):
        state = "expanded" if row.folder.expanded else "collapsed"
        return f"{row.folder.name}, folder, {state}, {counted(row.chats, 'chat')}"
    if isinstance(row, ChatRow):
        pinned = ", pinned" if row.conversation.pinned_at is not None else ""
        matches = f", {counted(row.messages, 'message')} found" if row.messages else ""
        return f"{row.conversation.title}{pinned}{matches}"
    return f"{row.title}, section" if row.title != FOLDERS else FOLDERS


class RowPainter(QStyledItemDelegate):
    """Draws sections, folders and conversations.

    Args:
        theme: The appearance to follow.
        rows: The rows.
        parent: The view.

    Attributes:
        matcher: Finds the words of the search, which are marked; false without a search. The view sets it.
        drop_row: The row that something is dragged over; -1 for none.
    """

    def __init__(self, theme: Theme, rows: SidebarRows, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows = rows
        self.matcher = WordMatcher("")
        self.drop_row = -1

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(80, self.row_height)

    @property
    def row_height(self) -> int:
        """Height of every row: search results and the Trash have a second line."""
        return scaled(_TWO_LINES if self.matcher or self._rows.in_trash else _ONE_LINE)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        row = index.data(ROW)
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, SectionRow):
            painter.setPen(self._theme.colors.muted)
            painter.setFont(control_font(-1.5, bold=True))
            painter.drawText(area.adjusted(SMALL + 2, 0, 0, -3), _BOTTOM, row.title)
        else:
            paint_row_ground(painter, area, option.state, self._theme.colors)
            if isinstance(row, FolderRow):
                self._paint_folder(painter, area, row)
            elif isinstance(row, ChatRow):
                activity = Activity(index.data(ACTIVITY) or "")
                sign_width = self._paint_activity(painter, area, activity)
                selected = bool(option.state & QStyle.StateFlag.State_Selected)
                is_bold = selected or activity is Activity.NEW
                self._paint_chat(painter, area.adjusted(0, 0, -sign_width, 0), row, is_bold)
        if index.row() == self.drop_row:
            painter.setPen(self._theme.colors.accent)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, ROW_RADIUS, ROW_RADIUS)
        painter.restore()

    def _paint_folder(self, painter: QPainter, area: QRect, row: FolderRow) -> None:
        """Draw a folder's arrow, icon and name, and how many chats it has, or in the Trash how long it stays."""
        colors = self._theme.colors
        ratio = painter.device().devicePixelRatioF()
        left = area.left() + TIGHT + row.depth * _INDENT
        middle = area.center().y() + 1
        if not self._rows.in_trash:
            arrow = "unfold" if row.folder.expanded else "next"
            painter.drawPixmap(left, middle - _ARROW // 2, line_pixmap(arrow, colors.muted, _ARROW, ratio))
            left += _ARROW + TIGHT
        painter.drawPixmap(left, middle - _ICON // 2, line_pixmap("folder", colors.accent, _ICON, ratio))
        text = area.adjusted(left - area.left() + _ICON + SMALL - 2, 0, -SMALL, 0)
        if self._rows.in_trash:
            self._paint_text(painter, text, row.folder.name, below=_days_left(row.folder.deleted_at))
        else:
            self._paint_text(painter, text, row.folder.name, f"{row.chats:,}" if row.chats else "")

    def _paint_activity(self, painter: QPainter, area: QRect, activity: Activity) -> int:
        """Draw a ring where a reply is being written, a dot where it is new, a clock where a message waits.

        Returns:
            The width it takes.
        """
        if activity is Activity.NONE:
            return 0
        sign = QRect(area.right() - SMALL - _SIGN, area.center().y() - _SIGN // 2, _SIGN, _SIGN)
        if activity is not Activity.WAITING:
            painter.setPen(QPen(self._theme.colors.accent, 2))
            painter.setBrush(self._theme.colors.accent if activity is Activity.NEW else Qt.BrushStyle.NoBrush)
            painter.drawEllipse(sign.adjusted(4, 4, -4, -4))
        else:
            ratio = painter.device().devicePixelRatioF()
            painter.drawPixmap(sign.topLeft(), line_pixmap("waiting", self._theme.colors.muted, _SIGN, ratio))
        return _SIGN + TIGHT

    def _paint_chat(self, painter: QPainter, area: QRect, row: ChatRow, bold: bool) -> None:
        """Draw a chat's title; in the Trash, how long it stays is below, in search results the snippet.

        At the right of a search result is its location, `Archive` or its folder; a chat without one has its date there.
        """
        chat = row.conversation
        # A chat in a folder begins below the folder's name; see `_paint_folder`.
        inside = SMALL + 2 if not row.depth else TIGHT + _ARROW + TIGHT + (row.depth - 1) * _INDENT + _ICON + SMALL - 2
        right = ""
        below = ""
        if self._rows.in_trash:
            below = _days_left(chat.deleted_at)
        elif self.matcher:
            right = row.location or day_text(chat.updated_at)
            below = row.snippet
        self._paint_text(painter, area.adjusted(inside, 0, -SMALL, 0), chat.title, right, below, bold=bold)

    def _paint_text(
        self, painter: QPainter, area: QRect, title: str, right: str = "", below: str = "", *, bold: bool = False
    ) -> None:
        """Draw a title, a muted text at its right, and in rows of two lines a muted one below; mark searched words."""
        colors = self._theme.colors
        small = control_font(-1.5, tabular=True)
        font = control_font(bold=bold)
        half = self.row_height // 2
        two_lines = half > scaled(_ONE_LINE) // 2
        upper = area.adjusted(0, 5, 0, 5 - half) if two_lines else area
        painter.setFont(small)
        painter.setPen(colors.muted)
        right = painter.fontMetrics().elidedText(right, Qt.TextElideMode.ElideRight, area.width() // 2)
        painter.drawText(upper, _MIDDLE | Qt.AlignmentFlag.AlignRight, right)
        room = area.width() - (painter.fontMetrics().horizontalAdvance(right) + SMALL if right else 0)
        self._paint_marked(painter, upper, title, font, color=colors.text, width=room)
        if two_lines:
            lower = area.adjusted(0, half - 4, 0, -5)
            self._paint_marked(painter, lower, below, small, color=colors.muted, width=area.width())

    def _paint_marked(
        self, painter: QPainter, area: QRect, text: str, font: QFont, *, color: QColor, width: int
    ) -> None:
        """Draw one line in the middle of an area's height, with the words of the search marked."""
        metrics = QFontMetrics(font)
        elided = metrics.elidedText(text, Qt.TextElideMode.ElideRight, width)
        layout = QTextLayout(elided, font)
        layout.beginLayout()
        layout.createLine().setLineWidth(width + 1)
        layout.endLayout()
        painter.setPen(color)
        position = QPointF(area.left(), area.center().y() + 1 - metrics.height() / 2)
        spans = utf16_spans(elided, self.matcher.spans(elided, _MAX_MARKS))
        layout.draw(painter, position, [self._mark(*span) for span in spans])

    def _mark(self, begin: int, end: int) -> QTextLayout.FormatRange:
        """Return the format of a word of the search; begin and end in UTF-16 units."""
        mark = QTextLayout.FormatRange()
        mark.start = begin
        mark.length = end - begin
        mark.format = text_look(self._theme.colors.text, self._theme.colors.hit)
        return mark

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        folder = isinstance(index.data(ROW), FolderRow)
        editor.setAccessibleName("New folder name" if folder else "New chat title")
        editor.setMaxLength(200)
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: _Index) -> None:
        # The editor begins a little left of the title's first letter.
        area: QRect = option.rect
        row = index.data(ROW)
        depth = 0 if isinstance(row, SectionRow) or row is None else row.depth
        left = SMALL + 3 + depth * _INDENT + (_ARROW + _ICON + SMALL if isinstance(row, FolderRow) else 0)
        editor.setGeometry(area.left() + left, area.top() + 2, area.width() - left - SMALL - 3, scaled(_ONE_LINE) - 4)


def _days_left(deleted_at: float | None) -> str:
    """Return how much longer the Trash keeps an item."""
    passed = (time.time() - (deleted_at or 0.0)) / _DAY_S
    left = max(0, min(TRASH_DAYS, round(TRASH_DAYS - passed)))
    return f"{counted(left, 'day')} left" if left else "Less than a day left"
