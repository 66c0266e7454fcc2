"""What is typed outside of text fields goes to the message field."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QInputMethodQueryEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, press_key


@pytest.fixture
def panel_visible() -> bool:
    return True


@pytest.fixture
def ready(qtbot: QtBot, chat: Chat, window: MainWindow) -> MainWindow:
    chat.start("Hi")
    window.panel.drafting.fold(False)
    activate(window)
    return window


def _focus(window: MainWindow, part: str) -> None:
    reply = list(window.conversation.transcript.widgets.values())[-1]
    widgets = {
        "list": window.sidebar.list,
        "reply": reply.body,
        "button": reply.actions_row.copy_button,
        "mode": window.panel.drafting.mode,
        "fold": window.panel.drafting.head,
    }
    widgets[part].setFocus()
    assert QApplication.focusWidget() is widgets[part]


@pytest.mark.parametrize("part", share(["list", "reply", "button", "mode", "fold"], 5))
def test_letters_go_to_the_message_field(ready: MainWindow, part: str) -> None:
    field = ready.conversation.composer.field
    mode = ready.panel.drafting.mode.currentIndex()
    _focus(ready, part)
    QTest.keyClicks(QApplication.focusWidget(), "O")
    QTest.keyClicks(QApplication.focusWidget(), "ff it is")
    assert field.toPlainText() == "Off it is"
    assert field.hasFocus()
    assert ready.panel.drafting.mode.currentIndex() == mode


@pytest.mark.parametrize("part", share(["list", "reply", "mode"], 3))
def test_input_methods_write_into_the_message_field(ready: MainWindow, part: str) -> None:
    _focus(ready, part)
    focused = QApplication.focusWidget()
    query = QInputMethodQueryEvent(Qt.InputMethodQuery.ImEnabled)  # as the platform plugins ask
    QApplication.sendEvent(focused, query)
    assert query.value(Qt.InputMethodQuery.ImEnabled)
    event = QInputMethodEvent()
    event.setCommitString("日本")
    QApplication.sendEvent(focused, event)
    assert ready.conversation.composer.text == "日本"


def test_paste_goes_to_the_message_field(ready: MainWindow) -> None:
    QGuiApplication.clipboard().setText("pasted")
    _focus(ready, "reply")
    ready.actions_.paste.trigger()
    assert ready.conversation.composer.text == "pasted"


def test_text_fields_and_commands_keep_their_keys(ready: MainWindow) -> None:
    ready.sidebar.search.setFocus()
    QTest.keyClicks(ready.sidebar.search, "hi")
    QGuiApplication.clipboard().setText("!")
    ready.actions_.paste.trigger()
    assert ready.sidebar.search.text() == "hi!"
    _focus(ready, "list")
    press_key(ready.sidebar.list, "Down")
    press_key(ready.sidebar.list, "Ctrl+E")
    assert ready.conversation.composer.text == ""
    assert ready.sidebar.list.hasFocus()
