"""The models window over a hub on this machine."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.services.models.discover.machine_room import MachineRoom
from rdchat.ui.models import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.hub.hub_server import HubServer
from tests.hub.surroundings import hub, no_keychain, this_machine_only
from tests.ui.models.rooms import room

__all__ = ["hub", "no_keychain", "room", "this_machine_only"]


@pytest.fixture
def models(qtbot: QtBot, window: MainWindow, hub: HubServer, room: MachineRoom) -> Iterator[ModelsWindow]:
    """The models window, shown, in front of the main one."""
    window.windows.offer_room(room)
    window.conversation.offer_larger_model(room)
    models = window.windows.models
    models.show_page(models.discover)
    qtbot.waitExposed(models)
    yield models
    window.windows.close()
