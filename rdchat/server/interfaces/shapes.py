"""Reads the shape that a client wants an answer to have, and makes that of a tool call that it insists on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.answer_shape import AnswerShape, ShapeKind
from rdchat.inference.api.requests import ChatMessage, Role, ToolCall, parsed_json
from rdchat.server.interfaces.api_error import unsupported, wrong
from rdchat.server.interfaces.fields import Fields

Tools = Sequence[Mapping[str, Any]]


def read_shape(given: Fields | None) -> AnswerShape | None:
    """Read `response_format`; `regex` and `grammar` are our own kinds. None where any text will do."""
    if given is None or (kind := given.text("type")) == "text":
        return None
    if kind == "json_object":
        return AnswerShape(ShapeKind.JSON)
    if kind == "json_schema":
        named = given if given.take("schema") is not None else given.part("json_schema")
        schema = named.take("schema") if named else None
        if named is None or schema is None:
            raise wrong(given.name("json_schema"), f"`{given.name('json_schema')}` must have a schema.")
        return _shape(ShapeKind.SCHEMA, json.dumps(schema), named.name("schema"))
    if kind in {"regex", "grammar"}:
        return _shape(ShapeKind(kind), given.text(kind), given.name(kind))
    raise unsupported(given.name("type"), f"rdchat has no shape {kind[:50]!r}.")


def call_shape(tools: Tools) -> AnswerShape:
    """Return the shape of a call of one of some tools, as `call_of` reads it."""
    definitions: dict[str, Any] = {}
    calls = []
    for tool in tools:
        parameters = dict(tool["function"]["parameters"])
        for key in ("$defs", "definitions"):  # references to them begin at the top of the schema
            if not isinstance(named := parameters.pop(key, {}), dict):
                raise wrong("tools", f"`{key}` of the tool {tool['function']['name'][:50]!r} must be an object.")
            for name, schema in named.items():
                if definitions.setdefault(key, {}).setdefault(name, schema) != schema:
                    raise wrong("tools", f"Two tools have different definitions named {name[:50]!r}.")
        fields = {"name": {"const": tool["function"]["name"]}, "arguments": {"type": "object"} | parameters}
        calls.append({"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False})
    return _shape(ShapeKind.SCHEMA, json.dumps(definitions | {"anyOf": calls}), "tools")


def told_of(tools: Tools, messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return messages whose system prompt describes the tools, for a chat template that has no place for them."""
    listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    words = f"Answer with a call of one of these tools, as JSON with `name` and `arguments`:\n{listed}"
    if messages and messages[0].role is Role.SYSTEM:
        return (replace(messages[0], content=f"{messages[0].content}\n\n{words}"), *messages[1:])
    return (ChatMessage(Role.SYSTEM, words), *messages)


def call_of(answer: str) -> tuple[ToolCall, ...]:
    """Return the call in an answer of `call_shape`; empty where the answer was cut off."""
    match parsed_json(answer):
        case {"name": str(name), "arguments": dict(arguments)}:
            return (ToolCall(name, json.dumps(arguments, ensure_ascii=False)),)
    return ()


def chosen_tools(tools: Tools, name: str | None) -> Tools:
    """Return the tools that a client insists on: the named one, or all."""
    if not tools:
        raise wrong("tool_choice", "`tool_choice` needs `tools`.")
    found = [tool for tool in tools if name in (None, tool["function"]["name"])]
    if not found:
        raise wrong("tool_choice", f"`tool_choice` names a tool that is not among `tools`: {str(name)[:50]!r}.")
    return found


def _shape(kind: ShapeKind, source: str, place: str) -> AnswerShape:
    try:
        return AnswerShape(kind, source)
    except InvalidSettingError as error:
        raise wrong(place, str(error)) from error
