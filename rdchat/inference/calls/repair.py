"""A second, lenient reading of calls that a model wrote with slips: line breaks, braces and quotes."""

import ast
import json
import re
from collections.abc import Iterator

_STRING = re.compile(r'"(?:\\.?|[^"\\])*+(?:"|\Z)', re.DOTALL)
# A backslash that begins no escape of JSON, as in a path of Windows.
_LONE_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_MOST_BRACES = 2


def repaired(text: str) -> Iterator[str]:
    """Yield what the JSON in a text may be meant to be: with escaped line breaks, more braces, or JSON's quotes."""
    escaped = _STRING.sub(lambda match: _escaped(match[0]), text.strip())
    # Where none was written, the end of the last value may be missing too.
    for braces in range(_MOST_BRACES + 1 if escaped.endswith("}") else 1):
        yield escaped + "}" * braces
    if (literal := python_json(text)) is not None:
        yield literal


def python_json(text: str) -> str | None:
    """Return the JSON of a dict or a list as Python writes it; None where it is none, or a name stands twice."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict) and len({*map(ast.dump, filter(None, node.keys))}) < len(node.keys):
                return None
        value = ast.literal_eval(tree)
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _escaped(string: str) -> str:
    string = _LONE_BACKSLASH.sub(r"\\\\", string)
    return re.sub(r"[\x00-\x1f]", lambda match: json.dumps(match[0])[1:-1], string)
