"""The text size is that of the whole window, and of all windows beside it; at the largest, nothing is cut."""

from collections.abc import Iterator

import pytest
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMenu, QWidget
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import MAX_TEXT_SIZE
from rdchat.ui.style import DEFAULT_TEXT, control_font
from rdchat.ui.window.main_window import MainWindow
from tests.count_surroundings import Surroundings
from tests.ui.conftest import Chat
from tests.ui.cut_texts import cut_texts

_SIZE = 900, 560


def test_the_whole_window_follows_the_text_size(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    """The largest text changed the transcript and the message field alone; the list and the menus stayed small."""
    chat.start()
    parts = [window.menuBar(), window.sidebar.search, *window.conversation.welcome.findChildren(QLabel)]
    before = [part.fontMetrics().height() for part in parts]
    row = window.sidebar.list.sizeHintForRow(0)
    chat.settings.change_values(text_size=MAX_TEXT_SIZE)
    qtbot.waitUntil(
        lambda: all(part.fontMetrics().height() > height for part, height in zip(parts, before, strict=True))
    )
    assert window.menuBar().fontMetrics().height() > 1.3 * before[0]
    chat.say("Hello")
    assert window.sidebar.list.sizeHintForRow(0) > max(row, QFontMetrics(control_font()).height())
    chat.settings.change_values(text_size=DEFAULT_TEXT)
    qtbot.waitUntil(lambda: [part.fontMetrics().height() for part in parts] == before)


def test_a_window_that_is_made_later_has_the_size_of_those_before(chat: Chat, window: MainWindow) -> None:
    label = QLabel("As the others", window)
    label.setFont(control_font(-1))
    chat.settings.change_values(text_size=MAX_TEXT_SIZE)
    assert label.font().pointSizeF() == pytest.approx(control_font(-1).pointSizeF())
    assert QApplication.font().pointSizeF() == pytest.approx(control_font().pointSizeF())


class _Cut(Surroundings):
    """Opens what can be opened, and looks for texts that are cut."""

    def inside(self, window: QWidget) -> Iterator[str]:
        if isinstance(window, QMenu | QFileDialog):
            return
        window.resize(*_SIZE)
        for path, page in self.pages(window):
            self.unfold(page)
            yield from (f"{path}: {each}" for each in cut_texts(window))

    def cut(self) -> list[str]:
        return [f"{each.way}: {text}" for each in self.windows() for text in each.inside]


@pytest.mark.slow
@pytest.mark.qt_log_ignore("must be a top level window")
def test_nothing_is_cut_at_the_largest_text(chat: Chat, window: MainWindow) -> None:
    window.resize(*_SIZE)
    chat.start()
    seen = _Cut(window, chat.controller)
    assert seen.cut() == [], "at the usual size"
    chat.settings.change_values(text_size=MAX_TEXT_SIZE)
    assert "\n".join(seen.cut()) == "", "of windows that were open before"
    window.show_side(window.panel_side)
    seen.unfold(window)
    assert not list(cut_texts(window))
    window.actions_.new_chat.trigger()
    assert not list(cut_texts(window))
