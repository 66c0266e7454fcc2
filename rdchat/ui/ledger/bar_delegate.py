"""Draws a share as a bar behind its figure, on top of what the system's style draws."""

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QApplication, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from rdchat.ui.ledger.model import SHARE_ROLE
from rdchat.ui.look.theme import TIGHT, Theme

_FIGURE_ROOM = 48.0  # pixels for `100.0` to the right of the bar
_LEAST_BAR = 60  # pixels; a shorter one tells nothing
_AIR = 8  # pixels that a row is higher than its text


class BarDelegate(QStyledItemDelegate):
    """For a column whose model answers `SHARE_ROLE`."""

    def __init__(self, theme: Theme, parent: QObject) -> None:
        super().__init__(parent)
        self._theme = theme

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        share = index.data(SHARE_ROLE)
        super().paint(painter, option, index)
        if share is None or option.rect.width() < _LEAST_BAR + _FIGURE_ROOM:
            return
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        area = QRectF(option.rect).adjusted(TIGHT, 0, -_FIGURE_ROOM, 0)
        track = QRectF(area.left(), area.center().y() - 3, area.width(), 6)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        fill = QApplication.palette().highlightedText().color() if selected else self._theme.colors.accent
        ground = QColor(fill)
        ground.setAlpha(40)
        painter.setBrush(ground)
        painter.drawRoundedRect(track, 3, 3)
        painter.setBrush(fill)
        track.setWidth(track.width() * min(share, 1.0))
        painter.drawRoundedRect(track, 3, 3)
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        hint = super().sizeHint(option, index)
        return QSize(hint.width(), option.fontMetrics.height() + _AIR)
