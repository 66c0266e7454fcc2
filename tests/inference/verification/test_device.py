"""The memory a model may use, the words of MLX's errors, and the facts about the device."""

import gc
import shutil
import subprocess

import mlx.core as mx
import pytest

from rdchat import host, machine
from rdchat.errors import DeviceError, OutOfMemoryError, RanksError
from rdchat.inference import device
from rdchat.inference.device import (
    READING,
    MemoryRoom,
    ReadingSpeed,
    device_errors,
    engine_facts,
    is_device_error,
    machine_memory,
    matmul_gflops,
    memory_errors,
    on_gpu,
)
from rdchat.machine import OtherPrograms
from tests.inference.metal_words import WORDS

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


ERRORS = [
    RuntimeError(WORDS),
    RuntimeError(
        "[metal::malloc] Attempting to allocate 83404284800 bytes which is greater than the maximum allowed buffer "
        "size of 77309411328 bytes."
    ),
    RuntimeError("[metal::malloc] Resource limit (499000) exceeded."),
    RuntimeError("[malloc] Unable to allocate 1073741824 bytes."),
    RuntimeError("cudaMallocAsync(&data, size, stream) failed: out of memory"),
    MemoryError("std::bad_alloc"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_the_words_of_mlx(error: Exception) -> None:
    words = r"There was not enough memory for this reply\. Close other apps"
    with pytest.raises(OutOfMemoryError, match=words) as caught, memory_errors("for this reply"):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [RuntimeError("[matmul] Last dimension does not match."), ValueError("memory")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, memory_errors("for this reply"):
        raise error
    assert caught.value is error


def test_what_the_broken_work_held_is_free_at_once() -> None:
    """Else the next try would find less memory than the first, for as long as somebody holds the error."""

    def work() -> None:
        held = mx.zeros((1024, 1024))
        mx.eval(held)
        raise RuntimeError(WORDS)

    gc.collect()
    before = mx.get_active_memory()
    with pytest.raises(OutOfMemoryError) as caught, memory_errors("for this reply"):
        work()
    assert caught.value.__cause__ is not None
    assert mx.get_active_memory() == before


def test_what_else_fails_on_the_device_is_said_plainly() -> None:
    error = RuntimeError("[read] Unable to read from file.")
    words = r"The device failed for this reply: \[read\] Unable to read from file\. Try again"
    with pytest.raises(DeviceError, match=words) as caught, device_errors("for this reply"):
        raise error
    assert caught.value.__cause__ is error
    with pytest.raises(OutOfMemoryError), device_errors("for this reply"):
        raise RuntimeError(WORDS)


@pytest.mark.parametrize("error", [ValueError("odd"), NotImplementedError("a subclass of it"), KeyboardInterrupt()])
def test_what_is_no_error_of_the_device_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, device_errors("for this reply"):
        raise error
    assert caught.value is error


def test_a_ring_that_lost_a_rank_is_no_fault_of_the_device_or_the_model() -> None:
    error = RuntimeError("[ring] connection to a peer was lost")
    assert is_device_error(error)
    with (
        pytest.raises(RanksError, match="The connection to another Mac was lost for this reply"),
        device_errors("for this reply"),
    ):
        raise error


def test_the_facts_are_those_of_this_machine():
    facts = engine_facts()
    assert facts["device"]
    assert facts["backend"] == "CPU" or on_gpu()
    assert facts["mlx"].count(".") >= 1
    assert facts["mlx_lm"].count(".") >= 1


@pytest.mark.parametrize("busy", [False, True])
def test_the_speed_of_reading_is_measured_unless_other_programs_are_busy(busy, monkeypatch):
    others = OtherPrograms()
    monkeypatch.setattr(others, "share", lambda now: 0.5 if busy else 0.1)
    reading = ReadingSpeed()
    reading.measure(others)
    assert (reading.bytes_per_second > 1e8) is not busy
    assert machine_memory().bytes_per_second == READING.bytes_per_second


def test_the_speed_is_that_of_a_real_product():
    assert 0.1 < matmul_gflops() < 1e6


@pytest.mark.skipif(host.MACOS or not shutil.which("ldconfig"), reason="OpenBLAS matters on Linux")
def test_openblas_is_in_use_where_it_is_installed():
    libraries = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    if "libopenblas.so" not in libraries:
        pytest.skip("OpenBLAS is not installed")
    facts = engine_facts()
    assert facts["blas"] == "OpenBLAS"
    assert "libopenblas" in facts["blas_library"]
