"""Reads OpenAI's messages.

Reads the tools of a request in the forms of all clients, and gives their calls back in the same form.

The model gets functions. A tool of a `namespace` (as Codex sends those of MCP servers) has both names as one, and a
`custom` tool, whose calls are plain text (such as Codex's `apply_patch`), has one argument, `input`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from rdchat.inference.api import ChatMessage, Role, ToolCall, parsed_json
from rdchat.server.interfaces.fields import ApiError, Fields, object_of, wrong
from rdchat.server.interfaces.parts import content_of, is_foreign, is_thought, thought_of

Tools = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's form. `strict` and `namespace` stand beside the function, and `custom` where a client has it."""
_NOTHING = {"type": "object", "properties": {}}
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL} | {role.value: role for role in Role}


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
    match given.read_text("type", "function"):
        case "function":
            yield _function(given, namespace)
        case "custom":
            yield _custom(given, namespace)
        case "namespace":
            name = given.read_text("name")
            description = given.read_text("description", "")
            inner = _good_ones(given, lambda each: _openai_tools(each, fields, name))
            if inner:
                first = inner[0]["function"]
                first["description"] = "\n".join(filter(None, (description, first["description"])))
            else:
                fields.ignored.append("tools.namespace")
            yield from inner
        case kind:
            fields.ignored.append(f"tools.{kind}")


def _function(given: Fields, namespace: str) -> Mapping[str, Any]:
    function = given if given.raw_value("function") is None else given.part("function")
    if not function.read_text("name"):
        raise wrong(given.field_name("function"), "must name the function.")
    return _tool(function, function.raw_value("parameters", _NOTHING), namespace)


def _custom(given: Fields, namespace: str) -> Mapping[str, Any]:
    custom = given if given.raw_value("custom") is None else given.part("custom")
    form = custom.part("format")
    form.raw_value("type")
    form = form if form.raw_value("grammar") is None else form.part("grammar")
    rule = form.read_text("definition", "")
    tool = _tool(custom, _INPUT, namespace) | {"custom": True}
    if rule:
        syntax = form.read_text("syntax", "")
        tool["function"]["description"] += f"\nThe input has this form ({syntax}):\n{rule}"
    return tool


def _tool(
    given: Fields, parameters: Any, namespace: str = "", field: str = "parameters", about: str = ""
) -> dict[str, Any]:
    function = {
        "name": namespace + given.read_text("name"),
        "description": given.read_text("description", "") or about,
        "parameters": object_of(parameters, given.field_name(field)),
    }
    return {"type": "function", "function": function, "strict": given.flag("strict"), "namespace": namespace}


def read_anthropic_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read Anthropic's `tools`. Those that the client runs have schemas of Anthropic; those that only Anthropic runs,
    such as its web search, count as ignored.
    """
    known: dict[str, Any] = json.loads(files(__package__).joinpath("anthropic_tools.json").read_text())

    def read(given: Fields) -> Iterator[Mapping[str, Any]]:
        kind = given.read_text("type", "custom")
        own: Mapping[str, Any] = next((known[each] for each in known if kind.startswith(f"{each}_")), {})
        if not own and kind != "custom":
            fields.ignored.append(f"tools.{given.read_text('name', '')}")
            return
        schema = own["parameters"] if own else given.raw_value("input_schema", {})
        yield _tool(given, schema, field="input_schema", about=own.get("description", ""))

    return _good_ones(fields, read)


def origin_of(call: ToolCall, tools: Tools) -> Mapping[str, Any]:
    """Return the tool of a call, with `custom` and `namespace`; empty where it is unknown."""
    return next((tool for tool in tools if tool["function"]["name"] == call.name), {})


def input_of(call: ToolCall) -> str:
    """Return the text that a call of a `custom` tool passes."""
    given = json.loads(call.arguments).get("input")
    return given if isinstance(given, str) else call.arguments


def read_messages(fields: Fields) -> tuple[ChatMessage, ...]:
    """Read `messages`."""
    listed = fields.inners("messages")
    if not listed:
        raise wrong("messages", "must have at least one message.")
    return tuple(read_message(each, last=each is listed[-1]) for each in listed)


def read_message(fields: Fields, *, last: bool) -> ChatMessage:
    """Read a message; see `part_text` of the last one's parts."""
    role = _ROLES.get(fields.read_text("role"))
    if role is None:
        raise wrong(fields.field_name("role"), f"must be one of {', '.join(_ROLES)}.")
    given = fields.raw_value("content", "")
    thoughts = list[object]()
    if role is Role.ASSISTANT and isinstance(given, list):
        thoughts = [part for part in given if is_thought(part)]
        fields.ignored += [f"content.{part['type']}" for part in given if is_foreign(part)]
        given = [part for part in given if not is_thought(part) and not is_foreign(part)]
    strict = last and role is not Role.TOOL
    message = content_of(given, fields.field_name("content"), strict=strict, role=role).as_message(role)
    if role is Role.ASSISTANT:
        calls = tuple(map(_read_call, fields.inners("tool_calls")))
        former = fields.part("function_call")
        if former.values:
            calls = (*calls, ToolCall(former.read_text("name"), arguments_of(former.raw_value("arguments"))))
        # One thought under several names is one.
        names = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
        thought = next(filter(None, (thought_of(fields.raw_value(name)) for name in names)), "")
        in_parts = thought_of(thoughts)
        if in_parts not in thought:
            thought = f"{in_parts}\n{thought}".rstrip("\n")
        return replace(message, tool_calls=calls, thought=thought)
    if role is Role.TOOL:
        return replace(message, tool_call_id=fields.read_text("tool_call_id", ""), name=fields.read_text("name", ""))
    return message


def _read_call(fields: Fields) -> ToolCall:
    fields.raw_value("type")  # `function` or `custom`
    custom = fields.part("custom")
    if custom.values:
        name = custom.read_text("name")
        arguments = json.dumps({"input": custom.read_text("input", "")})
    else:
        function = fields.part("function")
        name = function.read_text("name")
        arguments = arguments_of(function.raw_value("arguments"))
    return ToolCall(name, arguments, fields.read_text("id", ""))


def arguments_of(given: object) -> str:
    """Return the arguments of an earlier call as a JSON object; what was cut off stands in it as a text."""
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    if isinstance(parsed_json(text), dict):
        return text
    return json.dumps({"unfinished": text}) if text.strip() else "{}"


def call_for_client(call: ToolCall, call_id: str, tools: Tools = ()) -> dict[str, Any]:
    """Return a tool call for clients of OpenAI's chat completions."""
    if origin_of(call, tools).get("custom"):
        return {"id": call_id, "type": "custom", "custom": {"name": call.name, "input": input_of(call)}}
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
