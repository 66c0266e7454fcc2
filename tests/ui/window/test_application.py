"""What the system tells the app."""

import logging
import subprocess
import sys

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import ON_SCREEN, MainWindow
from tests.ui.conftest import Chat

OPENING = """
from PySide6.QtCore import QUrl
from PySide6.QtGui import QFileOpenEvent
from rdchat.app import application
qt = application()
qt.opened.connect(print)
qt.sendEvent(qt, QFileOpenEvent("/models/a b.gguf"))
qt.sendEvent(qt, QFileOpenEvent(""))
qt.sendEvent(qt, QFileOpenEvent(QUrl("rdchat://ask?text=a%20b")))
"""


@pytest.mark.slow
def test_a_file_that_the_system_hands_over_is_told() -> None:
    """A process of its own: there is one application in each."""
    done = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("/models/a b.gguf\nrdchat://ask?text=a%20b\n", "")


def test_a_window_on_the_screen_is_logged_once(
    qtbot: QtBot, theme: Theme, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rdchat")
    window = MainWindow(chat.controller, theme, TranscriptView(theme, unsent=chat.open.unsent))
    qtbot.addWidget(window)
    assert ON_SCREEN not in caplog.text
    window.show()
    qtbot.waitUntil(lambda: ON_SCREEN in caplog.text)
    window.hide()
    window.show()
    qtbot.waitExposed(window)
    assert caplog.text.count(ON_SCREEN) == 1
