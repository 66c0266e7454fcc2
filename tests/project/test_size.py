"""The package stays as small as `pyproject.toml` says."""

import ast
import io
import tokenize
import tomllib

import pytest

from tests.project.scripts import ROOT, parsed, statements

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_tokens(source: str) -> int:
    """Return how many tokens of code there are: none of comments, docstrings, line ends and indents."""
    tree = parsed(source)
    nodes = [tree, *(node for node in statements(tree.body) if isinstance(node, _DOCUMENTED))]
    documented = [node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None]
    docstrings = {line for node in documented for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(each.type not in _NO_CODE and each.start[0] not in docstrings for each in tokens)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""Says\nwhat."""\n\n# why\nx = 1  # one\n', 3),
        ('def f():\n    """Says what."""\n    return (\n        1,\n\n        2,\n    )\n', 12),
        ('x = """\na\n\nb\n"""\n', 3),
        ("a, b = 1, 2\n", 7),
        ("a = 1\nb = 2\n", 6),
    ],
)
def test_only_tokens_of_code_count(source: str, count: int) -> None:
    assert code_tokens(source) == count


def test_the_package_has_no_more_code_than_allowed() -> None:
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["rdchat"]["code-tokens"]
    found = sum(code_tokens(path.read_text()) for path in (ROOT / "rdchat").rglob("*.py"))
    assert found <= allowed, "Make it smaller, or raise `code-tokens` in pyproject.toml and say why."
