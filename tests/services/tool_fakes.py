"""Tool servers that do what a test says, and replies with calls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.inference.api import ToolCall
from rdchat.tools.definitions import ToolDefinition, ToolResult, ToolServer
from rdchat.work.job import CancelledError, Job
from tests.services.fakes import Reply

_TEXT = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolDefinition("files", "read", "Reads a file.", _TEXT, read_only=True, remote=False, origin="files")
WRITE = ToolDefinition("files", "write", "Writes a file.", _TEXT, read_only=False, remote=False, origin="files")
SEARCH = ToolDefinition("web", "search", "Searches.", {}, read_only=True, remote=True, origin="web")


@dataclass
class State:
    status: str = "stopped"


class ScriptedServers(QObject):
    """Servers `files` and `web`; calls end when the test says so, or at once with `result`.

    Attributes:
        result: What ends every call at once; None has the test end them.
        calls: The calls that run, with their job.
        made: All calls so far, as name and arguments.
        called: Their tools, as they were given.
        starts: Whether a server runs as soon as it is started.
    """

    changed = Signal()
    replaced = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.tools = {"files": (READ, WRITE), "web": (SEARCH,)}
        self.states = {name: State() for name in self.tools}
        self.result: ToolResult | RdchatError | None = ToolResult("the text")
        self.calls: list[tuple[ToolDefinition, Job[ToolResult]]] = []
        self.made: list[tuple[str, str]] = []
        self.called: list[ToolDefinition] = []
        self.started: list[str] = []
        self.starts = True

    @property
    def servers(self) -> tuple[ToolServer, ...]:
        return (
            ToolServer("files", ("files",), enabled=True, confirmed=True),
            ToolServer("web", url="https://example.test", enabled=True, confirmed=True),
            ToolServer("unseen", ("rm",), enabled=True),
        )

    @property
    def usable(self) -> tuple[ToolServer, ...]:
        return self.servers[:2]

    def server_state(self, name: str) -> State:
        return self.states[name]

    def definitions(self, names: Iterable[str]) -> tuple[ToolDefinition, ...]:
        running = [name for name in names if name in self.tools and self.states[name].status == "running"]
        return tuple(tool for name in running for tool in self.tools[name])

    def start_server(self, name: str) -> None:
        if self.states[name].status not in {"starting", "running"}:
            self.started.append(name)
            self.set(name, "running" if self.starts else "starting")

    def set(self, name: str, status: str) -> None:
        self.states[name].status = status
        self.changed.emit()

    def change(self, name: str, **fields: object) -> None:
        """Have a server describe its tools otherwise."""
        self.tools[name] = tuple(replace(tool, **fields) for tool in self.tools[name])  # type: ignore[arg-type]
        self.changed.emit()

    def call_tool(
        self, definition: ToolDefinition, arguments_json: str, on_end: Callable[[ToolResult | RdchatError], object]
    ) -> Job[ToolResult]:
        self.made.append((definition.full_name, arguments_json))
        self.called.append(definition)
        job: Job[ToolResult] = Job(on_end=on_end)
        job.when_cancelled(lambda: job.set_outcome(CancelledError()))
        self.calls.append((definition, job))
        if self.result is not None:
            self.end(self.result)
        return job

    def end_servers(self) -> None:
        """End nothing: no server runs."""

    def end(self, result: ToolResult | RdchatError) -> None:
        """End the oldest call that runs."""
        self.calls.pop(0)[1].set_outcome(result)


def calling(*calls: ToolCall, text: str = "") -> Reply:
    """Return a reply that ends with calls."""
    written = tuple(f'<tool_call>{{"name": "{call.name}"}}</tool_call>' for call in calls)
    return Reply((*([text] if text else []), *written), calls=calls, content=text)


def read(path: str = "a.txt", call_id: str = "") -> ToolCall:
    """Return a call that reads a file."""
    return ToolCall("files__read", f'{{"path": "{path}"}}', call_id)
