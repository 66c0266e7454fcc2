"""The child process that runs servers of tools, `rdchat --child tools`.

The app's requests are the public coroutines of `RunningServers`. A request `run` lasts as long as its server.
"""

import asyncio
import json
import os
import pwd
from contextlib import suppress
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files import plain
from rdchat.tools.built_in import BuiltInServer
from rdchat.tools.definitions import ServerLimits, SessionEndedError, ToolServer
from rdchat.tools.process_guard import ProcessGuard, kill_tree
from rdchat.work import Job, StopWork, serve_together

# Servers need this time to end by themselves.
_GRACE_S = 2.0
# Between two looks at whether a server has started.
_TICK_S = 0.02
# Begins the line in which the login shell prints its PATH; its start-up files may print other lines.
_PATH_MARK = b"rdchat-path:"

Fields = dict[str, Any]


def main() -> int:
    """Serve the app's requests until it ends; return the exit status."""
    servers = RunningServers(ProcessGuard())
    calls: Fields = {"run": servers.run, "call": servers.call, "login_path": servers.login_path}
    asyncio.run(serve_together(calls, grace_s=_GRACE_S))
    return 0


class RunningServers:
    """Runs servers on one event loop. Its coroutines are the app's calls.

    Args:
        guard: Ends them with this process.
    """

    def __init__(self, guard: ProcessGuard) -> None:
        self._guard = guard
        # `Connection` or `BuiltInServer`, by the server's name.
        self._running: dict[str, Any] = {}
        # Reads PATH of the login shell, or has read it; None before it was first asked for.
        self._path: asyncio.Task[str] | None = None

    async def login_path(self, _job: Job[Any]) -> str:
        """Return PATH of the login shell, which is read once; a request that is cancelled does not stop that."""
        self._path = self._path or asyncio.create_task(read_login_path())
        return await asyncio.shield(self._path)

    async def run(self, job: Job[Any], *, server: Fields, values: dict[str, str], limits: Fields) -> None:
        """Run a server until it ends or the request is cancelled.

        Args:
            job: Receives tools and log lines; see `Connection.serve`.
            server: The `ToolServer`.
            values: Values of its secrets, by name.
            limits: The `ServerLimits`.

        Raises:
            RdchatError: Why it ended.
        """
        tool_server = plain(ToolServer, server)
        name = tool_server.name
        if tool_server.is_built_in:
            running: Any = BuiltInServer(tool_server)
        else:
            from rdchat.tools.connection import Connection  # noqa: PLC0415  the SDK takes a second to import

            path = self.login_path(job)
            running = Connection(tool_server, values, path, plain(ServerLimits, limits), self._guard)

        def report(progress: Fields) -> None:
            # StopWork says that the request was cancelled: this task is cancelled in a moment.
            with suppress(StopWork):
                job.report_progress(progress)

        self._running[name] = running
        try:
            await running.serve(report)
        finally:
            # Calls that wait for the server look at this.
            running.failure = running.failure or RdchatError(f"The server {name} was stopped.")
            # Another run of the same server may have begun.
            if self._running.get(name) is running:
                del self._running[name]

    async def call(self, _job: Job[Any], *, server: str, tool: Fields, arguments: str) -> Fields:
        """Wait until a server has started, call a tool, and return the fields of `ToolResult`.

        Args:
            _job: The request.
            server: The server's name.
            tool: The tool's fields as the server listed them when the person saw them; see `listed_tools`.
            arguments: A JSON object.

        Raises:
            RdchatError: If the server does not run, the tool has changed, or the call fails.
        """
        running = self._running.get(server)
        while running is not None and running.tools is None and running.failure is None:
            await asyncio.sleep(_TICK_S)
        if running is None:
            raise RdchatError(f"The server {server} does not run.", "Try again.")
        _check_tool(running, tool)
        try:
            result: Fields = await running.call_tool(tool["name"], json.loads(arguments))
        except SessionEndedError as ended:
            # A server that has no such session did not run the call, so it is repeated, once.
            await running.renew_session(ended)
            _check_tool(running, tool)
            result = await running.call_tool(tool["name"], json.loads(arguments))
        return result


def _check_tool(running: Any, tool: Fields) -> None:
    """Raise RdchatError if a server has ended, or if a tool is not the one that the person was shown."""
    if running.failure is not None:
        raise running.failure
    if running.tools.get(tool["name"]) != tool:
        hint = "Look at it again in the list of tools."
        raise RdchatError(f"The tool {tool['name']} is not what it was when it was shown.", hint)


async def read_login_path(timeout_s: float = 5.0) -> str:
    """Return PATH of the login shell with that of this process behind it; only the latter if the shell fails.

    Apps that the Finder starts have a bare PATH, without `npx` and `uvx`.

    Args:
        timeout_s: Seconds until the shell is killed. Its start-up files are the person's own, and may wait.
    """
    shell_path = b""
    own_path = os.environ.get("PATH", os.defpath)
    shell = os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    # As a terminal starts it: some tools add to PATH only for interactive shells.
    command = (shell, "-ilc", f'printf "\\n%s%s\\n" {_PATH_MARK.decode()} "$(printenv PATH)"')
    nowhere = asyncio.subprocess.DEVNULL
    pipe = asyncio.subprocess.PIPE
    with suppress(OSError, TimeoutError, ValueError):
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nowhere, stdout=pipe, stderr=nowhere, start_new_session=True
        )
        try:
            async with asyncio.timeout(timeout_s):
                while not shell_path and process.stdout is not None and (line := await process.stdout.readline()):
                    shell_path = line.strip().removeprefix(_PATH_MARK) if line.startswith(_PATH_MARK) else b""
        finally:
            kill_tree(process.pid)
            # What a start-up file started may hold the pipe.
            async with asyncio.timeout(1.0):
                await process.communicate()
    folders = [folder for folder in f"{os.fsdecode(shell_path)}:{own_path}".split(":") if folder.startswith("/")]
    return ":".join(dict.fromkeys(folders))
