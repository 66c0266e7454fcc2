"""How much memory a model may take, by what the device says of itself."""

import mlx.core as mx
import pytest

from rdchat import memory
from rdchat.inference.target import device


def test_on_a_cpu_it_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 7)
    assert device.available_memory_bytes() == 7


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"device_name": "NVIDIA H200", "free_memory": 80, "total_memory": 139}, 80),  # as CUDA reports it
        ({"device_name": "Apple M3", "max_recommended_working_set_size": 17, "memory_size": 24}, 17),  # as Metal does
        ({"device_name": "Apple M3", "max_recommended_working_set_size": 99, "memory_size": 128}, 50),
    ],
    ids=["CUDA", "Metal", "Metal with little free"],
)
def test_on_a_gpu_it_is_what_the_device_has(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, str | int], expected: int
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 50)
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: info)
    assert device.available_memory_bytes() == expected
