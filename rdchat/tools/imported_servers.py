"""Reads the lists of servers that other programs keep, such as Claude Desktop, LM Studio and VS Code.

The list is in `mcpServers`, in `servers`, or is the whole file. Nothing in it is trusted: the servers come in disabled.
"""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files import json_or_none
from rdchat.tools.definitions import ToolServer
from rdchat.tools.secret_values import PASSWORD

_MAX_LENGTH = 1_000_000
_MAX_SERVERS = 1_000
# Fields of an entry that say what runs or who answers; and all fields that are read.
_TARGETS = {"command", "url", "httpUrl", "serverUrl"}
_FIELDS = {*_TARGETS, "args", "env", "headers", "type"}
_HINT = "Choose the file of Claude Desktop (claude_desktop_config.json), LM Studio or VS Code (mcp.json)."
# A variable, such as `${input:key}`, which the other program replaces when it starts the server.
_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")
# Comments, and commas behind the last entry, as VS Code's files have them. Both patterns match strings too, as group 1,
# so that nothing inside a string is removed.
_STRING = r'("(?:\\.|[^"\\])*(?:"|\Z))'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ImportedServers:
    """Servers from another program's list, disabled and not confirmed.

    Attributes:
        servers: The servers, with the names of all their variables and headers as secrets.
        secrets: Values of these, by server and name.
        problems: What was not understood, and what is to be filled in, a sentence or two for each server.
    """

    servers: tuple[ToolServer, ...]
    secrets: Mapping[str, Mapping[str, str]] = field(repr=False)
    problems: tuple[str, ...]

    @property
    def optional(self) -> list[tuple[str, str]]:
        """Server and name of each value that is a secret only if the person says so.

        Headers and addresses with a password are secret in any case. So are texts of several lines, since the variables
        in the settings are edited as lines.
        """
        return [
            (server.name, name)
            for server in self.servers
            for name, value in self.secrets[server.name].items()
            if not (server.url or "\n" in value or PASSWORD.search(value))
        ]


def read_servers(text: str, taken: Collection[str] = ()) -> ImportedServers:
    """Read a list of servers.

    What is not JSON is read once more, without its comments and last commas. A text of more than a million characters
    counts as no list. An entry that is not valid is left out, with a problem.

    Args:
        text: The JSON.
        taken: Names of servers that exist; imported ones get others.

    Raises:
        RdchatError: If it is not such a list.
    """
    data = json_or_none(text) if len(text) <= _MAX_LENGTH else {}
    if data is None:
        for pattern in (_COMMENT, _LAST_COMMA):
            text = pattern.sub(lambda match: match[1] or "", text)
        data = json_or_none(text)
    entries = _entries(data if isinstance(data, dict) else {})
    servers: dict[str, ToolServer] = {}
    secrets: dict[str, Mapping[str, str]] = {}
    problems: list[str] = []
    for label, entry in entries.items():
        name = _free_name(label, {*taken, *servers})
        try:
            servers[name], values = _parse_server(name, entry)
        except InvalidSettingError as error:
            problems.append(f"{label[:60]} was left out. {error}")
        else:
            # A value with a placeholder is not stored: the person fills it in.
            secrets[name] = {each: value for each, value in values.items() if not _PLACEHOLDER.search(value)}
            if unknown := sorted(entry.keys() - _FIELDS):
                problems.append(f"{label[:60]}: these were ignored: {', '.join(unknown)[:200]}.")
        if placeholders := _PLACEHOLDER.findall(json.dumps(entry, ensure_ascii=False)):
            problems.append(f"{label[:60]}: fill this in: {', '.join(placeholders)[:200]}.")
    return ImportedServers(tuple(servers.values()), secrets, tuple(problems))


def _entries(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries of `mcpServers`, else of `servers`, else of the file itself; raise RdchatError for none."""
    # The file itself is the list if one of its values is an entry with a command or an address.
    is_bare = any(isinstance(entry, dict) and not _TARGETS.isdisjoint(entry) for entry in data.values())
    entries = data.get("mcpServers", data.get("servers", data if is_bare else None))
    if not isinstance(entries, dict):
        raise RdchatError("This is not a list of servers: it has neither mcpServers nor servers.", _HINT)
    if len(entries) > _MAX_SERVERS:
        raise RdchatError(f"This list has more than {_MAX_SERVERS:,} servers.", _HINT)
    return entries


def _parse_server(name: str, entry: Any) -> tuple[ToolServer, dict[str, str]]:
    """Return the server of an entry, and the values of its secrets; raise InvalidSettingError if it is not valid."""
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    command = fields.get("command") or ""
    arguments = fields.get("args") or []
    env = fields.get("env") or {}
    headers = fields.get("headers") or {}
    # Gemini's `httpUrl` comes first, then Windsurf's `serverUrl`: Gemini's `url` may be an address of SSE, the older
    # protocol, which is not supported; `httpUrl` never is.
    url = fields.get("httpUrl") or fields.get("serverUrl") or fields.get("url") or ""
    if fields.get("type") == "sse":
        raise InvalidSettingError("It speaks SSE, which streamable HTTP has replaced.", "Ask its maker for an address.")
    # What is not of the right shape becomes None, which the check of the texts below refuses.
    secrets: dict[str, Any] = {**env, **headers} if isinstance(env, dict) and isinstance(headers, dict) else {"": None}
    secrets = {name: _as_text(value) for name, value in secrets.items()}
    arguments = [_as_text(each) for each in arguments] if isinstance(arguments, list) else [None]
    texts = [command, url, *secrets.values(), *arguments]
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise InvalidSettingError("Its command, address, arguments, env or headers are not texts.")
    argv = [command]
    if " " in command and not arguments and command[0] not in "/~":
        # Some lists have a whole command line in one text. What begins with / or ~ is taken as a path with spaces.
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise InvalidSettingError("Its command has a quotation mark without an end.") from error
    server = ToolServer(name, (*argv, *arguments) if command else (), url, secrets=tuple(secrets))
    if server.is_built_in:
        raise InvalidSettingError("Its command is rdchat's own.")
    return server, secrets


def _as_text(value: Any) -> Any:
    """Return a number, or true or false, as the text that a program gets; other values as they are."""
    return json.dumps(value) if isinstance(value, int | float) else value


def _free_name(label: str, taken: Collection[str]) -> str:
    """Return a valid name made of an entry's label that no other server has."""
    base = "_".join(re.findall(r"[A-Za-z0-9-]+", label))[:20].rstrip("_") or "server"
    name = base
    number = 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
