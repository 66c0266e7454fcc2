"""Draws a figure in two lines: the median, and its quartiles smaller and fainter below it."""

from PySide6.QtCore import QLocale, QModelIndex, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPalette
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font

_Index = QModelIndex | QPersistentModelIndex


class FigureDelegate(QStyledItemDelegate):
    """For cells whose text has a second line; others are drawn as usual."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def displayText(self, value: object, locale: QLocale | QLocale.Language) -> str:
        return "" if "\n" in str(value) else str(value)  # those are drawn here

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        fonts = (control_font(), _small())
        sizes = [QFontMetrics(font).size(0, line) for line, font in zip(_lines(index), fonts, strict=False)]
        width = max(size.width() for size in sizes) + 2 * SMALL
        return QSize(width, sum(size.height() for size in sizes) + 2 * TIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        super().paint(painter, option, index)  # the ground, and the text of one line
        median, *quartiles = _lines(index)
        if not quartiles:
            return
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        area = option.rect.adjusted(TIGHT, TIGHT, -TIGHT, -TIGHT)
        palette = option.palette
        colors = self._theme.colors
        painter.save()
        for font, line, color, place in (
            (control_font(), median, colors.text, Qt.AlignmentFlag.AlignTop),
            (_small(), quartiles[0], colors.muted, Qt.AlignmentFlag.AlignBottom),
        ):
            painter.setFont(font)
            painter.setPen(palette.color(QPalette.ColorRole.HighlightedText) if selected else color)
            painter.drawText(area, Qt.AlignmentFlag.AlignRight | place, line)
        painter.restore()


def _lines(index: _Index) -> list[str]:
    return str(index.data()).split("\n")


def _small() -> QFont:
    return control_font(-1.5, tabular=True)
