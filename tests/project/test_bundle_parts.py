"""What `cleanup_paths` removes from the app is not loaded by any part of rdchat."""

import json
import os
import re
import subprocess
import sys
import sysconfig
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
TOKENIZES = """
import sys
import transformers
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(transformers.__file__)
print(tokenizer.encode("Why is the sky blue?"))
"""


def is_removed(path: PurePath) -> bool:
    return parts.is_removed(path, PATTERNS)


def _child(code: str, *arguments: str, path: Path = ROOT) -> str:
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *arguments]
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
        ("numpy/lib/tests/test_io.py", True),
        ("numpy/testing/__init__.py", False),
        ("transformers/models/llama/modeling_llama.py", True),
        ("transformers/models/llama/configuration_llama.py", False),
        ("transformers/models/llama/tokenization_llama.py", False),
        ("transformers/models/auto/modeling_auto.py", False),
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


@pytest.mark.slow
def test_no_module_and_no_library_that_rdchat_loads_is_removed() -> None:
    """All modules are imported, and a window system started. Qt's libraries have other names on a Mac, but one list."""
    loaded = [Path(name) for name in json.loads(_child(LOADED))]
    inside = [path.relative_to(PACKAGES) for path in loaded if path.is_relative_to(PACKAGES)]
    assert {"PySide6", "mlx", "mlx_lm", "transformers", "numpy"} <= {path.parts[0] for path in inside}
    assert list(filter(is_removed, inside)) == []


@pytest.mark.slow
def test_a_tokenizer_loads_without_what_is_removed_of_transformers(tmp_path: Path, default_model: Path) -> None:
    for file in parts.distributions()["transformers"].files:
        if "__pycache__" not in file.parts and not is_removed(PurePath(file)):
            place = tmp_path / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if ".." not in file.parts:
                place.symlink_to(file.locate())
    where, with_less = _child(TOKENIZES, str(default_model), path=tmp_path).splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert not list(tmp_path.rglob("modeling_llama.py"))
    assert with_less == _child(TOKENIZES, str(default_model)).splitlines()[1]


@pytest.mark.slow
def test_the_networks_that_are_removed_need_torch() -> None:
    """It is not in the app, so none of them could be imported."""
    removed = [
        Path(str(file.locate()))
        for file in parts.distributions()["transformers"].files
        if file.name.startswith("modeling_") and is_removed(PurePath(file))
    ]
    assert len(removed) > 100
    assert "torch" not in parts.distributions()
    assert [path for path in removed if not re.search("(import|from) torch", path.read_text())] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the table is of the wheels for Linux")
def test_the_table_of_the_docs_is_that_of_the_script() -> None:
    """The same parts, in whatever sizes the installed versions have."""
    here = parts.table(parts.installed_files()).splitlines()
    assert here[-1].startswith("| all |")
    in_docs = (ROOT / "docs" / "bundle.md").read_text(encoding="utf-8")
    assert [line for line in here[2:8] if f"|{line.split('|')[1]}|" not in in_docs] == []
