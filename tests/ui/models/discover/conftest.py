"""The models window over a hub on this machine."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.hub.hub_server import HubServer
from tests.services.models.macs import sources

__all__ = ["sources"]


@pytest.fixture
def models_window(qtbot: QtBot, window: MainWindow, hub: HubServer) -> Iterator[ModelsWindow]:
    """The models window, shown, in front of the main one."""
    models_window = window.windows.models
    models_window.show_page(models_window.discover)
    qtbot.waitExposed(models_window)
    yield models_window
    window.windows.end_background_work()


@pytest.fixture
def page(models_window: ModelsWindow) -> DiscoverPage:
    return models_window.discover
