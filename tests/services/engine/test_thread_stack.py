"""On macOS a thread of Qt's gets 512 KiB of stack, where what strangers nest deeply ends the whole process."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rdchat
from rdchat import host

DEPTH = 100_000
MACOS_DEFAULT = 512 * 1024
LOAD = """
import sys
from contextlib import nullcontext
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from rdchat import host
from rdchat.inference.api.requests import Dtype
from rdchat.inference.models.model_files import check_model_folder
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import LoadModel

class Engine:
    def load(self, model, dtype, on_progress, anyway=False):
        check_model_folder(Path(model))  # the first that the real one does

    def close(self):
        pass

host.THREAD_STACK_BYTES = int(sys.argv[2])
qt = QCoreApplication([])
client = EngineClient(Engine, nullcontext)

def tell(failure):
    print(failure.message)
    client.shutdown()
    qt.quit()

client.submit(LoadModel(sys.argv[1], Dtype.AUTO), tell)
qt.exec()
"""


def load(folder: Path, stack_bytes: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", LOAD, str(folder), str(stack_bytes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def nested_model(tmp_path: Path) -> Path:
    """A folder whose config.json is JSON nested 100,000 deep."""
    (tmp_path / "config.json").write_text("[" * DEPTH + "]" * DEPTH)
    return tmp_path


@pytest.mark.slow
def test_the_engine_thread_says_what_is_wrong_with_a_nested_configuration(nested_model: Path) -> None:
    done = load(nested_model, host.THREAD_STACK_BYTES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{nested_model / 'config.json'} is damaged: it is nested too deeply.\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 looks at the stack that is left")
def test_nested_configuration_crashes_with_the_default_stack_of_macos(nested_model: Path) -> None:
    assert load(nested_model, MACOS_DEFAULT).returncode in {-signal.SIGSEGV, -signal.SIGBUS}


def test_qt_starts_no_other_thread_that_would_need_a_stack() -> None:
    """Threads of Python's own ask for 16 MB on macOS themselves."""
    started = {"QThread", "QThreadPool", "QRunnable", "QtConcurrent"}
    used = {
        path.name
        for path in Path(rdchat.__file__).parent.rglob("*.py")
        if any(name in path.read_text() for name in started)
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ClassDef) and started & {ast.unparse(base) for base in node.bases})
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in started)
        or (isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("QThreadPool.", "QtConcurrent.")))
    }
    assert used == {"engine_client.py"}
