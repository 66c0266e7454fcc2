"""Finds texts of a window that its widgets cut; labels that end in an ellipsis where they must do so by design."""

from collections.abc import Iterator

from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QStyle,
    QStyleOptionComboBox,
    QTabBar,
    QTreeWidget,
    QTreeWidgetItemIterator,
    QWidget,
)

from rdchat.ui.style import ElidedLabel

# The share of a line's height that is above and below its letters.
_SPARE = 0.2


def cut_texts(window: QWidget) -> Iterator[str]:
    """Yield what is wrong with each text that is cut by its own widget, or by one around it that does not scroll."""
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or widget.window() is not window.window():
            continue
        if isinstance(widget, QTabBar):
            hidden = (place for place in range(widget.count()) if not widget.rect().contains(widget.tabRect(place)))
            yield from (f"the tab {widget.tabText(place)}" for place in hidden)
        elif isinstance(widget, QTreeWidget):
            yield from _cut_cells(widget)
        elif (needed := _needed(widget)) is not None:
            spare = _SPARE * widget.fontMetrics().height()
            if needed.width() > widget.width() or needed.height() > widget.height() + spare:
                yield f"{_text(widget)!r}: {widget.size()} of {needed}"
            if around := _cut_by(widget, window):
                yield f"{_text(widget)!r}: {around}"


def _text(widget: QWidget) -> str:
    if isinstance(widget, QComboBox):
        return widget.currentText()
    if isinstance(widget, QLineEdit):
        return widget.placeholderText()
    return widget.text() if isinstance(widget, QLabel | QAbstractButton | QAbstractSpinBox) else ""


def _needed(widget: QWidget) -> QSize | None:
    """Return the size that a widget's text needs, as far as that can be known; None if it shows none."""
    metrics = widget.fontMetrics()
    if not _text(widget):
        return None
    line = QSize(metrics.horizontalAdvance(_text(widget).replace("&&", "&")), metrics.height())
    if isinstance(widget, ElidedLabel):
        return QSize(0, line.height())
    if isinstance(widget, QLabel) and widget.wordWrap():
        widest = max(map(metrics.horizontalAdvance, _text(widget).split()))
        return QSize(widest, widget.heightForWidth(widget.width()))
    if isinstance(widget, QLabel):
        return widget.sizeHint()
    if isinstance(widget, QPushButton | QCheckBox | QRadioButton):
        return widget.minimumSizeHint()
    if isinstance(widget, QAbstractButton):
        return line if widget.icon().isNull() else None  # a button with an icon may show it alone
    if isinstance(widget, QComboBox):
        option = QStyleOptionComboBox()
        widget.initStyleOption(option)
        style = QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, widget
        around = widget.size() - widget.style().subControlRect(*style).size()
        return QSize(line.width() + around.width(), line.height())
    around_width = widget.width() - widget.lineEdit().width() if isinstance(widget, QAbstractSpinBox) else 0
    return QSize(line.width() + around_width, line.height())


def _cut_by(widget: QWidget, window: QWidget) -> str:
    """Return which widget around a text cuts it; what scrolls cuts it only sideways, and then only without a bar."""
    area = QRect(QPoint(), widget.size())
    part = widget
    while part is not window:
        area.translate(part.pos())
        part = part.parentWidget()
        room = part.rect()
        owner = part.parentWidget()
        if isinstance(owner, QAbstractScrollArea) and part is owner.viewport():
            if owner.verticalScrollBar().maximum() > 0:
                room.setTop(area.top())
                room.setBottom(area.bottom())
            if owner.horizontalScrollBar().maximum() > 0:
                return ""
            if not room.contains(area):
                return f"{type(owner).__name__} cuts it: {area} of {room}"
            if owner.verticalScrollBar().maximum() > 0:
                return ""
        if not room.contains(area):
            return f"{type(part).__name__} cuts it: {area} of {room}"
    return ""


def _cut_cells(tree: QTreeWidget) -> Iterator[str]:
    cells = QTreeWidgetItemIterator(tree)
    while (item := cells.value()) is not None:
        for column in range(1, tree.columnCount()):
            if tree.fontMetrics().horizontalAdvance(item.text(column)) > tree.columnWidth(column):
                yield f"{item.text(column)!r} in column {column}"
        cells += 1
