"""Servers of tools: which there are, their state, calls of their tools, and which of them a chat has.

The servers run in one child process (`rdchat --child tools`). `ToolServers` starts them there and has the state of
each; `ChatTools` chooses those of a chat. The functions at the end make tools into a request and check its calls.
"""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Conversation
from rdchat.errors import RdchatError
from rdchat.files import persons_umask
from rdchat.inference.api import ToolCall, parsed_json
from rdchat.keychain import FAILED, TOOL_SECRETS, ask_keychain
from rdchat.services.background_work import BackgroundWork, MainThread
from rdchat.tools.built_in import BUILT_IN_SERVERS, with_own_name
from rdchat.tools.definitions import ServerLimits, ToolDefinition, ToolResult, ToolServer
from rdchat.tools.imported_servers import ImportedServers, read_servers
from rdchat.work import ChildProcess, Job, Limits

# The child takes this many requests; each server that runs is one.
_AT_ONCE = 10_000
# The child stops a call at its own limit; if it does not, it hangs.
_CHILD_S = 30.0
_CANCEL_S = 10.0
_CHILD_BYTES = 1_000_000_000
_END_S = 2.5
_LIMITS = ServerLimits()

MAX_CALLS = 16
"""Calls of a reply that may be run."""
NO_TOOLS = "This reply has no tools."
"""The refusal of a call in a reply whose request had no tools."""
_TOO_MANY = f"Only {MAX_CALLS} calls of a reply are run."
# The types of JSON's schemas, as Python reads them.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "integer": int,
    "number": (int, float),
}

