"""The models window over a hub on this machine and the scripted engine."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.services.models.service_base import ModelSources
from rdchat.services.models.window_services import Models
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.style import Theme
from tests.hub.hub_server import HubServer
from tests.ui.conftest import Chat


@pytest.fixture
def models(hub: HubServer, chat: Chat) -> Iterator[Models]:
    """What the window works with, as the app builds it."""
    chat.start()
    controller = chat.controller
    models = Models(controller, ModelSources())
    yield models
    models.end_services()


@pytest.fixture
def models_window(qtbot: QtBot, theme: Theme, models: Models) -> ModelsWindow:
    """The window with its downloads in front."""
    window = ModelsWindow(models, theme)
    qtbot.addWidget(window)
    window.show_page(window.downloads)
    qtbot.waitExposed(window)
    return window
