"""Each stop of Tab shows that it has the focus, in light and dark."""

from collections.abc import Iterator

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QTabWidget, QTextEdit, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme, column, push_button, show_in_front
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key

_AROUND = 16
# Differences of a channel that an eye sees as a line, and the share of the outline that has one.
_SEEN = 40
_SHARE = 0.4
_MOST_STOPS = 90

both = pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark], ids=["light", "dark"])


def _seen(one: QImage, other: QImage) -> int:
    """Return how many pixels of two pictures differ so much that one sees it."""
    pixels = [
        np.frombuffer(each.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint8).astype(int)
        for each in (one, other)
    ]
    differences = np.abs(pixels[0] - pixels[1]).reshape(-1, 4)
    return int((differences.max(axis=1) >= _SEEN).sum())


def _picture(widget: QWidget) -> QImage:
    window = widget.window()
    area = QRect(widget.mapTo(window, QPoint()), widget.size()).adjusted(-_AROUND, -_AROUND, _AROUND, _AROUND)
    return window.grab(area & window.rect()).toImage()


def stops_of(window: QWidget) -> Iterator[QWidget]:
    """Go from stop to stop by Tab, until one comes again."""
    press_key(QApplication.focusWidget(), "Tab")
    seen: set[QWidget] = set()
    while (widget := QApplication.focusWidget()) is not None and widget not in seen and len(seen) < _MOST_STOPS:
        seen.add(widget)
        yield widget
        press_key(QApplication.focusWidget(), "Tab")


def _described(widget: QWidget) -> str:
    names = [type(each).__name__ for each in (widget.parentWidget(), widget) if each]
    return f"{'/'.join(names)} {widget.accessibleName() or getattr(widget, 'text', str)()!r}"


def without_ring(window: QWidget) -> list[str]:
    """Return the stops of Tab in a window that look as they do without the focus."""
    missing = []
    count = 0
    for widget in stops_of(window):
        count += 1
        if isinstance(widget, QPlainTextEdit | QTextEdit):
            widget.setCursorWidth(0)  # a caret is no ring
        focused = _picture(widget)
        widget.clearFocus()
        seen = _seen(focused, _picture(widget))
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        if seen < _SHARE * min(widget.width(), 2 * _AROUND):
            missing.append(f"{_described(widget)}: {seen} pixels of {widget.width()} x {widget.height()}")
    assert count > 1, "Tab goes nowhere"
    return missing


class _Plain(QWidget):
    """Takes the focus, and does not show it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, focusPolicy=Qt.FocusPolicy.StrongFocus, accessibleName="Plain")


def test_a_stop_without_a_ring_is_found(qtbot: QtBot, theme: Theme) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    column(_Plain(page), push_button("One"), push_button("Two"), within=page)
    page.show()
    page.activateWindow()
    qtbot.waitUntil(lambda: QApplication.focusWidget() is not None)
    assert [each.partition(":")[0] for each in without_ring(page)] == ["QWidget/_Plain 'Plain'"]


@both
def test_every_stop_of_the_main_window_shows_the_focus(
    qtbot: QtBot, chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    window.resize(1300, 1500)
    chat.start()
    chat.say("Hello **there**, see https://example.org\n\n```\n" + "x" * 400 + "\n```")
    window.conversation.files.add_text("A text")
    window.commands.search_in_front()
    window.activateWindow()
    composer = window.conversation.composer
    composer.set_text("and")
    composer.setFocus()
    for section in window.panel.sections:
        section.fold(False)
    qtbot.waitUntil(lambda: composer.files.geometry().bottom() < composer.height())
    assert without_ring(window) == []


@pytest.mark.slow
@both
def test_every_stop_of_settings_and_models_shows_the_focus(
    chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    chat.start()
    missing: list[str] = []
    for side in (window.settings_window, window.windows.models):
        show_in_front(side)
        side.activateWindow()
        tabs = side.tabs.tabBar() if isinstance(side.tabs, QTabWidget) else side.tabs
        for index in range(tabs.count()):
            tabs.setCurrentIndex(index)
            tabs.setFocus(Qt.FocusReason.TabFocusReason)
            missing += [f"{tabs.tabText(index)}: {each}" for each in without_ring(side)]
    window.windows.end_background_work()
    assert missing == []


@both
def test_every_stop_of_chat_options_shows_the_focus(
    chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    chat.start()
    window.actions_.options.trigger()
    popup = QApplication.activePopupWidget()
    missing = without_ring(popup)
    popup.close()
    assert missing == []
