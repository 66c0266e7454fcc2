"""Where the focus goes by Tab, and that it stays where a control is disabled."""

import pytest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key


def _focused() -> QWidget:
    widget = QApplication.focusWidget()
    assert widget is not None
    return widget


@pytest.mark.slow
def test_tab_goes_from_the_reply_to_the_field_and_then_to_the_panel(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    chat.start()
    chat.say("Hello")
    window.activateWindow()
    composer = window.conversation.composer
    transcript = window.conversation.transcript
    composer.set_text("and")
    reply = list(transcript.widgets.values())[-1]
    reply.body.setFocus()
    qtbot.waitUntil(reply.body.hasFocus)
    visited: list[QWidget] = []
    while not window.panel.isAncestorOf(_focused()):
        visited.append(_focused())
        press_key(_focused(), "Tab")
        assert len(visited) < 30
    assert visited[-2:] == [composer.field, composer.button]
    names = [widget.accessibleName() for widget in visited if reply.isAncestorOf(widget)]
    assert {"Copy reply", "Regenerate reply", "Details"} <= set(names)
    press_key(_focused(), "Shift+Backtab")
    assert _focused() is visited[-1]


def test_the_focus_stays_on_the_button_that_sends_and_stops(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    window.activateWindow()
    button = window.conversation.composer.button
    window.conversation.composer.set_text("Hello")
    button.setFocus()
    qtbot.waitUntil(button.hasFocus)
    chat.engine.gate.shut()
    press_key(button, "Space")
    qtbot.waitUntil(lambda: button.accessibleName() == "Stop")
    assert button.hasFocus()
    press_key(button, "Space")
    chat.finish_reply()
    assert button.hasFocus()
    assert not button.isEnabled()


def test_what_has_the_focus_is_in_view_also_when_tab_comes_from_outside(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    """At the end of a long chat, Tab from the list went to the first message's buttons, above the window."""
    chat.start()
    chat.say("A short question.")
    chat.say("A long question. " * 400)
    transcript = window.conversation.transcript
    window.activateWindow()
    window.conversation.composer.field.setFocus()
    qtbot.waitUntil(window.conversation.composer.field.hasFocus)
    bar = transcript.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > transcript.viewport().height())
    bar.setValue(bar.maximum())
    for _ in range(60):
        press_key(_focused(), "Tab")
        if transcript.column.isAncestorOf(_focused()):
            break
    assert transcript.column.isAncestorOf(_focused())
    assert not _focused().visibleRegion().isEmpty()
