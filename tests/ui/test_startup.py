import subprocess
import sys

from rdchat.services.engine.engine_client import SWITCH_INTERVAL_S


def test_the_window_is_imported_without_mlx() -> None:
    """MLX takes seconds to import: the window stands before the engine thread does that."""
    code = (
        "import sys, rdchat.app\n"
        "print({'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy', 'gguf'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_the_models_window_is_imported_without_the_hubs_client() -> None:
    """Its client takes longer to import than the window may take to open; threads that ask the hub do that."""
    code = (
        "import sys, rdchat.services.models.models, rdchat.ui.models\n"
        "print({'mlx', 'huggingface_hub', 'httpx2', 'keyring', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_before_the_engine_has_begun_nothing_else_imports_mlx() -> None:
    """Two threads that import mlx-lm at once may block each other."""
    code = (
        "import sys, rdchat.app as side\n"
        "from pathlib import Path\n"
        "told = [side.machine_memory(), side.installed_drafters(Path())]\n"
        "print(told, side.fitting_drafters(Path()), {'mlx', 'mlx_lm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[None, None] None set()", "")


def test_what_needs_mlx_is_found_once_the_engine_has_begun() -> None:
    """The modules are named in strings, which a renamed folder does not change."""
    code = (
        "import rdchat.inference.local_engine, rdchat.app as app\n"
        "from pathlib import Path\n"
        "none = Path('/nothing')\n"
        "answers = app.machine_memory(), app.installed_drafters(none)\n"
        "print([answer is not None for answer in answers], app.fitting_drafters(none), app.measured_calls(none))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[True, True] () {}", "")


def test_threads_take_turns_sooner_while_a_window_is_open() -> None:
    """The engine thread builds graphs in Python while the main thread draws."""
    code = (
        "import sys, rdchat.app as app\n"
        "app.host.has_display = lambda: True\n"
        "app.application = lambda: sys.exit(f'{sys.getswitchinterval():g}')\n"
        "app.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.strip() == f"{SWITCH_INTERVAL_S:g}"
