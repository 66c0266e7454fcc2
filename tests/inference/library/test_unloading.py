"""An engine that unloads gives memory back, tells how much, and leaves what it learnt of the model."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.errors import DoesNotFitError, ModelError
from rdchat.inference import device, loading
from rdchat.inference.api import (
    Capability,
    DraftKind,
    DraftSettings,
    Dtype,
    Fit,
    MemoryNeed,
    MemoryRoom,
    Mode,
)
from rdchat.inference.device import machine_memory
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.models.stored_facts import stamp_of, stored_capability
from tests.inference.fakes import ask, reply_end
from tests.inference.threads import load_silently


@pytest.fixture
def held() -> Callable[[], int]:
    """Returns what MLX holds beyond what it held before."""
    mx.synchronize()
    mx.clear_cache()
    before = mx.get_active_memory() + mx.get_cache_memory()
    return lambda: mx.get_active_memory() + mx.get_cache_memory() - before


@pytest.mark.parametrize("mode", [Mode.LOOKUP, pytest.param(Mode.AUTO, marks=pytest.mark.slow)])
def test_memory_comes_back_after_replies(small_model: Path, held: Callable[[], int], mode: Mode) -> None:
    """Cycles are collected on the main thread alone, and what was there at a load never: nothing may be in one."""
    engine = LocalEngine()
    info = load_silently(engine, small_model)
    reply_end(engine.generate(replace(ask("Hello there", max_tokens=4), draft=DraftSettings(mode))))
    engine.idle()
    assert held() >= info.weights_bytes
    freed = engine.unload()
    assert freed >= info.weights_bytes
    assert held() < info.weights_bytes / 100  # constants of compiled functions stay
    with pytest.raises(ModelError, match="No model is loaded"):
        engine.generate(ask("Hello"))
    assert engine.unload() == 0
    load_silently(engine, small_model)
    engine.unload()


def test_what_it_can_verify_is_known_from_then_on(small_model: Path) -> None:
    engine = LocalEngine()
    assert stored_capability(small_model, stamp_of(small_model)) is None
    load_silently(engine, small_model)
    assert stored_capability(small_model, stamp_of(small_model)) == Capability(DraftKind.TREE)
    engine.unload()


@pytest.mark.parametrize("spare", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [Dtype.AUTO, Dtype.FLOAT16, Dtype.FOUR_BIT])
def test_the_gate_and_the_bar_agree_to_the_byte(
    small_model: Path, monkeypatch: pytest.MonkeyPatch, spare: int, dtype: Dtype
) -> None:
    sizes = read_facts(small_model).sizes
    assert sizes is not None
    need = MemoryNeed.for_sizes(sizes, dtype, device.on_gpu())
    room = MemoryRoom(need.total_bytes + spare, need.total_bytes + spare)
    monkeypatch.setattr(loading, "memory_room", lambda: room)
    if need.fit(room) is Fit.TOO_LARGE:
        with pytest.raises(DoesNotFitError):
            loading.load_model(small_model, dtype)
    else:
        assert loading.load_model(small_model, dtype).info.warning  # tight


def test_room_counts_what_a_loaded_model_gives_back(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.machine, "available_bytes", lambda: 10**9)
    engine = LocalEngine()
    load_silently(engine, small_model)
    loaded = machine_memory()
    if not device.on_gpu():
        assert loaded.room.limit_bytes == 10**9 + loaded.held_bytes
    engine.unload()
    assert machine_memory().held_bytes < loaded.held_bytes
    engine.unload()


METAL = {"device_name": "Apple M3", "max_recommended_working_set_size": 17, "memory_size": 24}


def test_on_metal_a_model_may_take_what_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.machine, "available_bytes", lambda: 9)
    monkeypatch.setattr(device.machine, "total_bytes", lambda: 24)
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: METAL)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 5)
    monkeypatch.setattr(mx, "get_cache_memory", lambda: 2)
    told = machine_memory()
    assert (told.total_bytes, told.room, told.held_bytes) == (24, MemoryRoom(17, 16), 7)


REAL = """
import sys
import psutil
from rdchat.inference import blas
from rdchat.inference.api.requests import Dtype
from rdchat.inference.local_engine import LocalEngine
from tests.inference.fakes import ask
from tests.kernels import prepared_marker

process, engine = psutil.Process(), LocalEngine()
blas.compiled_marker = prepared_marker
info = engine.load(sys.argv[1], Dtype.FLOAT32, lambda _: None)
list(engine.generate(ask("Hello", max_tokens=2)))
loaded = process.memory_info().rss
freed = engine.unload()
print(freed >= info.weights_bytes, loaded - process.memory_info().rss > info.weights_bytes * 0.8)
"""


@pytest.mark.slow
def test_the_system_has_the_memory_of_the_real_model_back(default_model_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(default_model_folder)], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout == "True True\n"
