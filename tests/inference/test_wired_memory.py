"""No memory is wired unless a person asks for it; then the weights alone, and not where that restarted the machine."""

import ast
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn

from rdchat import host, machine, paths
from rdchat.inference import wired_memory
from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.benchmark.recording import BLANK, record_mlx_lm
from rdchat.inference.loading import load_model
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Kind
from rdchat.inference.training.data_maker import check_batched_decoding, write_on
from rdchat.inference.wired_memory import unwire_weights, wire_weights, wired_limit, wiring
from tests.inference.fakes import ask, reply_end
from tests.inference.threads import load_silently, on_a_thread
from tests.inference.wired_limits import GIB, Limits, limits, marks
from tests.project.scripts import ROOT, module_tree

__all__ = ["limits"]
# Two weights, of which one fills its last page in part.
NETWORK = nn.Linear(1024, 1024)
HELD = 2**22 + mmap.PAGESIZE * -(-4096 // mmap.PAGESIZE)


@pytest.fixture
def asked(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Limits:
    """As `limits`, on a Mac whose person asks for wired memory."""
    monkeypatch.setenv(host.WIRED, "1")
    return limits


def decode(model: Path) -> None:
    """Make a reply with stock mlx-lm."""
    assert record_mlx_lm(load_model(model), ask("Hello", max_tokens=2), lambda: False, BLANK)


def train(model: Path) -> None:
    loaded = load_model(model)
    check_batched_decoding(loaded)
    list(write_on(loaded, [[5, 6], [7]], [3, 3], [0.0, 0.9], set()))


def follow(model: Path) -> None:
    """Be a rank that loads its part, rests and ends."""
    kinds = iter([Kind.LOAD, Kind.REST, Kind.END])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_messages, "receive", lambda _group: (next(kinds), [0, 7]))
        patch.setattr(rank_messages, "check_sum", lambda _: 7)
        patch.setattr(rank_messages, "meet", Mock())
        patch.setattr(rank_messages, "part_of", lambda *_: load_model.__kwdefaults__["part"])
        group = Mock()
        group.rank.return_value = 1
        rank_messages.run(group, str(model), lambda: None)


def wake(model: Path) -> None:
    def work() -> None:
        engine = LocalEngine()
        load_silently(engine, model)
        engine.rest()
        engine.wake()
        reply_end(engine.generate(ask("Hello", max_tokens=2)))
        engine.sleep()
        reply_end(engine.generate(ask("Hello", max_tokens=2)))
        engine.load_drafters(DraftSettings(mode=Mode.AUTO), lambda _: None)
        engine.close()

    on_a_thread(work)


@pytest.mark.parametrize(("work", "times"), [(decode, 0), (train, 0), (follow, 1), (wake, 2)])
def test_the_weights_alone_are_wired_if_a_person_asks_and_each_time_unwired(
    work: Callable[[Path], None], times: int, small_model: Path, limits: Limits
) -> None:
    limits.check_wired(partial(work, small_model), small_model, times)


@pytest.mark.parametrize(
    ("memory", "limit"), [(8, 0), (16, 8), (18, 10), (24, 15.6), (32, 20.8), (36, 23.4), (48, 31.2), (64, 41.6),
                          (96, 62.4), (128, 83.2), (192, 124.8)],
)  # fmt: skip
def test_a_mac_keeps_8_gb_and_35_percent(memory: int, limit: float) -> None:
    assert wired_limit(memory * GIB) / GIB == pytest.approx(limit)


def test_what_is_wired_fills_the_limit_until_it_is_unwired(asked: Limits) -> None:
    """Otherwise buffers that come and go would be wired in turn."""
    wire_weights(NETWORK)
    assert (asked, marks()) == ([HELD], [f"wired.{os.getpid()}"])
    unwire_weights()
    unwire_weights()
    assert (asked, marks()) == ([HELD, 0], [])


@pytest.mark.parametrize(("memory", "recommended"), [(8 * GIB + HELD - 1, 22 * GIB), (32 * GIB, HELD - 1)])
def test_weights_above_the_limit_are_not_wired(
    memory: int, recommended: int, asked: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "total_bytes", lambda: memory)
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": recommended})
    wire_weights(NETWORK)
    assert (asked, marks()) == ([], [])


def test_nothing_is_wired_once_the_machine_restarted_with_a_mark(
    asked: Limits, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wire_weights(NETWORK)
    mark = paths.data_dir() / marks()[0]
    started = mark.stat().st_mtime + 1
    monkeypatch.setattr(psutil, "boot_time", lambda: started)
    assert "restarted while memory was wired" in wiring()
    # As after the restart, in which nothing was unwired.
    wired_memory._wired.pop_all()
    asked.clear()
    for _ in range(2):
        wire_weights(NETWORK)
        unwire_weights()
    assert (asked, mark.exists()) == ([], True)
    assert "restarted while memory was wired" in caplog.text
    mark.rename(mark.with_name("elsewhere"))
    wire_weights(NETWORK)
    assert asked == [HELD]


def test_a_process_that_was_killed_leaves_no_mark_for_the_next_restart(
    asked: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = paths.data_dir()
    data.mkdir(parents=True)
    for process in ("999999999", str(os.getppid())):
        (data / f"wired.{process}").touch()
    wire_weights(NETWORK)
    assert sorted(marks()) == sorted([f"wired.{os.getppid()}", f"wired.{os.getpid()}"])


def test_without_a_mark_nothing_is_wired(asked: Limits, caplog: pytest.LogCaptureFixture) -> None:
    data = paths.data_dir()
    data.parent.mkdir(parents=True, exist_ok=True)
    data.touch()
    wire_weights(NETWORK)
    assert asked == []
    assert "not wired" in caplog.text


def test_a_command_unwires_at_its_end(tmp_path: Path) -> None:
    code = (
        "from rdchat.inference.wired_memory import wire_weights\n"
        "import mlx.core as mx\n"
        "import mlx.nn as nn\n"
        "from rdchat import host, machine\n"
        "host.MACOS = True\n"
        f"mx.device_info = lambda: {{'max_recommended_working_set_size': {GIB}}}\n"
        "mx.set_wired_limit = print\n"
        f"machine.total_bytes = lambda: {32 * GIB}\n"
        "wire_weights(nn.Linear(1024, 1024))\n"
    )
    environment = {**os.environ, host.WIRED: "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(HELD), "0"]
    assert marks() == []


@pytest.mark.parametrize(
    ("environment", "words"), [({}, "off"), ({host.WIRED: "0"}, "off"), ({host.WIRED: "1"}, "weights of up to 22.3 GB")]
)
def test_doctor_says_what_is_wired(
    environment: dict[str, str], words: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wiring() == words
    monkeypatch.setattr(host, "MACOS", False)
    assert wiring() == ""


def test_nothing_else_sets_the_limit_or_has_mlx_lm_set_it() -> None:
    """mlx-lm's generators set it, unless they are those of `unwired`."""
    setters = set[str]()
    importers = set[str]()
    for path in (ROOT / "rdchat").rglob("*.py"):
        for node in ast.walk(module_tree(path)):
            if isinstance(node, ast.Attribute) and node.attr == "set_wired_limit":
                setters.add(path.stem)
            if isinstance(node, ast.ImportFrom) and node.module in {"mlx_lm", "mlx_lm.generate"}:
                importers |= {path.stem for each in node.names if each.name != "utils"}
    assert setters == {"wired_memory"}
    assert importers == {"unwired"}
