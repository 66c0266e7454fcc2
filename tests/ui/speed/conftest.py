"""The draft controls of a chat."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.speed.draft_controls import DraftControls
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat


@pytest.fixture
def panel_visible() -> bool:
    return True


@pytest.fixture
def controls(qtbot: QtBot, theme: Theme, chat: Chat) -> DraftControls:
    controls = DraftControls(chat.controller.drafting, theme)
    qtbot.addWidget(controls)
    controls.fold(False)
    controls.show()
    return controls
