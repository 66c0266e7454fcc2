"""What `cleanup_paths` removes from the app is not loaded by any part of rdchat."""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path, PurePath

import pytest

from tests.project.scripts import ROOT, script

parts = script("bundle_parts")
PATTERNS = parts.cleanup_patterns()
PACKAGES = Path(sysconfig.get_path("purelib"))
LOADED = """
import importlib, json, pkgutil, sys
from pathlib import Path
import rdchat
from rdchat.app import application
app = application()
names = [found.name for found in pkgutil.walk_packages(rdchat.__path__, "rdchat.")]
for name in names:
    if name != "rdchat.__main__":
        importlib.import_module(name)
from PySide6.QtGui import QImageReader
from PySide6.QtWidgets import QFileDialog, QMessageBox
QImageReader.supportedImageFormats()
QMessageBox().grab(), QFileDialog().grab()
files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
maps = Path("/proc/self/maps")
if maps.exists():
    files |= {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines() if "/" in line}
print(json.dumps(sorted(files)))
"""


def is_removed(path: PurePath) -> bool:
    return parts.is_removed(path, PATTERNS)


def _child(code: str) -> str:
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("path", "removed"),
    [
        ("PySide6/Qt/translations/qtbase_de.qm", True),
        ("PySide6/Designer.app/Contents/MacOS/Designer", True),
        ("PySide6/Qt/lib/QtQuick.framework/Versions/A/QtQuick", True),
        ("PySide6/Qt/lib/QtGui.framework/Versions/A/QtGui", False),
        ("PySide6/Qt/plugins/platforms/libqcocoa.dylib", False),
        ("PySide6/QtSvg.abi3.so", False),
        ("PySide6/QtOpenGL.abi3.so", True),
        ("hf_xet/hf_xet.abi3.so", True),
        ("hf_xet-1.8.0.dist-info/METADATA", True),
        ("mlx/include/mlx/array.h", True),
        ("mlx/lib/mlx.metallib", False),
        ("fontTools/misc/bezierTools.c", True),
        ("fontTools/misc/bezierTools.cpython-313-darwin.so", False),
        ("numpy/lib/tests/test_io.py", True),
        ("numpy/testing/__init__.py", False),
        ("transformers/models/llama/modeling_llama.py", False),
        ("transformers/models/llama/modular_llama.py", True),
        ("transformers/models/llama/configuration_llama.py", False),
        ("transformers/models/llama/tokenization_llama.py", False),
    ],
)
def test_what_is_removed(path: str, removed: bool) -> None:
    assert is_removed(PurePath(path)) is removed


def test_of_pyobjc_its_tests_and_debug_files_are_removed() -> None:
    """Of the names in the wheel of pyobjc-core 13.0 for macOS: all of `objc`, and examples of the 142 others."""
    names = [PurePath(name) for name in (Path(__file__).parent / "pyobjc_core.txt").read_text().split()]
    kept = [path for path in names if not is_removed(path)]
    assert not [path for path in kept if "DWARF" in path.parts or path.parts[0] == "PyObjCTest"]
    assert [path for path in names if path not in kept and "DWARF" not in path.parts] == []
    assert {"_objc", "_machsignals"} == {path.name.partition(".")[0] for path in kept if path.suffix == ".so"}


def test_of_qt_nothing_stays_that_is_linked_to_what_is_removed() -> None:
    """Of the libraries in the wheel of PySide6-Essentials 6.12.0 for macOS; those of QML and Quick are left out.

    The virtual keyboard, the plugin for PDF, Lottie and Labs stayed without the libraries that they are linked to.
    """
    lines = (Path(__file__).parent / "qt_on_a_mac.txt").read_text().splitlines()
    linked = {PurePath(path): names.split() for path, _, names in (line.partition(":") for line in lines)}
    kept = {path: names for path, names in linked.items() if not is_removed(path)}
    there = {part for path in kept for part in path.parts}
    assert {path.name: set(names) - there for path, names in kept.items() if set(names) - there} == {}
    needed = {"QtGui.framework", "QtSvg.abi3.so", "libqcocoa.dylib", "libqmacstyle.dylib", "libqmacheif.dylib"}
    assert needed <= there
    assert not {"QtOpenGL.framework", "QtOpenGL.abi3.so"} & there


@pytest.mark.slow
def test_no_module_and_no_library_that_rdchat_loads_is_removed() -> None:
    """All modules are imported, and a window system started. Qt's libraries have other names on a Mac, but one list."""
    loaded = [Path(name) for name in json.loads(_child(LOADED))]
    inside = [path.relative_to(PACKAGES) for path in loaded if path.is_relative_to(PACKAGES)]
    assert {"PySide6", "mlx", "mlx_lm", "transformers", "numpy"} <= {path.parts[0] for path in inside}
    assert list(filter(is_removed, inside)) == []


@pytest.fixture
def app_python(tmp_path: Path) -> Path:
    """A Python with the packages that the app holds, and nothing else."""
    folder = tmp_path / "app"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    backend = {"mlx-cpu": distribution("mlx-cpu")} if sys.platform == "linux" else {}
    for each in (parts.distributions() | backend).values():
        for file in each.files:
            if ".." not in file.parts and "__pycache__" not in file.parts and not is_removed(PurePath(file)):
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(file.locate())
    return folder / "bin/python"


@pytest.mark.slow
def test_a_model_answers_without_what_is_removed(tmp_path: Path, app_python: Path, default_model: Path) -> None:
    """No model could be loaded in the app: what transformers' networks read was looked up in their removed sources."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "RDCHAT_DATA_DIR": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"}
    ask = ["ask", "--model", str(default_model), "--max-tokens", "8", "Why is the sky blue?"]
    for words in (["doctor", "--json"], ask):
        command = [app_python, "-m", "rdchat", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


@pytest.mark.slow
def test_the_table_of_the_docs_has_the_parts_of_the_script() -> None:
    """It is of the wheels for macOS, whose sizes differ, and which have no folders of libraries beside a package."""
    here = parts.table(parts.installed_files()).splitlines()
    assert here[-1].startswith("| all |")
    in_docs = (ROOT / "docs" / "bundle.md").read_text(encoding="utf-8")
    names = [line.split("|")[1].strip() for line in here[2:8]]
    assert [name for name in names if f"| {name} |" not in in_docs and not name.endswith(".libs")] == []
