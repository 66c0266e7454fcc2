"""Tests share code in separate modules: scripts import no tests, and nothing imports a test module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names of all that a module imports, at any depth; relative ones without their dots."""
    for node in ast.walk(ast.parse(source)):
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
    names = list(imported(source))
    assert (any(map(of_tests, names)), any(map(of_a_test_module, names))) == (tests, test_module)


def test_scripts_import_no_tests() -> None:
    found = [
        (path.name, name)
        for path in modules("scripts")
        for name in imported(path.read_text(encoding="utf-8"))
        if of_tests(name)
    ]
    assert not found


@pytest.mark.slow
def test_nothing_imports_a_test_module() -> None:
    found = [
        (str(path.relative_to(ROOT)), name)
        for folder in ("rdchat", "scripts", "tests")
        for path in modules(folder)
        for name in imported(path.read_text(encoding="utf-8"))
        if of_a_test_module(name)
    ]
    assert not found


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found
