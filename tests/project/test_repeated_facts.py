"""A fact stands in one module: no list of texts and no default port is written in two modules of rdchat."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.project.scripts import ROOT, parsed

# Fewer texts, such as a pair of keys, are no table.
_LEAST = 3
_LISTS = ast.Tuple, ast.List, ast.Set
_ASSIGNMENTS = ast.Assign, ast.AnnAssign
_EXCEPTIONS = {
    frozenset({"weight", "scales", "biases"}): "MLX's names of the parts of a packed matrix",
}

type Fact = frozenset[object] | int


def _facts(tree: ast.AST) -> Iterator[Fact]:
    """Yield the lists of constant texts, and the numbers that are assigned to a port."""
    for node in ast.walk(tree):
        if isinstance(node, _LISTS):
            values = frozenset(each.value if isinstance(each, ast.Constant) else None for each in node.elts)
            if len(values) >= _LEAST and all(isinstance(value, str | bytes) for value in values):
                yield values
        if isinstance(node, _ASSIGNMENTS) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if (
                any("port" in ast.unparse(each).lower() for each in targets)
                and type(node.value.value) is int
                and node.value.value
            ):
                yield node.value.value


def repeated(sources: Iterable[tuple[str, str]]) -> dict[Fact, set[str]]:
    """Return the facts that stand in several modules, given by name and source."""
    places: dict[Fact, set[str]] = defaultdict(set)
    for name, source in sources:
        for fact in _facts(parsed(source)):
            places[fact].add(name)
    return {fact: names for fact, names in places.items() if len(names) > 1 and fact not in _EXCEPTIONS}


def test_a_fact_stands_in_one_module() -> None:
    paths: list[Path] = sorted((ROOT / "rdchat").rglob("*.py"))
    assert not repeated((str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in paths)


def test_a_list_in_another_order_and_a_port_under_another_name_are_found() -> None:
    one = 'A = ("png", "gif", "bmp")\nDEFAULT_PORT = 8817'
    other = 'def f(): return {"gif", "bmp", "png"}\nclass S:\n    server_port: int = 8817\nLIMIT = ["a", "b"]'
    assert repeated([("one", one), ("other", other)]) == {
        frozenset({"png", "gif", "bmp"}): {"one", "other"},
        8817: {"one", "other"},
    }
    assert not repeated([("one", other), ("third", "A = [1, 2, 3]\nPORT = 0\nB = ('a', 'b')")])
