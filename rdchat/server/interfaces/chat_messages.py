"""Reads OpenAI's messages and tools."""

import json
from collections.abc import Mapping
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.requests import ChatMessage, Role, ToolCall
from rdchat.server.interfaces.api_error import unsupported, wrong
from rdchat.server.interfaces.fields import Fields

_ROLES = {"developer": Role.SYSTEM} | {role.value: role for role in Role}


def read_messages(fields: Fields) -> tuple[ChatMessage, ...]:
    """Read `messages`."""
    listed = fields.items("messages")
    if not listed:
        raise wrong("messages", "`messages` must have at least one message.")
    return tuple(map(_read_message, fields.inners("messages")))


def object_of(value: Any, place: str) -> Mapping[str, Any]:
    """Return a JSON object as it is; anything else is refused."""
    if not isinstance(value, dict):
        raise wrong(place, f"`{place}` must be an object.")
    return value


def _read_message(fields: Fields) -> ChatMessage:
    role = _ROLES.get(fields.text("role"))
    if role is None:
        raise wrong(fields.name("role"), f"`{fields.name('role')}` must be one of {', '.join(_ROLES)}.")
    fields.refuse("use `tools` and `tool_calls`.", "function_call")
    content = _content(fields)
    if role is Role.ASSISTANT:
        calls = tuple(map(_read_call, fields.inners("tool_calls")))
        return ChatMessage(role, content, tool_calls=calls)
    if role is Role.TOOL:
        return ChatMessage(role, content, tool_call_id=fields.text("tool_call_id", ""), name=fields.text("name", ""))
    return ChatMessage(role, content)


def _content(fields: Fields) -> str:
    """Read the text of a message, which may come in parts."""
    content = fields.take("content", "")
    if isinstance(content, str):
        return content
    name = fields.name("content")
    if not isinstance(content, list):
        raise wrong(name, f"`{name}` must be a text, or a list of parts.")
    return "\n".join(_part_text(object_of(each, name), f"{name}[{at}]") for at, each in enumerate(content))


def _part_text(part: Mapping[str, Any], place: str) -> str:
    fields = Fields(part, place)
    kind = fields.text("type")
    if kind in {"text", "refusal"}:
        return fields.text(kind)
    raise unsupported(f"{place}.type", f"rdchat reads texts only, and this is {kind[:50]!r}.")


def _read_call(fields: Fields) -> ToolCall:
    fields.take("type")  # `function`
    function = fields.part("function")
    if function is None:
        raise wrong(fields.name("function"), f"`{fields.name('function')}` must name the function.")
    try:
        return ToolCall(function.text("name"), function.text("arguments", "{}") or "{}", fields.text("id", ""))
    except InvalidSettingError as error:
        raise wrong(function.name("arguments"), str(error)) from error


def read_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read `tools`: only functions are known."""
    return tuple(map(_read_tool, fields.inners("tools")))


def _read_tool(fields: Fields) -> Mapping[str, Any]:
    if (kind := fields.text("type")) != "function":
        raise unsupported(fields.name("type"), f"rdchat knows functions only, and this is {kind[:50]!r}.")
    function = fields.part("function")
    if function is None or not function.text("name"):
        raise wrong(fields.name("function"), f"`{fields.name('function')}` must name the function.")
    known = {"name": function.text("name"), "description": function.text("description", "")}
    parameters = function.take("parameters", {"type": "object", "properties": {}})
    tool = {"type": "function", "function": known | {"parameters": object_of(parameters, function.name("parameters"))}}
    return tool | ({"strict": True} if function.flag("strict") else {})


def call_for_client(call: ToolCall, call_id: str) -> dict[str, Any]:
    """Return a tool call for OpenAI's clients."""
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": compact(call.arguments)}}


def compact(arguments: str) -> str:
    """Return JSON text in one standard form."""
    return json.dumps(json.loads(arguments), ensure_ascii=False)
