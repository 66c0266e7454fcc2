"""Reads lists of servers as Claude Desktop, LM Studio and VS Code keep them: in `mcpServers`, in `servers`, or bare."""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files.plain_data import json_or_none
from rdchat.tools.definitions import ToolServer

_MAX_LENGTH = 1_000_000
_FIELDS = {"command", "args", "env", "url", "httpUrl", "serverUrl", "headers", "type"}
_TARGETS = {"command", "url", "httpUrl", "serverUrl"}
_HINT = "Choose the file of Claude Desktop (claude_desktop_config.json), LM Studio or VS Code (mcp.json)."
# What another program puts in when it starts a server.
_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")
_LONGEST = 80
# Comments, and commas behind the last entry, as VS Code's files have them; strings stay as they are.
_STRING = r'("(?:\\.|[^"\\])*(?:"|\Z))'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ImportedServers:
    """Servers from another program's list, disabled and not confirmed.

    Attributes:
        servers: The servers.
        secrets: Values of their variables and headers for the keychain, by server and name.
        problems: What was not understood, and what is to be filled in, a sentence or two for each server.
    """

    servers: tuple[ToolServer, ...]
    secrets: Mapping[str, Mapping[str, str]] = field(repr=False)
    problems: tuple[str, ...]


def read_servers(text: str, taken: Collection[str] = ()) -> ImportedServers:
    """Read a list of servers.

    Args:
        text: The JSON.
        taken: Names of servers that exist; imported ones get others.

    Raises:
        RdchatError: If it is not such a list.
    """
    for pattern in (_COMMENT, _LAST_COMMA) if len(text) <= _MAX_LENGTH and json_or_none(text) is None else ():
        text = pattern.sub(lambda match: match[1] or "", text)
    data = json_or_none(text) if len(text) <= _MAX_LENGTH else None
    entries = _entries(data if isinstance(data, dict) else {})
    servers: dict[str, ToolServer] = {}
    secrets: dict[str, Mapping[str, str]] = {}
    problems: list[str] = []
    for label, entry in entries.items():
        name = _free_name(label, {*taken, *servers})
        try:
            servers[name], values = _server(name, entry)
        except InvalidSettingError as error:
            places = ", ".join(_PLACEHOLDER.findall(json.dumps(entry)))
            first = f" Fill in {places[:_LONGEST]} first." if places else ""
            problems.append(f"{label[:60]} was left out. {error}{first}")
        else:
            secrets[name] = {each: value for each, value in values.items() if not _PLACEHOLDER.search(value)}
            texts = [f"{each}={value}" for each, value in values.items() if each not in secrets[name]]
            texts += [text for text in (*servers[name].command, servers[name].url) if _PLACEHOLDER.search(text)]
            if texts:
                problems.append(f"{label[:60]}: fill this in: {', '.join(text[:_LONGEST] for text in texts)}.")
            if unknown := sorted(entry.keys() - _FIELDS):
                problems.append(f"{label[:60]}: these were ignored: {', '.join(unknown)[:200]}.")
    return ImportedServers(tuple(servers.values()), secrets, tuple(problems))


def _entries(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries of a list by name; raise RdchatError if there are none."""
    named = [data[key] for key in ("mcpServers", "servers") if key in data]
    # A list may be nothing but its entries.
    is_bare = any(isinstance(entry, dict) and not _TARGETS.isdisjoint(entry) for entry in data.values())
    entries = named[0] if named else data if is_bare else None
    if not isinstance(entries, dict):
        raise RdchatError("This is not a list of servers: it has neither mcpServers nor servers.", _HINT)
    return entries


def _server(name: str, entry: Any) -> tuple[ToolServer, dict[str, str]]:
    """Return a server, and the values of its secrets; raise InvalidSettingError if it is not valid."""
    fields: dict[str, Any] = {"command": "", "args": [], "env": {}, "url": "", "headers": {}, "type": ""}
    if isinstance(entry, dict):
        fields |= {key: value for key, value in entry.items() if key in fields and value is not None}
        # Gemini's and Windsurf's names; the first of them is never SSE.
        fields["url"] = entry.get("httpUrl") or entry.get("serverUrl") or fields["url"]
    command, arguments, env, url, headers, kind = fields.values()
    if kind == "sse":
        raise InvalidSettingError("It speaks SSE, which streamable HTTP has replaced.", "Ask its maker for an address.")
    secrets: dict[str, Any] = {**env, **headers} if isinstance(env, dict) and isinstance(headers, dict) else {"": None}
    secrets = {name: _as_text(value) for name, value in secrets.items()}
    arguments = [_as_text(each) for each in arguments] if isinstance(arguments, list) else [None]
    texts = [command, url, *secrets.values(), *arguments]
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise InvalidSettingError("Its command, address, arguments, env or headers are not texts.")
    words = [command]
    if " " in command and not arguments and command[0] not in "/~":
        # Some lists have a whole command line in one text.
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise InvalidSettingError("Its command has a quotation mark without an end.") from error
    server = ToolServer(name, (*words, *arguments) if command else (), url, secrets=tuple(secrets))
    if server.is_built_in:
        raise InvalidSettingError("Its command is rdchat's own.")
    return server, secrets


def _as_text(value: Any) -> Any:
    """Return a number, or true or false, as programs get it in a variable or an argument."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _free_name(label: str, taken: Collection[str]) -> str:
    """Return a name like a label that no other server has."""
    base = "_".join(re.findall(r"[A-Za-z0-9-]+", label))[:20].rstrip("_") or "server"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
