"""What the system tells the app."""

import logging
import subprocess
import sys

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.window.application import ON_SCREEN, ExposureLog

OPENING = """
from PySide6.QtGui import QFileOpenEvent
from rdchat.app import application
qt = application()
qt.file_opened.connect(print)
qt.sendEvent(qt, QFileOpenEvent("/models/a b.gguf"))
qt.sendEvent(qt, QFileOpenEvent(""))
"""


def test_a_file_that_the_system_hands_over_is_told() -> None:
    """A process of its own: there is one application in each."""
    done = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("/models/a b.gguf\n", "")


def test_a_window_on_the_screen_is_logged_once(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.winId()
    caplog.set_level(logging.INFO, "rdchat")
    ExposureLog(window.windowHandle())
    assert ON_SCREEN not in caplog.text
    window.show()
    qtbot.waitUntil(lambda: ON_SCREEN in caplog.text)
    window.hide()
    window.show()
    qtbot.waitExposed(window)
    assert caplog.text.count(ON_SCREEN) == 1
