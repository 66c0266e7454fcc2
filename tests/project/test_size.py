"""The package stays as small as `pyproject.toml` says."""

import ast
import io
import tokenize
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Return how many lines have code: none that is blank, a comment, or of a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = [(each.start[0], each.end[0]) for each in tokens if each.type not in _NO_CODE]
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _DOCUMENTED)]
    docstrings = [
        (node.body[0].lineno, node.body[0].end_lineno) for node in nodes if ast.get_docstring(node) is not None
    ]
    return len(_lines(spans) - _lines(docstrings))


def _lines(spans: list[tuple[int, int]]) -> set[int]:
    return {line for first, last in spans for line in range(first, last + 1)}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""Says\nwhat."""\n\n# why\nx = 1  # one\n', 1),
        ('def f():\n    """Says what."""\n    return (\n        1,\n\n        2,\n    )\n', 5),
        ('x = """\na\n\nb\n"""\n', 5),
    ],
)
def test_only_lines_with_code_count(source: str, count: int) -> None:
    assert code_lines(source) == count


def test_the_package_has_no_more_code_lines_than_allowed() -> None:
    allowed = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["rdchat"]["code-lines"]
    found = sum(code_lines(path.read_text()) for path in (_ROOT / "rdchat").rglob("*.py"))
    assert found <= allowed, "Make it smaller, or raise `code-lines` in pyproject.toml and say why."
