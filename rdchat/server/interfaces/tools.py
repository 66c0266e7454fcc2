"""Reads the tools of a request in the forms of all clients, and gives their calls back in the same form.

The model gets functions. A tool of a `namespace` (as Codex sends those of MCP servers) has both names as one, and a
`custom` tool, whose calls are plain text (such as Codex's `apply_patch`), has one argument, `input`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from rdchat.inference.api.messages import ToolCall
from rdchat.server.interfaces.api_error import ApiError, wrong
from rdchat.server.interfaces.fields import Fields, object_of

Tools = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's form. `strict` and `namespace` stand beside the function, and `custom` where a client has it."""
_NOTHING = {"type": "object", "properties": {}}
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def read_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read OpenAI's `tools`; those that run nowhere here, such as its own web search, count as ignored.

    In `/v1/responses` the fields of a function stand in the tool itself.
    """
    return _good_ones(fields, lambda given: _openai_tools(given, fields, ""))


def _good_ones(fields: Fields, read: Callable[[Fields], Iterator[Mapping[str, Any]]]) -> tuple[Mapping[str, Any], ...]:
    """Read each entry of `tools`. A damaged one counts as ignored, unless none is good."""
    tools = list[Mapping[str, Any]]()
    refusals = list[ApiError]()
    for at, each in enumerate(fields.items("tools")):
        try:
            tools += read(fields.inner(each, f"tools[{at}]"))
        except ApiError as error:
            refusals.append(error)
            match each:
                case {"function": {"name": name}} | {"name": name}:
                    fields.ignored.append(f"tools.{name}")
                case _:
                    fields.ignored.append("tools")
    if refusals and not tools:
        raise refusals[0]
    return tuple(tools)


def _openai_tools(given: Fields, fields: Fields, namespace: str) -> Iterator[Mapping[str, Any]]:
    match given.text("type", "function"):
        case "function":
            yield _function(given, namespace)
        case "custom":
            yield _custom(given, namespace)
        case "namespace":
            name = given.text("name")
            about = given.text("description", "")
            inner = _good_ones(given, lambda each: _openai_tools(each, fields, name))
            if inner:
                first = inner[0]["function"]
                first["description"] = "\n".join(filter(None, (about, first["description"])))
            else:
                fields.ignored.append("tools.namespace")
            yield from inner
        case kind:
            fields.ignored.append(f"tools.{kind}")


def _function(given: Fields, namespace: str) -> Mapping[str, Any]:
    function = given if given.take("function") is None else given.part("function")
    if not function.text("name"):
        raise wrong(given.name("function"), "must name the function.")
    return _tool(function, function.take("parameters", _NOTHING), namespace)


def _custom(given: Fields, namespace: str) -> Mapping[str, Any]:
    custom = given if given.take("custom") is None else given.part("custom")
    form = custom.part("format")
    form.take("type")
    form = form if form.take("grammar") is None else form.part("grammar")
    rule = form.text("definition", "")
    tool = _tool(custom, _INPUT, namespace) | {"custom": True}
    if rule:
        syntax = form.text("syntax", "")
        tool["function"]["description"] += f"\nThe input has this form ({syntax}):\n{rule}"
    return tool


def _tool(
    given: Fields, parameters: Any, namespace: str = "", field: str = "parameters", about: str = ""
) -> dict[str, Any]:
    function = {
        "name": namespace + given.text("name"),
        "description": given.text("description", "") or about,
        "parameters": object_of(parameters, given.name(field)),
    }
    return {"type": "function", "function": function, "strict": given.flag("strict"), "namespace": namespace}


def read_anthropic_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read Anthropic's `tools`. Those that the client runs have schemas of Anthropic; those that only Anthropic runs,
    such as its web search, count as ignored.
    """
    known: dict[str, Any] = json.loads(files(__package__).joinpath("anthropic_tools.json").read_text())

    def read(given: Fields) -> Iterator[Mapping[str, Any]]:
        kind = given.text("type", "custom")
        own: Mapping[str, Any] = next((known[each] for each in known if kind.startswith(f"{each}_")), {})
        if not own and kind != "custom":
            fields.ignored.append(f"tools.{given.text('name', '')}")
            return
        schema = own["parameters"] if own else given.take("input_schema", {})
        yield _tool(given, schema, field="input_schema", about=own.get("description", ""))

    return _good_ones(fields, read)


def origin_of(call: ToolCall, tools: Tools) -> Mapping[str, Any]:
    """Return the tool of a call, with `custom` and `namespace`; empty where it is unknown."""
    return next((tool for tool in tools if tool["function"]["name"] == call.name), {})


def input_of(call: ToolCall) -> str:
    """Return the text that a call of a `custom` tool passes."""
    given = json.loads(call.arguments).get("input")
    return given if isinstance(given, str) else call.arguments
