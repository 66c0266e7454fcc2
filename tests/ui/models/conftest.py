"""The models window over a hub on this machine."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api.model_room import ModelRoom
from rdchat.services.models.machine_room import MachineRoom
from rdchat.ui.models import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.hub.hub_server import HubServer
from tests.hub.surroundings import hub, no_keychain, this_machine_only

__all__ = ["hub", "no_keychain", "this_machine_only"]

GB = 2**30
MAC_16 = ModelRoom(int(16 * GB * 2 / 3), keeps_quantised=True, total_bytes=16 * GB)


@pytest.fixture
def room() -> Iterator[MachineRoom]:
    """A Mac of 16 GB."""
    room = MachineRoom(lambda: MAC_16)
    yield room
    room.close()


@pytest.fixture
def models(qtbot: QtBot, window: MainWindow, hub: HubServer, room: MachineRoom) -> Iterator[ModelsWindow]:
    """The models window, shown, in front of the main one."""
    window.offer_room(room)
    models = window.windows.models
    models.show_page(models.discover)
    qtbot.waitExposed(models)
    yield models
    window.windows.close()
