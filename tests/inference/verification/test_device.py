"""How much memory a model may use, from the device's own figures; and what is kept in memory."""

import mlx.core as mx
import pytest

from rdchat import host, machine
from rdchat.inference.verification import device
from rdchat.inference.verification.device import MemoryRoom

M3 = {"device_name": "Apple M3", "max_recommended_working_set_size": 17, "memory_size": 24}


def test_on_a_cpu_it_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 7)
    monkeypatch.setattr(device, "on_gpu", lambda: False)
    assert device.memory_room() == MemoryRoom(7, 7)


@pytest.mark.parametrize(
    ("info", "held", "expected"),
    [
        ({"device_name": "NVIDIA H200", "free_memory": 80, "total_memory": 139}, 5, MemoryRoom(80, 80)),
        (M3, 0, MemoryRoom(17, 12)),
        (M3, 5, MemoryRoom(12, 12)),
        (M3, 20, MemoryRoom(0, 12)),
    ],
    ids=["CUDA", "Metal", "Metal beside another model", "Metal beside too large a model"],
)
def test_on_a_gpu_it_is_what_the_device_has(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, str | int], held: int, expected: MemoryRoom
) -> None:
    """With Metal that is the working set it recommends: what psutil says is free on macOS refused good models."""
    monkeypatch.setattr(machine, "available_bytes", lambda: 12)
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: info)
    monkeypatch.setattr(mx, "get_active_memory", lambda: held)
    assert device.memory_room() == expected


@pytest.mark.parametrize(("macos", "limits"), [(True, [17, 0]), (False, [])])
def test_memory_is_wired_where_there_is_metal(monkeypatch: pytest.MonkeyPatch, macos: bool, limits: list[int]) -> None:
    found: list[int] = []
    monkeypatch.setattr(host, "MACOS", macos)
    monkeypatch.setattr(mx, "device_info", lambda: M3)
    monkeypatch.setattr(mx, "set_wired_limit", found.append)
    device.wire_memory()
    device.unwire_memory()
    assert found == limits
