"""A Mac's memory, as tests have the models window judge by."""

import pytest

from rdchat.inference.api import MachineMemory, MemoryRoom
from rdchat.services.models.fit import Machine
from rdchat.services.models.model_sources import ModelSources

GB = 2**30


def mac(memory_gb: int) -> Machine:
    """Return an idle Mac, of whose memory Metal recommends two thirds, and three quarters from 36 GB on."""
    total = memory_gb * GB
    room = MemoryRoom(int(total * (0.75 if memory_gb >= 36 else 2 / 3)), total)
    return Machine(MachineMemory(on_gpu=True, total_bytes=total, room=room, held_bytes=0))


MAC_16 = mac(16)


@pytest.fixture
def sources() -> ModelSources:
    """A Mac of 16 GB without models."""
    return ModelSources(memory=lambda: MAC_16.memory)
