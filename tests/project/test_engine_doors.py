"""The rest of rdchat reaches the engine by few doors and few names, which the architecture page lists."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

import pytest

from tests.project.scripts import ROOT

ENGINE = "rdchat.inference"
DATA = f"{ENGINE}.api"
MOST_DOORS = 10
MOST_NAMES = 60
PAGE = (ROOT / "docs/architecture.md").read_text()


def imported_names() -> dict[str, set[str]]:
    """Return the names that others import from each module of the engine, but for its plain data."""
    names = defaultdict(set)
    for path in sorted((ROOT / "rdchat").rglob("*.py")):
        if path.is_relative_to(ROOT / "rdchat/inference"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ENGINE) and node.module != DATA:
                names[str(node.module)] |= {each.name for each in node.names}
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith(ENGINE) for each in node.names), path
    return dict(names)


def test_the_engine_has_few_doors_and_each_is_used() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (doors,) = (each["ignore_imports"] for each in contracts if each["type"] == "protected")
    names = imported_names()
    assert {each.removeprefix("rdchat.** -> ") for each in doors} == {*names, DATA}
    assert len(names) <= MOST_DOORS
    assert sum(map(len, names.values())) <= MOST_NAMES


def test_the_architecture_page_has_what_each_door_gives() -> None:
    table = PAGE.split("## The engine's doors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `inference/(\S+)\.py` \| (.*) \|$", table, re.MULTILINE)
    listed = {f"{ENGINE}.{door.replace('/', '.')}": set(re.findall(r"`(\w+)`", gives)) for door, gives in rows}
    assert listed == imported_names()


@pytest.mark.slow
@pytest.mark.usefixtures("default_model")
@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_whoever_wants_the_engine_alone_needs_five_lines(example: str) -> None:
    """In a process of its own: an engine that is closed leaves its thread without MLX's streams."""
    assert len([line for line in example.splitlines() if line]) <= 5
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
