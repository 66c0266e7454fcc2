"""Names of the package can be searched: one assignment a statement, few methods of one name."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from tests.project.scripts import ROOT, module_tree, statements

_PACKAGE = ROOT / "rdchat"
# Qt calls these by their names.
_QT = {"paintEvent", "sizeHint", "keyPressEvent", "event", "showEvent", "closeEvent", "resizeEvent", "eventFilter"}
_SHARED = 5  # a name in so many classes is hard to search
_MOST_CLASSES = 8
# One protocol: engines and those that pass its calls on; replies and what `closing` takes.
_PROTOCOL = {"close", "count_tokens"}


def assigns_several(node: ast.AST) -> bool:
    """Return whether a statement assigns several names; a swap, and one value that is unpacked, do not count."""
    if not isinstance(node, ast.Assign):
        return False
    if len(node.targets) > 1:
        return True
    target = node.targets[0]
    value = node.value
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return False
    return sorted(map(ast.unparse, target.elts)) != sorted(map(ast.unparse, value.elts))


def package_statements() -> Iterator[tuple[str, ast.stmt]]:
    """Yield each statement of the package with its module."""
    for path in _PACKAGE.rglob("*.py"):
        module = str(path.relative_to(_PACKAGE))
        yield from ((module, each) for each in statements(module_tree(path).body))


def classes_by_method() -> dict[str, set[tuple[str, str]]]:
    """Return the classes (their module and name) that define each public method of the package."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for module, node in package_statements():
        for member in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and not member.name.startswith("_"):
                found[member.name].add((module, node.name))
    return found


@pytest.mark.parametrize(
    ("statement", "several"),
    [
        ("a = 1", False),
        ("a, b = 1, 2", True),
        ("a = b = 0", True),
        ("[a, b] = [1, 2]", True),
        ("a, b = b, a", False),
        ("a, b = pair", False),
        ("first, *rest = row", False),
    ],
)
def test_swaps_and_unpacked_values_are_no_parallel_assignments(statement: str, several: bool) -> None:
    assert assigns_several(ast.parse(statement).body[0]) is several


def test_each_statement_assigns_one_name() -> None:
    found = [(module, ast.unparse(node)) for module, node in package_statements() if assigns_several(node)]
    assert not found, "Write one assignment a line."


def test_few_methods_share_their_name() -> None:
    methods = {name: len(classes) for name, classes in classes_by_method().items()}
    shared = {name: count for name, count in methods.items() if count >= _SHARED and name not in _QT}
    assert sum(shared.values()) <= 0.2 * sum(methods.values()), shared
    assert all(count <= _MOST_CLASSES for name, count in shared.items() if name not in _PROTOCOL), shared


def test_no_two_modules_have_one_name() -> None:
    names = Counter(path.name for path in _PACKAGE.rglob("*.py"))
    del names["__init__.py"]
    assert {name: count for name, count in names.items() if count > 1} == {}