Save = Callable[[tuple[ToolServer, ...]], object]


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server.

    Attributes:
        definitions: Its tools when it last listed them.
        tool_problems: A sentence for each of its tools that cannot be used.
        problem: Why it failed, in a sentence or two; empty if it did not.
        error_output: The last lines of its standard error.
    """

    status: Literal["stopped", "starting", "running", "failed"] = "stopped"
    definitions: tuple[ToolDefinition, ...] = ()
    tool_problems: tuple[str, ...] = ()
    problem: str = ""
    error_output: str = ""


class ToolServers(QObject):
    """Starts servers when they are needed, in a child process. Lives on the main thread.

    Args:
        servers: The person's servers.
        save: Saves them after each change.

    Attributes:
        changed: Emitted when a server or its state changes, at most a few times a second for each.
        replaced: Emitted with the name of a server that is another one now, or has new secrets, or was removed.
        login_path: PATH in which programs are looked for; empty until it is read.
    """

    changed = Signal()
    replaced = Signal(str)

    def __init__(self, servers: Sequence[ToolServer], save: Save) -> None:
        super().__init__()
        self._save = save
        self.login_path = ""
        self._servers: dict[str, ToolServer] = {}
        self._states: dict[str, ServerState] = {}
        # One for each server that starts or runs: cancelling it stops the server.
        self._runs: dict[str, Job[Any]] = {}
        # Secrets without a keychain, until the app quits: by origin, the JSON that the keychain would have.
        self._values: dict[str, str] = {}
        self._child = ChildProcess("tools", at_once=_AT_ONCE, umask=persons_umask())
        self._work = BackgroundWork("tool servers", self)
        self._main = MainThread(self)
        self.replace_servers(servers)

    @property
    def servers(self) -> tuple[ToolServer, ...]:
        """All servers; first those that come with rdchat."""
        return tuple(self._servers.values())

    @property
    def usable(self) -> tuple[ToolServer, ...]:
        """Those that may be started: they are on, and the person has agreed."""
        return tuple(server for server in self.servers if server.enabled and server.confirmed)

    def server_state(self, name: str) -> ServerState:
        return self._states.get(name, ServerState())

    def definitions(self, names: Iterable[str]) -> tuple[ToolDefinition, ...]:
        """Return the tools of some servers, as far as they are known: a server has to start to list them."""
        return tuple(each for name in names for each in self.server_state(name).definitions)

    def put(self, server: ToolServer, secrets: Mapping[str, str] | None = None) -> None:
        """Add a server, or replace the one of its name, which is stopped.

        Args:
            server: The server.
            secrets: New values of some of its secrets, for the keychain. Values stored before stay, if `server.secrets`
                still names them.
        """
        self._stop(server.name)
        before = self._servers.get(server.name)
        self._work.do(partial(self._store, before or server, server, secrets or {}))
        self._servers[server.name] = server
        if secrets or before is None or before.origin != server.origin:
            self.replaced.emit(server.name)
        self._save_servers()

    def replace_servers(self, servers: Iterable[ToolServer]) -> None:
        """Take the servers of other settings, and stop all that run if any differs; keys and approvals stay."""
        now = {server.name: server for server in (*BUILT_IN_SERVERS, *map(with_own_name, servers))}
        if now != self._servers:
            for name in [*self._states]:
                self._stop(name)
            self._servers = now
            self.changed.emit()

    def remove_server(self, name: str) -> None:
        """Stop a server and forget it, with its secrets: `put` deletes those that a server does not name."""
        self.put(replace(self._servers[name], secrets=()))
        del self._servers[name]
        self.replaced.emit(name)
        self._save_servers()

    def read_servers(self, text: str) -> ImportedServers:
        """Read another program's list; its servers get free names."""
        return read_servers(text, self._servers)

    def import_servers(self, imported: ImportedServers, plain: Collection[tuple[str, str]]) -> None:
        """Add imported servers, disabled and not confirmed.

        Args:
            imported: The servers.
            plain: Server and name of each variable that is no secret: it is stored in the settings.
        """
        for server in imported.servers:
            values = imported.secrets[server.name]
            environment = {name: value for name, value in values.items() if (server.name, name) in plain}
            secrets = tuple(name for name in server.secrets if name not in environment)
            self.put(replace(server, environment=environment, secrets=secrets, keys_chosen=True), values)

    def read_login_path(self) -> None:
        """Read `login_path`; `changed` follows."""
        self._child.submit("login_path", {}, on_end=self._main.bring(self._take_path, once=True))

    def start_server(self, name: str) -> None:
        """Start a server that is usable, unless it runs; `changed` follows.

        Its secrets are read on the thread, then `_run` starts it in the child. A `put` meanwhile cancels `run`.
        """
        server = self._servers[name]
        if name in self._runs or server not in self.usable:
            return
        run = Job[Any]()
        self._runs[name] = run
        self._set(name, status="starting", problem="", error_output="")
        self._work.do(partial(self._secrets, server), partial(self._run, server, run))

    def call_tool(
        self, definition: ToolDefinition, arguments_json: str, on_end: Callable[[ToolResult | RdchatError], object]
    ) -> Job[ToolResult]:
        """Call a tool of a server that runs.

        Args:
            definition: The tool as the person saw it. The call fails if its server now describes it otherwise.
            arguments_json: The arguments, a JSON object.
            on_end: Called on the main thread with the result or the error.

        Returns:
            The job; cancelling it stops the call.

        Raises:
            RdchatError: If the server does not run, or describes the tool otherwise.
        """
        name = definition.server
        if definition not in self.server_state(name).definitions:
            raise RdchatError(f"The server {name} is not what it was when its tool was shown.", "Look at it again.")
        if name not in self._runs:
            raise RdchatError(self.server_state(name).problem or f"The server {name} was stopped.")
        tool = {field: getattr(definition, field) for field in ("name", "description", "parameters", "read_only")}
        limits = Limits(_LIMITS.start_s + _LIMITS.call_s + _CHILD_S, _CHILD_BYTES, _CANCEL_S)
        message = {"server": name, "tool": tool, "arguments": arguments_json}
        take = self._main.bring(on_end, once=True)
        return self._child.submit("call", message, limits, read=_result, on_end=take)

    def end_servers(self) -> None:
        """End all servers and their process."""
        self._main.refuse_calls()
        self._child.close(_END_S)
        self._work.finish_work(0.5)

    def _stop(self, name: str) -> None:
        """Stop a server, if it runs, and forget its tools."""
        if (run := self._runs.pop(name, None)) is not None:
            run.cancel()
        self._states.pop(name, None)

    def _run(self, server: ToolServer, run: Job[Any], values: dict[str, str] | RdchatError) -> None:
        """Start a server in the child, with the values of its secrets, or note why they are missing."""
        if isinstance(values, RdchatError):
            self._ended(server.name, run, values)
        elif not run.cancelled:
            message = {"server": asdict(server), "values": values, "limits": asdict(_LIMITS)}
            take, end = self._main.bring_both(partial(self._take, server, run), partial(self._ended, server.name, run))
            limits = Limits(cancel_s=_CANCEL_S)
            run.when_cancelled(self._child.submit("run", message, limits, on_progress=take, on_end=end).cancel)

    def _take(self, server: ToolServer, run: Job[Any], progress: dict[str, Any]) -> None:
        """Take what the child reports of a server: its tools, or lines of its standard error."""
        if self._runs.get(server.name) is not run:
            return
        if "log" in progress:
            self._set(server.name, error_output="\n".join(progress["log"]))
        if "tools" in progress:
            definitions = tuple(
                ToolDefinition(server.name, remote=server.is_remote, origin=server.origin, **fields)
                for fields in progress["tools"]
            )
            self._set(server.name, status="running", definitions=definitions, tool_problems=(*progress["problems"],))

    def _ended(self, name: str, run: Job[Any], outcome: object) -> None:
        """Note why a server ended, unless it was stopped or replaced here (`put`)."""
        if self._runs.get(name) is run:
            del self._runs[name]
            self._set(name, status="failed", problem=str(outcome or f"The server {name} ended."))

    def _take_path(self, path: str | RdchatError) -> None:
        self.login_path = path if isinstance(path, str) else ""
        self.changed.emit()

    def _set(self, name: str, **values: Any) -> None:
        """Change some fields of a server's state."""
        self._states[name] = replace(self.server_state(name), **values)
        self.changed.emit()

    def _save_servers(self) -> None:
        self._save(tuple(server for server in self.servers if server not in BUILT_IN_SERVERS))
        self.changed.emit()

    # On the thread

    def _stored(self, origin: str) -> dict[str, str]:
        """Return the values of a server's secrets; they are one item of the keychain, as it may ask for each.

        The item has the server's origin, not its name: a backup may have another server of that name.
        """
        text = self._values.get(origin) or ask_keychain(TOOL_SECRETS, "get_password", origin)
        return dict(json.loads(text)) if isinstance(text, str) else {}

    def _secrets(self, server: ToolServer) -> dict[str, str]:
        """Return the values of a server's secrets; raise RdchatError if one is missing."""
        values = self._stored(server.origin) if server.secrets else {}
        if missing := [name for name in server.secrets if name not in values]:
            text = f"The keychain has no {', '.join(missing)} for the server {server.name}."
            raise RdchatError(text, "Enter it again in Settings > Tools.")
        return {name: values[name] for name in server.secrets}

    def _store(self, before: ToolServer, server: ToolServer, secrets: Mapping[str, str]) -> None:
        """Store secrets beside those of the server as it was before; delete what it does not have."""
        values = {**self._stored(before.origin), **secrets}
        text = json.dumps({name: value for name, value in values.items() if name in server.secrets})
        self._values.pop(before.origin, None)
        if before.origin != server.origin or not server.secrets:
            ask_keychain(TOOL_SECRETS, "delete_password", before.origin)
        if server.secrets and ask_keychain(TOOL_SECRETS, "set_password", server.origin, text) is FAILED:
            self._values[server.origin] = text


