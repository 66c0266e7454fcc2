"""Servers in the real child, for tests."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from rdchat.tools.definitions import ServerLimits, ToolServer
from rdchat.work.child_process import ChildProcess, Limits
from rdchat.work.job import Job

HOSTILE = Path(__file__).parent / "hostile_server.py"
_PATIENCE_S = 60.0
# A cancelled request may end in good order.
_LIMITS = Limits(cancel_s=_PATIENCE_S)


def hostile(mode: str, name: str = "hostile", **fields: Any) -> ToolServer:
    """Return a server that misbehaves; see `hostile_server`."""
    return ToolServer(name, (sys.executable, "-S", str(HOSTILE), mode), **fields)


class Run:
    """A server in a child.

    Attributes:
        tools: What it listed, each time.
        problems: Why tools of its last list cannot be used.
        log: Its last log.
    """

    def __init__(
        self, child: ChildProcess, server: ToolServer, limits: ServerLimits | None = None, **values: str
    ) -> None:
        self._child = child
        self.server = server
        self._changed = threading.Condition()
        self.tools: list[list[dict[str, Any]]] = []
        self.problems: list[str] = []
        self.log: list[str] = []
        arguments = {"server": asdict(server), "values": values, "limits": asdict(limits or ServerLimits())}
        self.job: Job[Any] = child.submit("run", arguments, _LIMITS, on_progress=self._take, on_end=self._end)

    def listed(self, times: int = 1) -> list[dict[str, Any]]:
        """Wait until it has listed its tools so often; return the last list, or raise why it ended."""
        self.wait_for(lambda: self.job.ended or len(self.tools) >= times)
        return self.tools[-1] if self.tools else self.job.result()

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, which is looked at whenever the server reports."""
        with self._changed:
            assert self._changed.wait_for(is_so, _PATIENCE_S)

    def stop(self) -> None:
        self.job.cancel()
        self.wait_for(lambda: self.job.ended)

    def submit(self, tool: str, arguments: str = "{}") -> Job[Any]:
        shown = next((each for each in (self.tools[-1] if self.tools else ()) if each["name"] == tool), {"name": tool})
        request = {"server": self.server.name, "tool": shown, "arguments": arguments}
        return self._child.submit("call", request, _LIMITS)

    def call(self, tool: str = "do", arguments: str = "{}") -> dict[str, Any]:
        self.listed()
        result: dict[str, Any] = self.submit(tool, arguments).result()
        return result

    def _take(self, progress: dict[str, Any]) -> None:
        with self._changed:
            if "tools" in progress:
                self.tools.append(progress["tools"])
                self.problems = progress["problems"]
            self.log = progress.get("log", self.log)
            self._changed.notify_all()

    def _end(self, _outcome: object) -> None:
        with self._changed:
            self._changed.notify_all()


@contextmanager
def tools_child() -> Iterator[ChildProcess]:
    """Run the child; at the end no process that it started may be left."""
    child = ChildProcess("tools", at_once=100)
    try:
        yield child
    finally:
        started = processes_below(child)
        child.close(3.0)
        wait_until_gone(started)


def processes_below(child: ChildProcess) -> list[psutil.Process]:
    """Return all processes that a child started, and those that they started."""
    return psutil.Process(child.pid).children(recursive=True) if child.pid is not None else []


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=_PATIENCE_S)
    # The reaper of this machine may be slow: a zombie is gone.
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
