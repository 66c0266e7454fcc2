"""Reads OpenAI's messages."""

import json
from dataclasses import replace
from typing import Any

from rdchat.inference.api.messages import ChatMessage, Role, ToolCall, parsed_json
from rdchat.server.interfaces.api_error import wrong
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.parts import content_of, is_foreign, is_thought, thought_of
from rdchat.server.interfaces.tools import Tools, input_of, origin_of

_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL} | {role.value: role for role in Role}


def read_messages(fields: Fields) -> tuple[ChatMessage, ...]:
    """Read `messages`."""
    listed = fields.inners("messages")
    if not listed:
        raise wrong("messages", "must have at least one message.")
    return tuple(read_message(each, last=each is listed[-1]) for each in listed)


def read_message(fields: Fields, *, last: bool) -> ChatMessage:
    """Read a message; see `part_text` of the last one's parts."""
    role = _ROLES.get(fields.text("role"))
    if role is None:
        raise wrong(fields.name("role"), f"must be one of {', '.join(_ROLES)}.")
    given = fields.take("content", "")
    thoughts = list[object]()
    if role is Role.ASSISTANT and isinstance(given, list):
        thoughts = [part for part in given if is_thought(part)]
        fields.ignored += [f"content.{part['type']}" for part in given if is_foreign(part)]
        given = [part for part in given if not is_thought(part) and not is_foreign(part)]
    strict = last and role is not Role.TOOL
    message = content_of(given, fields.name("content"), strict=strict, role=role).of(role)
    if role is Role.ASSISTANT:
        calls = tuple(map(_read_call, fields.inners("tool_calls")))
        former = fields.part("function_call")
        if former.values:
            calls = (*calls, ToolCall(former.text("name"), arguments_of(former.take("arguments"))))
        # One thought under several names is one.
        names = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
        thought = next(filter(None, (thought_of(fields.take(name)) for name in names)), "") or thought_of(thoughts)
        return replace(message, tool_calls=calls, thought=thought)
    if role is Role.TOOL:
        return replace(message, tool_call_id=fields.text("tool_call_id", ""), name=fields.text("name", ""))
    return message


def _read_call(fields: Fields) -> ToolCall:
    fields.take("type")  # `function` or `custom`
    custom = fields.part("custom")
    if custom.values:
        return ToolCall(custom.text("name"), json.dumps({"input": custom.text("input", "")}), fields.text("id", ""))
    function = fields.part("function")
    return ToolCall(function.text("name"), arguments_of(function.take("arguments")), fields.text("id", ""))


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
