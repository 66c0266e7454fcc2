"""What the app imports before its window stands, seen in a process of its own."""

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from rdchat import app, host, paths
from rdchat.files import make_folder, write_json
from rdchat.services.engine.engine_client import SWITCH_INTERVAL_S
from rdchat.services.models.fit import Machine
from rdchat.services.models.larger_model import for_machine
from tests.services.models.macs import GB, mac

# Each line tells of the imports up to it.
_START = """
import sys, rdchat.services.models.model_services, rdchat.ui.models
print({'mlx', 'huggingface_hub', 'httpx2', 'keyring', 'numpy'} & set(sys.modules))
import rdchat.app as app
print({'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy', 'gguf'} & set(sys.modules))
from pathlib import Path
answers = [app.machine_memory().bytes_per_second, app.installed_drafters(Path())]
print(answers, app.fitting_drafters(Path()), {'mlx', 'mlx_lm'} & set(sys.modules))
app.host.has_display = lambda: True
app.application = lambda: sys.exit(f'{sys.getswitchinterval():g}')
app.main()
"""


@pytest.fixture(scope="module")
def start() -> list[str]:
    """Start the app up to its window; return what was printed, line by line, and the switch interval at the end."""
    done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, timeout=120, check=False)
    return [*done.stdout.splitlines(), done.stderr.strip()]


@pytest.mark.slow
def test_the_models_window_is_imported_without_the_hubs_client(start: list[str]) -> None:
    """Its client takes longer to import than the window may take to open; threads that ask the hub do that."""
    assert start[0] == "set()"


def test_the_window_is_imported_without_mlx(start: list[str]) -> None:
    """MLX takes seconds to import: the window stands before the engine thread does that."""
    assert start[1] == "set()"


def test_before_the_engine_has_begun_nothing_else_imports_mlx(start: list[str]) -> None:
    """Two threads that import mlx-lm at once may block each other."""
    assert start[2] == "[0.0, None] None set()"


def test_threads_take_turns_sooner_while_a_window_is_open(start: list[str]) -> None:
    """The engine thread builds graphs in Python while the main thread draws."""
    assert start[3:] == [f"{SWITCH_INTERVAL_S:g}"]


@pytest.mark.parametrize(
    ("setting", "variable", "wired"), [(False, "", None), (False, "1", "1"), (True, "", "1"), (True, "0", "0")]
)
def test_the_setting_asks_for_wired_memory_unless_the_environment_does_not(
    setting: bool, variable: str, wired: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(paths.data_dir())
    write_json(paths.settings_path(), {"wired_memory": setting})
    # So that it is as before after the test.
    monkeypatch.setenv(host.WIRED, variable)
    if not variable:
        monkeypatch.delenv(host.WIRED)
    monkeypatch.setattr(app.sys, "setswitchinterval", Mock())
    for name in ("application", "SingleInstance", "open_app"):
        monkeypatch.setattr(app, name, Mock(return_value=None if name == "open_app" else Mock()))
    assert app.main() == 1
    assert os.environ.get(host.WIRED) == wired


@pytest.mark.parametrize("memory_gb", [8, 16, 24, 32, 36, 48, 64, 128])
def test_a_mac_is_offered_the_same_model_before_mlx_tells_its_memory(
    memory_gb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a new chat offers it at once, and would otherwise offer another one a moment later."""
    monkeypatch.setattr(app, "_has_mlx", lambda: False)
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(app.machine, "total_bytes", lambda: memory_gb * GB)
    monkeypatch.setattr(app.machine, "available_bytes", lambda: GB)
    assert for_machine(Machine(app.machine_memory())) == for_machine(mac(memory_gb))


@pytest.mark.slow
def test_what_needs_mlx_is_found_once_the_engine_has_begun() -> None:
    code = (
        "import rdchat.inference.local_engine, rdchat.app as app\n"
        "from pathlib import Path\n"
        "none = Path('/nothing')\n"
        "answers = app.machine_memory(), app.installed_drafters(none)\n"
        "print([answer is not None for answer in answers], app.fitting_drafters(none), app.measured_calls(none))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[True, True] () {}", "")