def _result(fields: dict[str, Any]) -> ToolResult:
    return ToolResult(fields["text"], fields["is_error"], tuple(map(base64.b64decode, fields["images"])))


class ChatTools:
    """Which tools a chat has, by the servers that are switched on in it.

    Args:
        servers: The servers.
        chosen: Returns the names of the servers that are switched on in a chat.
    """

    def __init__(self, servers: ToolServers, chosen: Callable[[Conversation], Sequence[str]]) -> None:
        self.servers = servers
        self._chosen = chosen

    def start_servers(self, chat: Conversation, status: str = "") -> None:
        """Start the servers of a chat that do not run, or those with a status."""
        for name in self.names(chat, status):
            self.servers.start_server(name)

    def names(self, chat: Conversation, status: str = "") -> list[str]:
        """Return the names of the chat's servers that may be started, or of those with a status."""
        chosen = self._chosen(chat)
        names = (each.name for each in self.servers.usable if each.name in chosen)
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
    """Return the calls of a reply; one that cannot be run has the reason, as has each after the first `MAX_CALLS`.

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
    properties = definition.parameters.get("properties")
    required = definition.parameters.get("required")
    # Not even that these are texts is certain, so they are compared with a list, which needs no hashes.
    for each in required if isinstance(required, list) else ():
        if each not in list(arguments):
            return f"The argument {each} is missing."
    for name, value in arguments.items():
        schema = properties.get(name) if isinstance(properties, dict) else None
        kind = schema.get("type") if isinstance(schema, dict) else None
        expected = _TYPES.get(kind, object) if isinstance(kind, str) else object
        if not isinstance(value, expected) or (isinstance(value, bool) and kind in {"integer", "number"}):
            return f"The argument {name} has to be of the type {kind}."
    return ""
