"""Who may import what: scripts import no tests, nothing imports a test module, some rooms have a door."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.scripts import ROOT, module_tree, statements


def imported(module: ast.Module) -> Iterator[str]:
    """Yield the dotted names of all that a module imports, at any depth; relative ones without their dots."""
    for node in statements(module.body):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (".".join(filter(None, (node.module, name.name))) for name in node.names)


def of_tests(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == "tests"


def of_a_test_module(name: str) -> bool:
    """Tell whether a name leads through a module `test_*`, be it from the root, relative or of the same folder."""
    module, *more = name.split(".")
    return module.startswith("test_") or (module == "tests" and any(part.startswith("test_") for part in more))


@pytest.mark.parametrize(
    ("source", "tests", "test_module"),
    [
        ("import tests", True, False),
        ("from tests.inference.fakes import tiny_llama", True, False),
        ("import tests.test_log as log", True, True),
        ("from tests import test_log", True, True),
        ("def late():\n    from tests.chat.test_store import reply", True, True),
        ("from .test_store import reply", False, True),
        ("from . import test_store", False, True),
        ("from test_store import reply", False, True),
        ("from rdchat.tests_of_models import test_vectors", False, False),
    ],
)
def test_the_rules_see_every_kind_of_import(source: str, tests: bool, test_module: bool) -> None:
    names = list(imported(ast.parse(source)))
    assert (any(map(of_tests, names)), any(map(of_a_test_module, names))) == (tests, test_module)


def test_scripts_import_no_tests() -> None:
    assert [each for each in imports_of("scripts") if of_tests(each[1])] == []


@pytest.mark.slow
def test_nothing_imports_a_test_module() -> None:
    assert [each for each in imports_of("rdchat", "scripts", "tests") if of_a_test_module(each[1])] == []


@pytest.mark.slow
def test_the_engines_tests_need_neither_qt_nor_what_shows_windows() -> None:
    """`make test-engine` runs them."""
    without = ["-p", "no:pytest-qt", "-p", "no:xdist", "-p", "tests.without_qt"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *without, "tests/inference"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-2000:]


def test_rooms_with_a_door_are_entered_by_it() -> None:
    """Rooms that many others need offer names in `__init__.py`; others import none of the modules that define these."""
    around = set()
    imports = list(imports_of("rdchat"))
    for door in ("chat/storage", "files", "hub", "inference/api", "inference/verification", "ui/style", "work"):
        room = ROOT / "rdchat" / door
        name = f"rdchat.{door.replace('/', '.')}"
        offered = {
            node.module
            for node in module_tree(room / "__init__.py").body
            if isinstance(node, ast.ImportFrom) and node.module
        }
        assert len(offered) > 1, name
        around |= {
            f"{path.relative_to(ROOT)} imports {each}"
            for path, each in imports
            if any(each.startswith(f"{module}.") for module in offered) and not path.is_relative_to(room)
        }
    assert around == set()


def imports_of(*folders: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of some folders with the names that it imports."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((path, name) for name in imported(module_tree(path)))
