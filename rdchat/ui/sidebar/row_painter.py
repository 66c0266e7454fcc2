"""Draws the rows of the sidebar and makes the editor of a title."""

import time

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QTextCharFormat, QTextLayout
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.chat.listing import ChatRow, FolderRow, SectionRow
from rdchat.chat.search_words import WordMatcher
from rdchat.chat.storage.message_bin import KEPT_DAYS
from rdchat.ui.look.formatting import counted, day_words
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.painting import RADIUS, paint_row_ground
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font
from rdchat.ui.sidebar.rows import ROW

_Index = QModelIndex | QPersistentModelIndex
_ONE_LINE, _TWO_LINES = 30, 48  # heights
_INDENT, _ICON, _ARROW = 16, 16, 12
_DAY_S = 86_400.0


class RowPainter(QStyledItemDelegate):
    """Draws sections, folders and conversations.

    Attributes:
        matcher: Finds the words of the search, which are marked.
        in_bin: Whether the rows are those of the bin.
        drop_row: The row that something is dragged over; -1 for none.
    """

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.matcher = WordMatcher("")
        self.in_bin = False
        self.drop_row = -1

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(80, self.row_height)

    @property
    def row_height(self) -> int:
        """Height of every row: search results and the bin have a second line."""
        return _TWO_LINES if self.matcher or self.in_bin else _ONE_LINE

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        row = index.data(ROW)
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, SectionRow):
            painter.setPen(self._theme.colors.muted)
            painter.setFont(control_font(-1.5, bold=True))
            painter.drawText(area.adjusted(SMALL + 2, 0, 0, -3), _BOTTOM, row.words)
        else:
            paint_row_ground(painter, area, option.state, self._theme.colors)
            if isinstance(row, FolderRow):
                self._paint_folder(painter, area, row)
            elif isinstance(row, ChatRow):
                self._paint_chat(painter, area, row, bool(option.state & QStyle.StateFlag.State_Selected))
        if index.row() == self.drop_row:
            painter.setPen(self._theme.colors.accent)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, RADIUS, RADIUS)
        painter.restore()

    def _paint_folder(self, painter: QPainter, area: QRect, row: FolderRow) -> None:
        colors, ratio = self._theme.colors, painter.device().devicePixelRatioF()
        left, middle = area.left() + TIGHT + row.depth * _INDENT, area.center().y() + 1
        if not self.in_bin:
            arrow = "unfold" if row.folder.expanded else "next"
            painter.drawPixmap(left, middle - _ARROW // 2, line_pixmap(arrow, colors.muted, _ARROW, ratio))
            left += _ARROW + TIGHT
        painter.drawPixmap(left, middle - _ICON // 2, line_pixmap("folder", colors.accent, _ICON, ratio))
        text = area.adjusted(left - area.left() + _ICON + SMALL - 2, 0, -SMALL, 0)
        if self.in_bin:
            self._paint_lines(painter, text, row.folder.name, _days_left(row.folder.deleted_at), "")
            return
        painter.setFont(control_font(-1.5, tabular=True))
        painter.setPen(colors.muted)
        count = f"{row.chats:,}" if row.chats else ""
        painter.drawText(text, _MIDDLE | Qt.AlignmentFlag.AlignRight, count)
        room = text.width() - painter.fontMetrics().horizontalAdvance(count) - (SMALL if count else 0)
        self._paint_title(painter, text, row.folder.name, room)

    def _paint_chat(self, painter: QPainter, area: QRect, row: ChatRow, selected: bool) -> None:
        chat = row.conversation
        inside = SMALL + 2 if not row.depth else TIGHT + _ARROW + TIGHT + (row.depth - 1) * _INDENT + _ICON + SMALL - 2
        text = area.adjusted(inside, 0, -SMALL, 0)
        if self.in_bin:
            self._paint_lines(painter, text, chat.title, _days_left(chat.deleted_at), "", bold=selected)
        elif self.matcher:
            right = row.place or day_words(chat.updated_at)
            self._paint_lines(painter, text, chat.title, row.snippet, right, bold=selected)
        else:
            self._paint_title(painter, text, chat.title, text.width(), bold=selected)

    def _paint_title(self, painter: QPainter, area: QRect, title: str, room: int, *, bold: bool = False) -> None:
        painter.setFont(control_font(bold=bold))
        painter.setPen(self._theme.colors.text)
        shown = painter.fontMetrics().elidedText(title, Qt.TextElideMode.ElideRight, room)
        painter.drawText(area, _MIDDLE, shown)

    def _paint_lines(
        self, painter: QPainter, area: QRect, title: str, below: str, right: str, *, bold: bool = False
    ) -> None:
        """Draw a title over a muted line, and a text at the right; mark the words of the search."""
        colors, small = self._theme.colors, control_font(-1.5)
        upper, lower = area.adjusted(0, 5, 0, 0), area.adjusted(0, 0, 0, -5)
        painter.setFont(small)
        painter.setPen(colors.muted)
        right = painter.fontMetrics().elidedText(right, Qt.TextElideMode.ElideRight, area.width() // 2)
        painter.drawText(upper, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight, right)
        room = area.width() - (painter.fontMetrics().horizontalAdvance(right) + SMALL if right else 0)
        font = control_font(bold=bold)
        self._paint_marked(painter, QPointF(upper.topLeft()), title, font, color=colors.text, width=room)
        top = lower.bottom() + 1 - QFontMetrics(small).height()
        self._paint_marked(painter, QPointF(lower.left(), top), below, small, color=colors.muted, width=area.width())

    def _paint_marked(
        self, painter: QPainter, place: QPointF, text: str, font: QFont, *, color: QColor, width: int
    ) -> None:
        if not text:
            return
        shown = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, width)
        layout = QTextLayout(shown, font)
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(width + 1)
        layout.endLayout()
        painter.setPen(color)
        layout.draw(painter, place, [self._mark(*span) for span in _utf16(shown, self.matcher.spans(shown, 20))])

    def _mark(self, begin: int, end: int) -> QTextLayout.FormatRange:
        mark = QTextLayout.FormatRange()
        mark.start, mark.length = begin, end - begin
        look = QTextCharFormat()
        look.setBackground(self._theme.colors.hit)
        look.setForeground(self._theme.colors.text)
        mark.format = look
        return mark

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        folder = isinstance(index.data(ROW), FolderRow)
        editor.setAccessibleName("New name of the folder" if folder else "New title of the conversation")
        editor.setMaxLength(200)
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: _Index) -> None:
        area: QRect = option.rect
        row = index.data(ROW)
        depth = 0 if isinstance(row, SectionRow) or row is None else row.depth
        left = SMALL + 3 + depth * _INDENT + (_ARROW + _ICON + SMALL if isinstance(row, FolderRow) else 0)
        editor.setGeometry(area.left() + left, area.top() + 2, area.width() - left - SMALL - 3, _ONE_LINE - 4)


_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_BOTTOM = Qt.AlignmentFlag.AlignBottom


def _days_left(deleted_at: float | None) -> str:
    """Return how much longer the bin keeps an item."""
    passed = (time.time() - (deleted_at or 0.0)) / _DAY_S
    left = max(0, min(KEPT_DAYS, round(KEPT_DAYS - passed)))
    return f"{counted(left, 'day')} left" if left else "Less than a day left"


def _utf16(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in UTF-16 units, which Qt counts."""
    if text.isascii() or not spans:
        return spans
    return [(_length(text[:begin]), _length(text[:end])) for begin, end in spans]


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
