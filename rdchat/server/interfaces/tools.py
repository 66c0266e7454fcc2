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
"""Tools in OpenAI's form. `strict` stands beside the function, and `custom` or `namespace` where a client has these."""
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
            named = each.get("function", each) if isinstance(each, dict) else {}
            has_name = isinstance(named, dict) and "name" in named
            fields.ignored.append(f"tools.{named['name']}" if has_name else "tools")
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
            name, about = given.text("name"), given.text("description", "")
            inner = _good_ones(given, lambda each: _openai_tools(each, fields, name))
            fields.ignored += [] if inner else ["tools.namespace"]
            for tool in inner:
                function = tool["function"]
                described = "\n".join(filter(None, (about if tool is inner[0] else "", function["description"])))
                yield {**tool, "function": {**function, "description": described}}
        case kind:
            fields.ignored.append(f"tools.{kind}")


def _function(given: Fields, namespace: str) -> Mapping[str, Any]:
    function = given if given.take("function") is None else given.part("function")
    if function is None or not function.text("name"):
        raise wrong(given.name("function"), f"`{given.name('function')}` must name the function.")
    parameters = object_of(function.take("parameters", _NOTHING), function.name("parameters"))
    strict = {"strict": True} if function.flag("strict") else {}
    return _tool(function, parameters, namespace) | strict


def _custom(given: Fields, namespace: str) -> Mapping[str, Any]:
    custom = given.part("custom") or given
    form = custom.part("format") or Fields({})
    form = form.part("grammar") or form
    form.take("type")
    rule = form.text("definition", "")
    tool = _tool(custom, _INPUT, namespace) | {"custom": True}
    if rule:
        syntax = form.text("syntax", "")
        tool["function"]["description"] += f"\nThe input has this form ({syntax}):\n{rule}"
    return tool


def _tool(given: Fields, parameters: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    name, about = given.text("name"), given.text("description", "")
    tool = {"type": "function", "function": {"name": namespace + name, "description": about, "parameters": parameters}}
    return tool | ({"namespace": namespace} if namespace else {})


def read_anthropic_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read Anthropic's `tools`. Those that the client runs have schemas of Anthropic; those that only Anthropic runs,
    such as its web search, count as ignored.
    """
    known: dict[str, Any] = json.loads(files(__package__).joinpath("anthropic_tools.json").read_text())

    def read(given: Fields) -> Iterator[Mapping[str, Any]]:
        kind = given.text("type", "custom")
        own = next((known[each] for each in known if kind.startswith(f"{each}_")), None)
        if own is None and kind != "custom":
            fields.ignored.append(f"tools.{given.text('name', '')}")
            return
        schema = own["parameters"] if own else given.take("input_schema", {})
        about = given.text("description", "") or (own["description"] if own else "")
        function = {"name": given.text("name"), "description": about}
        function["parameters"] = object_of(schema, given.name("input_schema"))
        strict = {"strict": True} if given.flag("strict") else {}
        yield {"type": "function", "function": function} | strict

    return _good_ones(fields, read)


def origin_of(call: ToolCall, tools: Tools) -> Mapping[str, Any]:
    """Return the tool of a call, with `custom` and `namespace`; empty where it is unknown."""
    return next((tool for tool in tools if tool["function"]["name"] == call.name), {})


def input_of(call: ToolCall) -> str:
    """Return the text that a call of a `custom` tool passes."""
    given = json.loads(call.arguments).get("input")
    return given if isinstance(given, str) else call.arguments
