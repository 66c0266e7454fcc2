"""Servers of tools, their tools, and the results of calls, as plain data for the app and the child that runs servers.

`listed_tools` checks a server's list of tools, which is a stranger's: tools that cannot be used are left out.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rdchat.errors import InvalidSettingError, RdchatError, one_line
from rdchat.files import as_text, is_nested_deeper

BUILT_IN = "rdchat:"
"""Beginning of the command of a server that comes with rdchat; no program has this name."""
MAX_TOOLS = 128
"""How many tools of one server can be used."""
MAX_LISTED = 1_000
"""How many entries of a server's list `Connection` reads; those beyond `MAX_TOOLS` are reported as problems."""
MAX_TEXT = 100_000
"""Longest text of a result, in characters."""
# Between the parts of a command that is shown for agreement.
_NEXT_PART = "\n    "
# No `__` in it: that separates the server's name from the tool's in `full_name`.
_SERVER_NAME = re.compile(r"(?=.{1,24}$)[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
# Addresses: http:// on this computer only, https:// anywhere; a port and a path may follow, without white space.
_PORT_AND_PATH = r"(:[1-6]?\d{1,4})?([/?][!-~]*)?"
_LOCAL_ADDRESS = re.compile(rf"https?://(localhost|127\.0\.0\.1|\[::1\]){_PORT_AND_PATH}", re.ASCII)
_ADDRESS = re.compile(rf"https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]){_PORT_AND_PATH}|{_LOCAL_ADDRESS.pattern}", re.ASCII)
# Limits of a tool's texts, in characters: its own name, that with the server's, its description, its schema as JSON,
# and its name in a sentence about it.
_MAX_TOOL_NAME = 128
_MAX_FULL_NAME = 64
_MAX_DESCRIPTION = 4_000
_MAX_PARAMETERS = 32_000
_MAX_LABEL = 60
# How deep a schema may be nested. Requests have the schemas of tools in further objects, and may be 100 deep in all.
_MAX_NESTED = 64


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A server of tools: a program that is started here, or an address.

    Attributes:
        name: Up to 24 letters, digits, `-`, and `_` between them.
        command: The program and its arguments; empty for an address.
        url: The address (streamable HTTP); empty for a program. It is unencrypted only on this computer.
        environment: Variables of the program, by name.
        secrets: Names of further variables, or of headers, whose values are in the keychain.
        enabled: Whether it may be started.
        confirmed: Whether the person has seen the command or the address, and agreed.
        keys_chosen: Whether the person has said which variables are secret. Servers of earlier versions have all of
            them in the keychain; until somebody says it, those are masked whose names are a key's.

    Raises:
        InvalidSettingError: If the name, the command or the address is not valid.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    enabled: bool = False
    confirmed: bool = False
    keys_chosen: bool = False

    def __post_init__(self) -> None:
        problem = ""
        if not _SERVER_NAME.fullmatch(self.name):
            problem = "has another name than up to 24 letters, digits and hyphens"
        elif bool(self.command) == bool(self.url) or "" in self.command[:1]:
            problem = "needs either a command or an address"
        elif any("\0" in text for text in (*self.command, *self.environment, *self.environment.values())):
            problem = "has a character in its command that no command can have"
        elif self.url and not _ADDRESS.fullmatch(self.url):
            problem = "needs an address with https:// and no user name (http:// is not encrypted: only here)"
        if problem:
            raise InvalidSettingError(f"The server {self.name[:40]!r} {problem}.")

    @property
    def is_built_in(self) -> bool:
        """Whether it comes with rdchat."""
        return "".join(self.command[:1]).startswith(BUILT_IN)

    @property
    def is_remote(self) -> bool:
        """Whether data leaves this computer."""
        return bool(self.url) and not _LOCAL_ADDRESS.fullmatch(self.url)

    @property
    def source_text(self) -> str:
        """What a person agrees to: the command or the address, the variables, and the names of secrets.

        Each further part of a command begins a line that is indented, unlike the rest of a line that is too long.
        """
        variables = ", ".join([*map("=".join, self.environment.items()), *self.secrets])
        return (self.url or _NEXT_PART.join(map(shlex.quote, self.command))) + (
            f"\n\nWith {variables}" if variables else ""
        )

    @property
    def origin(self) -> str:
        """A hash of what runs, or of who answers, without the values of secrets."""
        return _hash([self.name, self.command, self.url, self.environment, sorted(self.secrets)])


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server describes it. All of it is a stranger's text.

    Attributes:
        server: Name of its server.
        name: Name by which the server knows it.
        description: Its description, without control characters, at most 4,000 characters.
        parameters: JSON schema of its arguments, at most 32,000 characters.
        read_only: Whether the server declares that it changes nothing.
        remote: Whether data leaves this computer.
        origin: `ToolServer.origin` of its server.
    """

    server: str
    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool
    remote: bool
    origin: str = ""

    @property
    def full_name(self) -> str:
        """Its name for models, with that of its server: letters, digits, `_` and `-`, at most 64.

        `files__read` as it is. If the tool's own name has other characters, or both are too long together, the
        characters are replaced by `_`, the end is cut, and a hash follows.
        """
        full = f"{self.server}__{re.sub(r'[^A-Za-z0-9_-]', '_', self.name)}"
        if full.endswith(f"__{self.name}") and len(full) <= _MAX_FULL_NAME:
            return full
        # The hash keeps names apart that are alike once other characters are replaced, or the end is cut.
        return f"{full[: _MAX_FULL_NAME - 9]}_{_hash(self.name)[:8]}"

    @property
    def fingerprint(self) -> str:
        """A hash of the server's command or address and of the definition; an approval holds for one."""
        return _hash([self.origin, self.name, self.description, self.parameters, self.read_only, self.remote])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: Its text, cut at `MAX_TEXT` characters with a note.
        is_error: Whether the tool says that it failed.
        images: Images, as PNG, JPEG, GIF, WebP or BMP.
    """

    text: str
    is_error: bool = False
    images: tuple[bytes, ...] = ()


class SessionEndedError(RdchatError):
    """A server over HTTP has ended its session, so it did not get a call.

    Attributes:
        session: The number of the session among those with the server.
    """

    def __init__(self, server: str, session: int) -> None:
        super().__init__(f"The server {server} ended its session.")
        self.session = session


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server.

    Attributes:
        start_s: Seconds to start; a first start may download the server.
        call_s: Seconds for a call.
        message_bytes: Size of one line, body or event.
        memory_bytes: Memory of all its processes.
    """

    start_s: float = 120.0
    call_s: float = 300.0
    message_bytes: int = 32_000_000
    memory_bytes: int = 4_000_000_000


def listed_tools(listed: Sequence[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tools of a server's list that can be used, and why others cannot.

    Args:
        listed: The list as the server sent it. Fields of a tool that rdchat does not use are ignored.

    Returns:
        The fields of `ToolDefinition` that the server decides, and a sentence for each tool that is left out: without a
        usable name, with the name of an earlier one, with parameters that are no schema or too large, and more than
        `MAX_TOOLS`.
    """
    tools: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for number, entry in enumerate(listed, 1):
        try:
            tool = _parse_tool(entry)
            if tool["name"] in tools:
                raise ValueError("an earlier tool has its name")
            if len(tools) == MAX_TOOLS:
                raise ValueError(f"a server can have {MAX_TOOLS} tools")
            tools[tool["name"]] = tool
        except ValueError as error:
            name = entry.get("name") if isinstance(entry, dict) else None
            label = one_line(name or f"number {number}")
            problems.append(f"The tool {label[:_MAX_LABEL]} cannot be used: {error}.")
    return list(tools.values()), problems


def _parse_tool(entry: Any) -> dict[str, Any]:
    """Return the fields of a tool; raise ValueError with the reason why it cannot be used."""
    if not isinstance(entry, dict):
        raise ValueError("it is no object")
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_TOOL_NAME or not name.isprintable():
        raise ValueError("its name is not valid")
    # A stranger's text may be of any length, so only its beginning is looked at.
    begin = as_text(entry.get("description") or "")[: 10 * _MAX_DESCRIPTION]
    text = "".join(letter for letter in begin if letter.isprintable() or letter == "\n")
    if len(text) > _MAX_DESCRIPTION:
        text = f"{text[: _MAX_DESCRIPTION - 1]}…"
    parameters = _parse_parameters(entry.get("inputSchema"))
    hints: Any = entry.get("annotations")
    is_declared = isinstance(hints, dict) and hints.get("readOnlyHint") is True
    is_read_only = is_declared and hints.get("destructiveHint") is not True
    return {"name": name, "description": text, "parameters": parameters, "read_only": is_read_only}


def _parse_parameters(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments; raise ValueError with the reason why it cannot be used.

    Only this is checked: an object, its depth and length, properties by name, and a list of names that are required.
    """
    # Some languages write what is empty as null or as a list, here and in its fields: `"properties": []` becomes `{}`.
    # MCP lets tools without arguments leave `properties` out, but some servers of models refuse them.
    schema = schema or {}
    if not isinstance(schema, dict):
        raise ValueError("its parameters are no JSON schema")
    if is_nested_deeper(schema, _MAX_NESTED):
        raise ValueError("its parameters are nested too deeply")
    # JSON has no infinite numbers, but servers write them; `dumps` raises ValueError then.
    if len(json.dumps(schema, allow_nan=False)) > _MAX_PARAMETERS:
        raise ValueError("its parameters are too long")
    empty: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    parameters = {"type": "object", "properties": {}} | {
        name: value or empty.get(name, value) for name, value in schema.items()
    }
    properties = parameters["properties"]
    required = parameters.get("required", [])
    if parameters["type"] != "object":
        raise ValueError("its parameters are no object")
    if not isinstance(properties, dict) or not all(isinstance(each, dict | bool) for each in properties.values()):
        raise ValueError("its parameters are no JSON schema")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise ValueError("its required parameters are no list of names")
    return parameters


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def cut_text(text: str) -> str:
    """Return a result's text within `MAX_TEXT` characters, with a note where it is cut."""
    note = f"\n[Cut by rdchat: the result has {len(text):,} characters, {MAX_TEXT:,} are above.]"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + note
