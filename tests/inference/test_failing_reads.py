"""A device error never becomes a token: every read of a failed result raises."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import inference
from tests.inference.failing_child import CHECKS
from tests.project.scripts import ROOT, module_tree


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_no_failure_becomes_a_token(name: str, tmp_path: Path) -> None:
    """In a process of its own: after many failures MLX 0.32 waits for ever for tasks that it has lost count of."""
    command = [sys.executable, "-m", "tests.inference.failing_child", name, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CONVERTERS = {"array", "asarray", "asanyarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "copy",
              "from_dlpack", "frombuffer", "require"}  # fmt: skip
DISPLAYS = (ast.List, ast.Tuple, ast.ListComp)
IMPORTS_MLX = re.compile(r"^\s*(?:import|from) mlx(?:_lm)?\b", re.MULTILINE)


def _converts(call: ast.Call) -> bool:
    """Tell whether a call may make a NumPy array of one that it is given: not of a display, which is none."""
    match call.func:
        case ast.Name(id="memoryview"):
            return True
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) if name in CONVERTERS:
            return not (call.args and isinstance(call.args[0], DISPLAYS))
    return False


def test_only_fetch_makes_numpy_arrays_of_mlx_arrays() -> None:
    """In modules that know MLX: `np.array` takes lists there, written out so that it shows."""
    root = Path(inference.__file__).parent
    wrong = []
    for path in sorted(root.rglob("*.py")):
        if path == root / "device.py" or not IMPORTS_MLX.search(path.read_text(encoding="utf-8")):
            continue
        calls = [node for node in ast.walk(module_tree(path)) if isinstance(node, ast.Call) and _converts(node)]
        wrong += [f"{path.relative_to(root)}:{call.lineno}" for call in calls]
    assert wrong == [], "use verification.fetch: it waits before it converts"
