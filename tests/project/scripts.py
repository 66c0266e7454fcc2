"""The scripts and statements of the project, and stand-ins for programs that scripts start, for tests of them."""

import ast
import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    """Import a script of `scripts/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_program(path: Path, text: str) -> None:
    """Write a shell script that can be started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('bash') or '/bin/bash'}\n{text}\n")
    path.chmod(0o755)


@cache
def parsed(source: str) -> ast.Module:
    """Parse a source, once in each process: this takes seconds for all of the package."""
    return ast.parse(source)


def module_tree(path: Path) -> ast.Module:
    """Parse a file of the project."""
    return parsed(path.read_text(encoding="utf-8"))


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements with those inside them, at any depth."""
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(each, name, ()))
        for branch in (*getattr(each, "handlers", ()), *getattr(each, "cases", ())):
            yield from statements(branch.body)
