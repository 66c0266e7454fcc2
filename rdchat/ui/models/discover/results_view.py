"""The list at the left, and how a row is drawn."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import QFrame, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.ui.look.row_ground import paint_row_ground
from rdchat.ui.look.theme import SMALL, Theme, control_font
from rdchat.ui.models.discover.results_model import ROW, Index, ResultsModel, Row

_ROW_HEIGHT, _HEADING_HEIGHT = 48, 34
_LEAST_TITLE = 60
_NEARLY = 300  # pixels from the end at which more is asked for


class ResultDelegate(QStyledItemDelegate):
    """Draws a name and its marks over its facts; a heading in one muted line."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row: Row = index.data(ROW)
        return QSize(120, _ROW_HEIGHT if row.repository else _HEADING_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: Row = index.data(ROW)
        area: QRect = option.rect.adjusted(SMALL, 1, -SMALL, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if row.repository:
            paint_row_ground(painter, area, option.state, self._theme.colors)
            self._paint_row(painter, row, area.adjusted(SMALL + 2, 6, -SMALL, -6))
        else:
            painter.setPen(self._theme.colors.muted)
            painter.setFont(control_font(-1, bold=True))
            text = painter.fontMetrics().elidedText(row.title, Qt.TextElideMode.ElideRight, area.width() - SMALL)
            painter.drawText(area.adjusted(SMALL + 2, 0, 0, -4), Qt.AlignmentFlag.AlignBottom, text)
        painter.restore()

    def _paint_row(self, painter: QPainter, row: Row, text: QRect) -> None:
        colors = self._theme.colors
        small = control_font(-1.5)
        painter.setFont(small)
        right = text.right()
        for mark, color in reversed(row.marks):
            painter.setPen(getattr(colors, color))
            width = painter.fontMetrics().horizontalAdvance(mark)
            painter.drawText(
                QRect(right - width, text.top() + 1, width + 1, text.height()), Qt.AlignmentFlag.AlignTop, mark
            )
            right -= width + SMALL
        painter.setPen(colors.muted)
        use = painter.fontMetrics().horizontalAdvance(row.use)
        room = text.width() - (use + SMALL if row.use else 0)
        facts = painter.fontMetrics().elidedText(row.facts, Qt.TextElideMode.ElideRight, room)
        painter.drawText(text, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft, facts)
        painter.drawText(text, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignRight, row.use)
        painter.setPen(colors.text)
        painter.setFont(control_font())
        width = max(right - text.left(), _LEAST_TITLE)
        title = painter.fontMetrics().elidedText(row.title, Qt.TextElideMode.ElideMiddle, width)
        painter.drawText(text, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, title)


class ResultsView(QListView):
    """Up and Down go from model to model, Return to what is told of one."""

    chosen = Signal(object)  # a Row
    opened = Signal()
    more_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = ResultsModel(self)
        self.setModel(self.rows)
        self.setItemDelegate(ResultDelegate(theme, self))
        self.setAccessibleName("Models found")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setMouseTracking(True)  # hover
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.selectionModel().currentChanged.connect(self._choose)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self.ask_for_more)
        bar.rangeChanged.connect(self.ask_for_more)
        theme.changed.connect(self.viewport().update)

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows."""
        # else each is asked for its height, anew each time; headings are lower
        self.setUniformItemSizes(all(row.repository for row in rows))
        self.rows.set_rows(rows)

    def select(self, repository: str) -> None:
        """Mark a model, or none, without choosing it anew."""
        index = self.rows.index_of(repository)
        self.selectionModel().blockSignals(True)
        self.setCurrentIndex(index)
        if not index.isValid():
            self.selectionModel().clear()
        self.selectionModel().blockSignals(False)
        self.viewport().update()

    def choose_first(self) -> None:
        """Go to the first model, where none is chosen."""
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        if not self.currentIndex().isValid():
            for place in range(self.rows.rowCount()):
                if self.rows.row_at(self.rows.index(place)).repository:
                    self.setCurrentIndex(self.rows.index(place))
                    return

    def ask_for_more(self) -> None:
        """Tell that the end is near, if it is."""
        bar = self.verticalScrollBar()
        if self.rows.rowCount() and bar.maximum() - bar.value() < _NEARLY:
            self.more_wanted.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.opened.emit()
        else:
            super().keyPressEvent(event)

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.row_at(index))
