"""The tools that a chat has, and the servers that it needs for them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rdchat.chat.conversation import Conversation
from rdchat.inference.api.messages import ToolCall, parsed_json
from rdchat.services.tools.tool_servers import ToolServers
from rdchat.tools.definitions import ToolDefinition

MAX_CALLS = 16
"""Calls of a reply that may be run."""
NO_TOOLS = "This reply has no tools."
"""The refusal of a call in a reply whose request had no tools."""
_TOO_MANY = f"Only {MAX_CALLS} calls of a reply are run."
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "integer": int,
    "number": (int, float),
}


class ChatTools:
    """Which tools a chat has, by the servers that are switched on in it.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: ToolServers) -> None:
        self.servers = servers

    def start_servers(self, chat: Conversation, status: str = "") -> None:
        """Start the servers of a chat that do not run, or those with a status."""
        for name in self.names(chat, status):
            self.servers.start_server(name)

    def names(self, chat: Conversation, status: str = "") -> list[str]:
        """Return the names of the chat's servers that may be started, or of those with a status."""
        names = (each.name for each in self.servers.usable if each.name in chat.own.tools)
        return [each for each in names if status in {"", self.servers.server_state(each).status}]

    def definitions(self, chat: Conversation) -> dict[str, ToolDefinition]:
        """Return the tools of the chat's servers that run, by their full names."""
        known = self.servers.definitions(self.names(chat, "running"))
        return {each.full_name: each for each in known if each.full_name not in chat.own.tools_off}


def tools_json(definitions: Mapping[str, ToolDefinition]) -> str:
    """Return tools, by their full names, for a `GenerationRequest`; empty for none."""
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": each.description, "parameters": each.parameters},
        }
        for name, each in definitions.items()
    ]
    return json.dumps(tools, ensure_ascii=False) if tools else ""


def with_refusals(calls: Iterable[ToolCall], offered: Mapping[str, ToolDefinition]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, those that cannot be run with the reason.

    Args:
        calls: The calls.
        offered: The tools of the reply's request, by their full names.
    """
    checked = list[ToolCall]()
    runnable = 0
    for call in calls:
        refusal = problem_of(call, offered.get(call.name)) if offered else NO_TOOLS
        runnable += not refusal
        checked.append(replace(call, refusal=refusal or (_TOO_MANY if runnable > MAX_CALLS else "")))
    return tuple(checked)


def problem_of(call: ToolCall, definition: ToolDefinition | None) -> str:
    """Return why a call cannot be run, in a sentence for the model; empty if it can be.

    Of the arguments, only names and types are checked. The rest is for the server: a schema is a stranger's, and its
    patterns may hang.
    """
    if definition is None:
        return f"The tool {call.name[:100]} is not available."
    arguments: Any = parsed_json(call.arguments)
    known, required = (definition.parameters.get(each) for each in ("properties", "required"))
    if missing := [each for each in required if each not in [*arguments]] if isinstance(required, list) else []:
        return f"The argument {missing[0]} is missing."
    for name, value in arguments.items():
        schema = known.get(name) if isinstance(known, dict) else None
        kind = schema.get("type") if isinstance(schema, dict) else None
        expected = _TYPES.get(kind, object) if isinstance(kind, str) else object
        if not isinstance(value, expected) or (isinstance(value, bool) and kind in {"integer", "number"}):
            return f"The argument {name} has to be of the type {kind}."
    return ""
