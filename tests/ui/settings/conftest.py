"""The options of one chat, open below a button."""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat


@pytest.fixture
def options(qtbot: QtBot, theme: Theme, chat: Chat) -> Iterator[ChatOptions]:
    chat.start()
    window = QWidget()
    window.resize(900, 900)
    options = ChatOptions(chat.controller, theme, QPushButton("Options", window))
    qtbot.addWidget(window)
    window.show()
    options.open_below()
    yield options
    window.close()
