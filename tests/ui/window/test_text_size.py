"""The text size concerns all text of a window, at once; and nothing is cut at the largest one."""

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QLineEdit, QMenu, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.plots.plot_view import Chart
from rdchat.ui.style.buttons import IconButton
from rdchat.ui.style.labels import ElidedLabel
from rdchat.ui.style.opening import show_in_front
from rdchat.ui.style.theme import DEFAULT_TEXT, LARGEST_TEXT, SMALLEST_TEXT, Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat


def _shown(window: QWidget) -> list[QWidget]:
    return [each for each in window.findChildren(QWidget) if each.isVisible()]


def _sizes(window: QWidget) -> dict[QWidget, float]:
    return {window: window.font().pointSizeF()} | {each: each.font().pointSizeF() for each in _shown(window)}


def _not_grown(window: QWidget, before: dict[QWidget, float]) -> list[str]:
    after = _sizes(window)
    return [_described(each) for each in before.keys() & after.keys() if after[each] <= before[each]]


def _described(widget: QWidget) -> str:
    parents = [type(each).__name__ for each in (widget.parentWidget(), widget) if each]
    text = widget.text() if isinstance(widget, QLabel | QAbstractButton) else widget.accessibleName()
    return f"{'/'.join(parents)} {text!r}"


def _filled(chat: Chat, window: MainWindow, qtbot: QtBot) -> None:
    chat.start()
    chat.say("Hello **there**")
    window.conversation.files.add_text("A text")
    window.commands.find()
    for section in window.panel.sections:
        section.fold(False)


@pytest.mark.parametrize("points", [DEFAULT_TEXT + 1, LARGEST_TEXT])
def test_all_text_of_the_window_grows_and_comes_back(qtbot: QtBot, chat: Chat, window: MainWindow, points: int) -> None:
    _filled(chat, window, qtbot)
    before = _sizes(window)
    row, chart = window.sidebar.list.painter.row_height, window.panel.findChildren(Chart)[0].drawing.width
    chat.controller.settings.update(text_size=points)
    # Qt tells its own controls with the next events.
    qtbot.waitUntil(lambda: _sizes(window)[window] > before[window])
    assert _not_grown(window, before) == []
    assert window.sidebar.list.painter.row_height > row
    assert window.panel.findChildren(Chart)[0].drawing.width < chart, "labels take more of it"
    menu = QMenu("A menu of ours", window)
    assert menu.fontInfo().pointSizeF() == pytest.approx(QApplication.font().pointSizeF(), abs=0.5)
    chat.controller.settings.update(text_size=DEFAULT_TEXT)
    qtbot.waitUntil(lambda: _sizes(window)[window] == before[window])
    assert {each: size for each, size in _sizes(window).items() if before.get(each, size) != size} == {}


def test_a_window_that_opens_later_has_the_same_fonts(
    qtbot: QtBot, chat: Chat, window: MainWindow, theme: Theme
) -> None:
    chat.start()
    show_in_front(window.settings_window)
    before = _sizes(window.settings_window)
    theme.set_text_size(20)
    qtbot.waitUntil(lambda: window.settings_window.font().pointSizeF() == QApplication.font().pointSizeF())
    assert _not_grown(window.settings_window, before) == []
    window.windows.open_discover("")
    fields = window.windows.models.findChildren(QLineEdit)
    assert {each.font().pointSizeF() for each in fields} == {window.sidebar.search.font().pointSizeF()}
    window.windows.close()


def _cut(window: QWidget) -> Iterator[str]:
    """Yield the texts that have too little room; those that end in an ellipsis show the rest in a tooltip."""
    for widget in _shown(window):
        need = QRect()
        if isinstance(widget.parentWidget(), QLineEdit):
            continue  # Qt lays out the icons within its fields
        if isinstance(widget, IconButton) and not widget.text():
            continue  # its icon fits
        if isinstance(widget, QLabel) and not isinstance(widget, ElidedLabel) and widget.text():
            wide = widget.wordWrap()
            height = widget.heightForWidth(widget.width()) if wide else widget.sizeHint().height()
            need = QRect(0, 0, 0 if wide else widget.sizeHint().width(), height)
        elif isinstance(widget, QAbstractButton | QComboBox | QLineEdit):
            need = QRect(0, 0, widget.minimumSizeHint().width(), widget.minimumSizeHint().height())
        if need.width() > widget.width() + 1 or need.height() > widget.height() + 1:
            yield f"{_described(widget)} needs {need.size().toTuple()}, has {widget.size().toTuple()}"


@pytest.mark.parametrize("panel", [False, True], ids=["chats", "panel"])
@pytest.mark.parametrize("points", [SMALLEST_TEXT, DEFAULT_TEXT, LARGEST_TEXT])
def test_nothing_is_cut_in_a_small_window(
    qtbot: QtBot, chat: Chat, window: MainWindow, panel: bool, points: int
) -> None:
    window.resize(900, 560)
    _filled(chat, window, qtbot)
    chat.controller.settings.update(text_size=points)
    if panel:
        window.show_side(window.panel)
    qtbot.waitUntil(lambda: window.panel.isVisible() is panel)
    qtbot.waitUntil(lambda: window.font().pointSizeF() == QApplication.font().pointSizeF())
    QApplication.sendPostedEvents()  # the layouts
    assert window.size().toTuple() == (900, 560)
    assert list(_cut(window)) == []
