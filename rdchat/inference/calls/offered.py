"""The tools of a request, and calls of them whose arguments are kept as the model wrote them.

A second, lenient reading takes calls that a model wrote with slips: line breaks, braces and quotes.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdchat.files import json_or_none
from rdchat.inference.api import ToolCall

# A JSON string, perhaps without its end.
_STRING = re.compile(r'"(?:\\.?|[^"\\])*+(?:"|\Z)', re.DOTALL)
# A backslash that begins no escape of JSON, as in a path of Windows.
_LONE_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
# Python sorts the combining marks of a name, in a time that grows with the square of their number.
_MANY_MARKS = re.compile(r"[^\w\s!-~]{1000}")
# Closing braces that a repaired text may get.
_MAX_BRACES = 2
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number as JSON has it."""
# Words that are values: JSON's type and spelling of each.
_WORDS = {
    "null": ("null", "null"), "None": ("null", "null"),
    "true": ("boolean", "true"), "True": ("boolean", "true"),
    "false": ("boolean", "false"), "False": ("boolean", "false"),
}  # fmt: skip
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def repaired(text: str) -> Iterator[str]:
    """Yield what a text may be meant to be: with more braces, with escaped line breaks too, or with JSON's quotes.

    The text with its own line breaks comes before the one with escaped ones: a form that is not JSON takes line breaks
    as they are, and an escape for two letters.
    """
    stripped = text.strip()
    escaped = _STRING.sub(lambda match: _escaped(match[0]), stripped)
    for each in dict.fromkeys((stripped, escaped)):
        # Where none was written, the end of the last value may be missing too.
        for braces in range(_MAX_BRACES + 1 if each.endswith("}") else 1):
            yield each + "}" * braces
    if literal := python_json(text):
        yield literal


def python_tree(source: str) -> ast.expr:
    """Parse an expression of Python; raise ValueError or SyntaxError if it is none, or would take too long."""
    if _MANY_MARKS.search(source):
        raise ValueError
    return ast.parse(source, mode="eval").body


def python_json(text: str) -> str | None:
    """Return the JSON of a dict or a list as Python writes it; None if the text is neither, or a name is repeated."""
    try:
        tree = python_tree(text.strip())
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict) and len({*map(ast.dump, filter(None, node.keys))}) < len(node.keys):
                return None
        value = ast.literal_eval(tree)
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _escaped(string: str) -> str:
    """Return a JSON string with lone backslashes and control characters escaped."""
    string = _LONE_BACKSLASH.sub(r"\\\\", string)
    return re.sub(r"[\x00-\x1f]", lambda match: json.dumps(match[0])[1:-1], string)


class OfferedTools:
    """The tools of a request.

    Args:
        tools: The tools, as clients send them; also an attribute.
        lenient: Whether calls may have slips; then they need the values that their schema requires.

    Attributes:
        schemas: The schema of the arguments of each tool, by its name.
    """

    def __init__(self, tools: list[dict[str, Any]], *, lenient: bool = False) -> None:
        self.tools = tools
        self._lenient = lenient
        functions = [tool.get("function", tool) for tool in tools]
        self.schemas: dict[str, Mapping[str, Any]] = {
            each["name"]: each.get("parameters") or {} for each in functions if isinstance(each.get("name"), str)
        }

    def make_call(self, name: str, arguments: Sequence[tuple[str, str]] | str, call_id: str = "") -> ToolCall:
        """Return a call.

        Args:
            name: Name of the tool.
            arguments: A JSON object, or the name and the JSON of each argument.
            call_id: The model's own id of the call.

        Raises:
            ValueError: If the tool is not offered, or an argument stands twice.
            InvalidSettingError: If the arguments are not a JSON object.
        """
        if name not in self.schemas:
            raise ValueError("no tool of the request")
        arguments = arguments if isinstance(arguments, str) else object_text(arguments)
        made = ToolCall(name, arguments, call_id, mended=self._lenient)
        required = self.schemas[name].get("required") if self._lenient else None
        if isinstance(required, list) and not {*required} <= json.loads(made.arguments).keys():
            raise ValueError("a required value is missing")
        return made

    def value(self, name: str, key: str, text: str) -> str:
        """Return the JSON of an argument that a model wrote as plain text.

        The first of these that fits:

        1. a word such as `true`, of a type that the schema allows; where it allows a text too, only null;
        2. a number, where the schema allows one and no text;
        3. an object or an array, where the schema allows it or says nothing of types;
        4. a text in JSON's quotes, where the schema says nothing;
        5. a text, where the schema allows one or says nothing; and words such as `many` where it wants a number or a
           truth value, which the check of arguments reports to the model.

        Raises:
            ValueError: If the schema allows no such value, and a program may take the text for another one.
        """
        root = self.schemas.get(name, {})
        properties = root.get("properties")
        kinds = _kinds(properties.get(key) if isinstance(properties, dict) else None, root)
        stripped = text.strip()
        kind, word = _WORDS.get(stripped, ("", ""))
        is_text = "string" in kinds or not kinds
        if kind in kinds and (kind == "null" or not is_text):
            return word
        if not is_text and kinds & {"integer", "number"} and NUMBER.fullmatch(stripped):
            return stripped
        as_json = (python_json(stripped) or stripped) if self._lenient and kinds & {"object", "array"} else stripped
        value = json_or_none(as_json)
        if isinstance(value, dict | list) and (not kinds or _TYPES[type(value)] in kinds):
            return as_json
        if isinstance(value, str) and not kinds:
            return stripped
        are_words = stripped and not kinds & {"object", "array"} and not any(map(str.isdigit, stripped))
        if is_text or are_words:
            return json.dumps(text, ensure_ascii=False)
        raise ValueError("a value of another type")


def object_text(members: Sequence[tuple[str, str]]) -> str:
    """Return a JSON object of names and JSON values.

    Raises:
        ValueError: If a name stands twice.
    """
    if len({name for name, _ in members}) < len(members):
        raise ValueError("a name stands twice")
    return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members) + "}"


def _kinds(schema: object, root: Mapping[str, Any]) -> set[str]:
    """Return the types of JSON that a schema allows; empty where it does not say.

    Each part counts once, since it may refer to itself.
    """
    kinds = set[str]()
    waiting = [schema]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(reference := part.get("$ref"), str):
            target: Any = root
            for name in reference.lstrip("#/").split("/"):
                target = target.get(name) if isinstance(target, dict) else None
            waiting.append(target)
            continue
        named = part.get("type", [])
        kinds |= {named} if isinstance(named, str) else {each for each in named if isinstance(each, str)}
        values = [*part["enum"]] if isinstance(part.get("enum"), list) else []
        values += [part["const"]] if "const" in part else []
        # Where the types are named, listed values add none.
        if not named:
            kinds |= {_TYPES.get(type(each), "null") for each in values}
        for several in ("anyOf", "oneOf", "allOf"):
            waiting += part[several] if isinstance(part.get(several), list) else ()
    return kinds & {"null", *_TYPES.values()}
