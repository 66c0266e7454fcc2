"""The options of one chat, open below a button."""

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat


@pytest.fixture
def options(qtbot: QtBot, theme: Theme, chat: Chat) -> ChatOptions:
    chat.start()
    options = ChatOptions(chat.open, chat.settings, chat.slot, theme)
    anchor = QPushButton()
    for each in (options, anchor):
        qtbot.addWidget(each)
    anchor.show()
    options.open_below(anchor)
    return options
