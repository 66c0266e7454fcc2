"""The pointer rests on every part of a window, and what the tooltips show is read; names that are HTML, with a pipe."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import QAbstractListModel, QEvent, QPoint, QRect
from PySide6.QtGui import QHelpEvent, Qt, QTextDocumentFragment
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHeaderView,
    QLabel,
    QMenu,
    QTabBar,
    QTextBrowser,
    QToolTip,
    QWidget,
)
from shiboken6 import isValid

_OPENS_FOR_WRITING = 'while : > "$1"; do echo opened >> "$2"; done'  # each waits until somebody opens it for reading
_ACROSS = 24  # pixels from place to place where a widget draws its own parts
_DOWN = 12
_MAX_PLACES = 400
_TIP = "qtooltip_label"  # what Qt calls the window of a tooltip, a child of the widget that it is about


class Pipe:
    """A pipe that notes when it is read. Whoever reads it finds it empty: a test that fails does not hang."""

    def __init__(self, path: Path, notes: Path) -> None:
        self.path = path
        self._notes = notes

    @property
    def reads(self) -> int:
        return len(self._notes.read_text().splitlines()) if self._notes.exists() else 0

    def named(self, what: str) -> str:
        """Return a name that is HTML, and has Qt read the pipe where it is taken for that."""
        return f'<img src="{self.path}"><b>evil {what}</b> & <i>more</i>'


@contextmanager
def watched_pipe(folder: Path) -> Iterator[Pipe]:
    """Make a pipe in a folder, and a process that stands at its other end."""
    path = folder / "pipe"
    notes = folder / "reads"
    os.mkfifo(path)
    other = subprocess.Popen(["sh", "-c", _OPENS_FOR_WRITING, "sh", str(path), str(notes)])
    try:
        yield Pipe(path, notes)
    finally:
        other.kill()
        other.wait()


def shown_tips(window: QWidget) -> Iterator[str]:
    """Rest the pointer on each visible part of a window, one after the other; yield what each tooltip shows."""
    for widget in parts_of(window):
        yield from filter(None, tips_of(widget))


def parts_of(window: QWidget) -> Iterator[QWidget]:
    """Yield what a person sees of a window, but for tooltips."""
    for widget in [window, *(each for each in window.findChildren(QWidget) if each.objectName() != _TIP)]:
        if isValid(widget) and widget.isVisible() and widget.window() is window.window():
            yield widget


def tips_of(widget: QWidget) -> Iterator[str]:
    """Rest the pointer on one part, or on each of its rows; yield what each tooltip shows, empty for none."""
    for place in _places(widget):
        yield _tip_at(widget, place)


def menu_tips(menu: QMenu) -> Iterator[str]:
    """Open a menu; rest the pointer on each entry."""
    menu.popup(QPoint(10, 10))
    for action in menu.actions():
        shown = _tip_at(menu, menu.actionGeometry(action).center())
        if shown:
            yield shown
    menu.close()


def rich_labels(window: QWidget) -> list[str]:
    """Return the texts of labels that Qt takes for HTML."""
    labels = [each for each in window.findChildren(QLabel) if each.objectName() != _TIP]
    return [each.text() for each in labels if each.textFormat() != Qt.TextFormat.PlainText and "<" in each.text()]


def _places(widget: QWidget) -> Iterator[QPoint]:
    owner = widget.parentWidget()
    if isinstance(owner, QHeaderView) and widget is owner.viewport():
        for section in range(owner.count()):
            yield QPoint(owner.sectionViewportPosition(section) + 4, widget.height() // 2)
    elif isinstance(owner, QAbstractItemView) and widget is owner.viewport():
        yield from (area.center() for area in _rows(owner))
    elif isinstance(widget, QTabBar):
        yield from (widget.tabRect(place).center() for place in range(widget.count()))
    elif isinstance(owner, QTextBrowser) or type(widget).paintEvent is not _inherited(widget).paintEvent:
        across = range(4, widget.width(), _ACROSS)
        down = range(4, widget.height(), _DOWN)
        yield from [QPoint(x, y) for y in down for x in across][:_MAX_PLACES]
    else:
        yield widget.rect().center()


def _inherited(widget: QWidget) -> type[QWidget]:
    """Return the class of Qt's that the widget's own class derives from."""
    return next(each for each in type(widget).__mro__ if each.__module__.startswith("PySide6"))


def _rows(view: QAbstractItemView) -> Iterator[QRect]:
    model = view.model()
    waiting = [view.rootIndex()]
    while waiting:
        parent = waiting.pop()
        for row in range(model.rowCount(parent)):
            for column in range(1 if isinstance(model, QAbstractListModel) else model.columnCount(parent)):
                index = model.index(row, column, parent)
                area = view.visualRect(index)
                if not area.isEmpty():
                    yield area
            waiting.append(model.index(row, 0, parent))


def _tip_at(widget: QWidget, place: QPoint) -> str:
    QToolTip.hideText()
    _hide_at_once()
    QApplication.sendEvent(widget, QHelpEvent(QEvent.Type.ToolTip, place, widget.mapToGlobal(place)))
    shown = QToolTip.text() if QToolTip.isVisible() else ""
    return QTextDocumentFragment.fromHtml(shown).toPlainText() if Qt.mightBeRichText(shown) else shown


def _hide_at_once() -> None:
    """Hide a tooltip now: Qt waits a little, as the next one may take its place."""
    for window in QApplication.topLevelWidgets():
        if window.objectName() == _TIP:
            window.close()


def check_tips(pipe: Pipe, tips: Iterable[str]) -> set[str]:
    """Hold that tooltips show the pipe's names as they are; return which were shown."""
    seen: set[str] = set()
    for shown in tips:
        for what in re.findall(r"evil (\w+)", shown):
            assert pipe.named(what) in shown
            seen.add(what)
    return seen
