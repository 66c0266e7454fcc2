"""A Mac's memory, as tests have the models window judge by."""

from collections.abc import Iterator

import pytest

from rdchat.inference.api.model_room import ModelRoom
from rdchat.services.models.discover.machine_room import MachineRoom

GB = 2**30
MAC_16 = ModelRoom(int(16 * GB * 2 / 3), keeps_quantised=True, total_bytes=16 * GB)


@pytest.fixture
def room() -> Iterator[MachineRoom]:
    """A Mac of 16 GB."""
    room = MachineRoom(lambda: MAC_16)
    yield room
    room.close()
