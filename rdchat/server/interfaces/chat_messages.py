"""Reads OpenAI's messages and tools."""

import json
from collections.abc import Mapping
from typing import Any

from rdchat.inference.api.messages import ChatMessage, Role, ToolCall, parsed_json
from rdchat.inference.prompts.template_fitting import short_id
from rdchat.server.interfaces.api_error import unsupported, wrong
from rdchat.server.interfaces.fields import Fields, object_of

_TITLE_CHARACTERS = 200
# The first two are those of messages, the others those of `/v1/responses`.
_TEXT_PARTS = {"text", "refusal", "input_text", "output_text", "reasoning_text", "summary_text"}
_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL} | {role.value: role for role in Role}


def read_messages(fields: Fields) -> tuple[ChatMessage, ...]:
    """Read `messages`."""
    listed = fields.inners("messages")
    if not listed:
        raise wrong("messages", "`messages` must have at least one message.")
    return tuple(read_message(each, last=each is listed[-1]) for each in listed)


def read_message(fields: Fields, *, last: bool) -> ChatMessage:
    """Read a message; see `part_text` of the last one's parts."""
    role = _ROLES.get(fields.text("role"))
    if role is None:
        raise wrong(fields.name("role"), f"`{fields.name('role')}` must be one of {', '.join(_ROLES)}.")
    content = text_of(fields.take("content", ""), fields.name("content"), strict=last and role is not Role.TOOL)
    if role is Role.ASSISTANT:
        calls = tuple(map(_read_call, fields.inners("tool_calls")))
        if (former := fields.part("function_call")) is not None:
            calls = (*calls, ToolCall(former.text("name"), arguments_of(former.take("arguments"))))
        thought = fields.text("reasoning_content", "") or fields.text("reasoning", "")
        return ChatMessage(role, content, tool_calls=calls, thought=thought)
    if role is Role.TOOL:
        return ChatMessage(role, content, tool_call_id=fields.text("tool_call_id", ""), name=fields.text("name", ""))
    return ChatMessage(role, content)


def text_of(content: Any, name: str, *, strict: bool) -> str:
    """Return the text of a field that is a text or a list of parts; see `part_text`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(name, f"`{name}` must be a text, or a list of parts.")
    parts = (Fields(object_of(each, name), f"{name}[{at}]") for at, each in enumerate(content))
    return "\n".join(part_text(part, strict=strict) for part in parts)


def part_text(part: Fields, *, strict: bool) -> str:
    """Return the text of a part of a message.

    Args:
        part: The part.
        strict: Whether a picture, a file or another kind is an error. In an old message and in a tool's result it is
            a placeholder such as `[image]`: it must not block all further turns.
    """
    kind = part.text("type")
    if kind in _TEXT_PARTS:
        return part.text("refusal" if kind == "refusal" else "text")
    if strict:
        raise unsupported(part.name("type"), f"rdchat reads texts only, and this is {kind[:50]!r}.")
    title = part.take("title")
    named = f": {title[:_TITLE_CHARACTERS]}" if isinstance(title, str) and title else ""
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:50]}{named}]"


def _read_call(fields: Fields) -> ToolCall:
    fields.take("type")  # `function`
    function = fields.part("function")
    if function is None:
        raise wrong(fields.name("function"), f"`{fields.name('function')}` must name the function.")
    return ToolCall(function.text("name"), arguments_of(function.take("arguments")), fields.text("id", ""))


def arguments_of(given: object) -> str:
    """Return the arguments of an earlier call as a JSON object; what was cut off stands in it as a text."""
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    if isinstance(parsed_json(text), dict):
        return text
    return json.dumps({"unfinished": text}) if text.strip() else "{}"


def id_of_call(call: ToolCall, reply_id: str, index: int, number: int) -> str:
    """Return the id of a call for a client: the model's own, or nine letters and digits.

    Args:
        call: The call.
        reply_id: The reply's id.
        index: Number of the reply among those to one request.
        number: Number of the call in the reply.
    """
    return call.call_id or short_id(f"{reply_id}/{index}/{number}")


def read_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read `tools`: functions; others, such as OpenAI's own web search, run nowhere here and count as ignored.

    In `/v1/responses` the fields of a function stand in the tool itself.
    """
    listed = fields.inners("tools")
    functions = [each for each in listed if each.text("type") == "function"]
    fields.ignored += [f"tools.{each.text('type')}" for each in listed if each not in functions]
    return tuple(map(_read_tool, functions))


def _read_tool(fields: Fields) -> Mapping[str, Any]:
    function = fields if fields.take("function") is None else fields.part("function")
    if function is None or not function.text("name"):
        raise wrong(fields.name("function"), f"`{fields.name('function')}` must name the function.")
    known = {"name": function.text("name"), "description": function.text("description", "")}
    parameters = function.take("parameters", {"type": "object", "properties": {}})
    tool = {"type": "function", "function": known | {"parameters": object_of(parameters, function.name("parameters"))}}
    return tool | ({"strict": True} if function.flag("strict") else {})


def call_for_client(call: ToolCall, call_id: str) -> dict[str, Any]:
    """Return a tool call for OpenAI's clients."""
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
