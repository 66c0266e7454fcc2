"""A sidebar with three chats."""

import pytest
from PySide6.QtCore import QModelIndex
from pytestqt.qtbot import QtBot

from rdchat.inference.api import Role
from rdchat.ui.sidebar.sidebar import Sidebar
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat


@pytest.fixture
def sidebar(qtbot: QtBot, theme: Theme, chat: Chat) -> Sidebar:
    for title in ("Bread", "Lisbon", "Python"):
        stored = chat.store.create_conversation(title)
        chat.store.add_message(stored.id, None, Role.USER, f"About {title}")
    sidebar = Sidebar(chat.chats, theme)
    qtbot.addWidget(sidebar)
    sidebar.resize(260, 500)
    sidebar.show()
    chat.start()
    return sidebar


def index_of(sidebar: Sidebar, words: str) -> QModelIndex:
    rows = sidebar.list.rows
    return rows.index([str(rows.data(rows.index(place))) for place in range(rows.rowCount())].index(words))
