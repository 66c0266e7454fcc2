"""Reads calls that are JSON, with each value as it was written: numbers are never made and written anew."""

import json
import re
from collections.abc import Iterator
from typing import Any

from rdchat.inference.api.messages import ToolCall
from rdchat.inference.calls.offered import OfferedTools

_BLANK = re.compile(r"\s*")


def after_blanks(text: str, at: int) -> int:
    """Return where something other than blanks follows."""
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return made


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_twins)


def value_end(text: str, at: int) -> int:
    """Return where the JSON value that begins at an offset ends; raise ValueError if it is none."""
    return _DECODER.raw_decode(text, at)[1]


def json_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of a text that is nothing but JSON: objects one after the other, or a list of them.

    Raises:
        ValueError: If it is anything else.
    """
    text = text.strip()
    listed = (value for _, value in _values(text)) if text[:1] == "[" else _objects(text)
    return [_call(each, tools) for each in listed]


def _objects(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = value_end(text, at)
        yield text[at:end]
        at = after_blanks(text, end)


def objects_end(text: str, at: int) -> tuple[int, bool]:
    """Return where JSON objects one after the other end, with the blanks behind them, and whether all are whole.

    Where one is not, the end is where it breaks off.
    """
    while text.startswith("{", at):
        try:
            at = after_blanks(text, value_end(text, at))
        except json.JSONDecodeError as error:
            return max(error.pos, at + 1), False
        except ValueError:
            return at + 1, False
        except RecursionError:
            return len(text), False
    return at, True


def members(text: str) -> dict[str, str]:
    """Return the names of a JSON object, each with its value as it was written.

    Raises:
        ValueError: If it is no object, or a name stands twice.
    """
    if text[:1] != "{":
        raise ValueError("no object")
    return dict(_values(text))


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a JSON object or list as they were written, each behind its name; in a list that is empty."""
    if value_end(text, 0) != len(text):
        raise ValueError("text behind the value")
    at = after_blanks(text, 1)
    while text[at] not in "]}":
        name = ""
        if text[0] == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = after_blanks(text, after_blanks(text, at) + 1)
        end = value_end(text, at)
        yield name, text[at:end]
        at = after_blanks(text, end)
        at = after_blanks(text, at + 1) if text[at] == "," else at


def _call(text: str, tools: OfferedTools) -> ToolCall:
    fields = members(text)
    fields.pop("type", None)
    call_id = json.loads(fields.pop("id", '""'))
    if "function" in fields and fields["function"][:1] == "{" and len(fields) == 1:
        fields = members(fields["function"])
    elif "function" in fields and "name" not in fields:
        fields["name"] = fields.pop("function")
    name = json.loads(fields.pop("name"))
    (arguments,) = [fields.pop(each) for each in ("arguments", "parameters") if each in fields] or ["{}"]
    if fields:
        raise ValueError("more than a call")
    # Some templates write the arguments as a text of JSON.
    return tools.call(name, json.loads(arguments) if arguments[:1] == '"' else arguments, str(call_id or ""))
