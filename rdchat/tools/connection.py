"""The connection to one server of tools, with the MCP SDK. What a server sends is limited before it is parsed."""

import asyncio
import json
import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, cast

import httpx2
import mcp_types as types
import psutil
from mcp.client import ClientSession, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from rdchat import __version__
from rdchat.errors import RdchatError, one_line
from rdchat.tools.definitions import MAX_TOOLS, ServerLimits, ToolServer, listed_tools
from rdchat.tools.process_guard import ProcessGuard, kill_tree, tree_of
from rdchat.tools.results import result_fields

# Of the app's environment, servers get these, what begins with LC_, and PATH of the login shell.
_VARIABLES = ("HOME", "USER", "LANG", "TMPDIR")
# Looking at the memory of a server's processes takes some milliseconds.
_TICK_S, _POLITE_S = 1.0, 0.5
_LOG_LINES, _LOG_LINE, _PIECE = 200, 500, 2**16
# A server may send so many bytes at once, and then so many each tick; a short message costs as much as a longer one.
_BURST, _PER_TICK, _MESSAGE_COST = 80_000_000, 200_000, 4_000
_MAX_GARBAGE = 100
# The id of an answer that cannot be parsed, at its begin or its end.
_ANSWER = re.compile(rb'^\s*{[^{]*?"id"\s*:\s*(\d{1,9})|"id"\s*:\s*(\d{1,9})\s*}\s*$')
# Shorter values, such as `true`, are in ordinary texts.
_SHORTEST_SECRET = 8


class Connection:
    """Starts a server, or connects to one, lists its tools, and calls them. Lives on an event loop.

    Args:
        server: The server.
        values: Values of its secrets, by name.
        path: Returns PATH for its program.
        limits: Its limits, also as an attribute.
        guard: Kills the program if this process ends.

    Attributes:
        tools: Its tools by name, as `listed_tools` returns them; empty until it has started.
        failure: Why it ended; None while it runs.
    """

    def __init__(
        self, server: ToolServer, values: Mapping[str, str], path: Awaitable[str], limits: ServerLimits,
        guard: ProcessGuard,
    ) -> None:  # fmt: skip
        self._server, self._values, self._path, self.limits, self._guard = server, values, path, limits, guard
        # A server may quote a secret in JSON, or a line or word of it, such as that behind `Bearer`.
        parts = {part for text in values.values() for part in (text, *text.splitlines(), *text.split(), _quoted(text))}
        self._secrets = sorted(filter(_is_secret, parts), key=len, reverse=True)
        self.tools: dict[str, dict[str, Any]] = {}
        self.failure: RdchatError | None = None
        self._session: ClientSession | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._seen: set[psutil.Process] = set()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._task: asyncio.Task[Any] | None = None
        self._report: Callable[[dict[str, Any]], object] = lambda _progress: None
        self._is_ending = self._list_changed = self._log_changed = False
        self._allowance = _BURST

    async def run(self, report: Callable[[dict[str, Any]], object]) -> None:
        """Serve until the server ends, or this is cancelled.

        Args:
            report: Gets `tools` and `left_out` (see `listed_tools`) when they are known and when they change, and
                `log`, the last lines of the server's standard error.

        Raises:
            RdchatError: Why it ended.
        """
        self._task, self._report = asyncio.current_task(), report
        ticker = asyncio.create_task(self._tick())
        try:
            client = types.Implementation(name="rdchat", version=__version__)
            # Without callbacks, a server is offered nothing: no sampling, no elicitation, no roots.
            async with (
                self._http() if self._server.url else self._program() as (read, write),
                ClientSession(read, write, message_handler=self._take_message, client_info=client) as session,
            ):
                async with asyncio.timeout(self.limits.start_s):
                    await session.initialize()
                    await self._list(session)
                self._session = session
                await asyncio.Event().wait()
        except BaseException as error:
            self.failure = self.failure or self._explained(error)
            raise (self.failure or error) from error
        finally:
            ticker.cancel()
            self._report_log()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return the fields of `ToolResult`.

        Raises:
            RdchatError: If the server refuses, ends, or takes too long.
        """
        assert self._session is not None
        self._allowance = _BURST
        # `call_tool` would also check the answer against the server's schema, whose patterns may take for ever.
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
        try:
            async with asyncio.timeout(self.limits.call_s):
                result = await self._session.send_request(request, types.CallToolResult)
                return result_fields(result, self._masked)
        except TimeoutError:
            what = f"took longer than {self.limits.call_s:.0f} seconds, so it was stopped"
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                self.fail("broke off its answer, or it was too long.")
                raise (self.failure or RdchatError(f"The server {self._server.name} was stopped.")) from error
            what = f"was refused: {self._short(error)}"
            if error.code == types.PARSE_ERROR and self.too_long not in str(error):
                what = "gave an answer that is not valid"
        except ValueError:
            what = "gave an answer that is not valid"
        raise RdchatError(f"The tool {name} {what}.")

    def fail(self, what: str) -> None:
        """End the connection; only the first reason counts."""
        task = self._task
        if self.failure is None and not self._is_ending and task is not None and not task.cancelling():
            self.failure = RdchatError(f"The server {self._server.name} {what}")
            task.cancel()

    def _explained(self, error: BaseException) -> RdchatError | None:
        """Return the error for people, with no text of strangers but a short one; None if this was cancelled."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, RdchatError | asyncio.CancelledError):
            return error if isinstance(error, RdchatError) else None
        if isinstance(error, MCPError) and error.code == types.PARSE_ERROR:
            # Its text quotes a part of the answer.
            error = ValueError()
        texts: dict[type[Exception], str] = {
            TimeoutError: f"did not answer within {self.limits.start_s:.0f} seconds",
            MCPError: f"refused the connection: {self._short(error)}",
            httpx2.HTTPError: "cannot be reached",
            OSError: f"could not be started: {self._short(error)}",
        }
        what = next((text for kind, text in texts.items() if isinstance(error, kind)), "")
        return RdchatError(f"The server {self._server.name} {what or 'gave an answer that is not valid'}.")

    async def _take_message(self, message: IncomingMessage) -> None:
        self._list_changed |= isinstance(message, types.ToolListChangedNotification)

    async def _list(self, session: ClientSession) -> None:
        """Read the list of tools, by pages, and report it."""
        page = await session.list_tools()
        tools = list(page.tools)
        while page.next_cursor and page.tools and len(tools) <= MAX_TOOLS:
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=page.next_cursor))
            tools += page.tools
        fields = [(tool.name, tool.description or "", tool.input_schema, _is_read_only(tool)) for tool in tools]
        listed, left_out = listed_tools(self._masked(fields))
        self.tools = {tool["name"]: tool for tool in listed}
        self._report({"tools": listed, "left_out": left_out})

    async def _tick(self) -> None:
        """Notice the end of the program, its memory, changed tools, and what it logged; renew its allowance."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._allowance = min(_BURST, self._allowance + _PER_TICK)
            self._report_log()
            if self._process is not None and self._process.returncode is None:
                self._check_memory(tree_of(self._process.pid))
            elif self._process is not None:
                # A child of the program may hold the pipe open.
                self.fail(_ended(self._process.returncode))
            if self._list_changed and self._session is not None:
                self._list_changed = False
                try:
                    async with asyncio.timeout(self.limits.start_s):
                        await self._list(self._session)
                except (MCPError, ValueError, TimeoutError):
                    self.fail("did not list its tools again.")

    def _check_memory(self, processes: list[psutil.Process]) -> None:
        self._seen.update(processes)
        used = 0
        for process in processes:
            with suppress(psutil.Error):
                used += process.memory_info().rss
        if used > self.limits.memory_bytes:
            self.fail(f"took more than {self.limits.memory_bytes / 1e9:.1f} GB of memory, so it was ended.")

    def _report_log(self) -> None:
        if self._log_changed:
            self._log_changed = False
            self._report({"log": self._masked("\n".join(self._log)).split("\n")})

    def note(self, line: bytes) -> None:
        self._log.append(self._masked(line.decode(errors="replace").rstrip())[:_LOG_LINE])
        self._log_changed = True

    def _masked(self, value: Any) -> Any:
        """Return what a server sent, a text or parsed JSON, without the values of its secrets."""
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, "•••")
                return value
            case list() | tuple():
                return [self._masked(each) for each in value]
            case dict():
                return {self._masked(name): self._masked(each) for name, each in value.items()}
        return value

    def _short(self, text: object) -> str:
        return one_line(self._masked(str(text)))[:200].rstrip(".")

    def spend(self, size: int) -> None:
        """Count what the server sends; end it if that never stops."""
        self._allowance -= size
        if self._allowance < 0:
            self.fail("sent too much, so it was ended.")

    @property
    def too_long(self) -> str:
        """What is wrong with an answer over the limit."""
        return f"its answer has more than {self.limits.message_bytes / 1e6:.0f} MB"

    # HTTP

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[tuple[Any, Any]]:
        headers, limit = {**self._values, "Accept-Encoding": "identity"}, self.limits.message_bytes
        # A proxy of the environment is not for this computer.
        client = httpx2.AsyncClient(headers=headers, timeout=self.limits.call_s, trust_env=self._server.is_remote,
                                    event_hooks={"response": [self._limit_response]})  # fmt: skip
        # A farewell could take as long as the server likes.
        transport = streamable_http_client(
            self._server.url, http_client=client, max_sse_event_size=limit, terminate_on_close=False
        )
        async with client, transport as streams:
            yield streams

    async def _limit_response(self, response: httpx2.Response) -> None:
        """Refuse what leads elsewhere, and what is packed; count the rest."""
        headers, sent_to = response.headers, response.request.url
        if response.has_redirect_location and (host := sent_to.join(headers["location"]).host) != sent_to.host:
            self.fail(f"leads to another host, {self._short(host)}, which is refused.")
        if headers.get("content-encoding", "identity") != "identity":
            self.fail("sent a compressed answer, which is refused.")
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _Counted(response.stream, self, is_stream)

    # A program

    @asynccontextmanager
    async def _program(self) -> AsyncIterator[tuple[Any, Any]]:
        process = self._process = await self._started()
        log = asyncio.create_task(self._read_log(process))
        try:
            yield (pipes := _Pipes(process, self)), pipes
        finally:
            self._is_ending = True
            try:
                await _end_politely(process, _POLITE_S if self.failure is None else 0.0)
            finally:
                kill_tree(process.pid, self._seen)
                self._guard.watch(process.pid, on=False)
                log.cancel()

    async def _started(self) -> asyncio.subprocess.Process:
        path, pipe = await self._path, asyncio.subprocess.PIPE
        program, *arguments = self._server.command
        found = shutil.which(os.path.expanduser(program), path=path)  # noqa: PTH111  unknown users stay as they are
        if found is None:
            hint = "Install it, or give its full path. Settings > Tools shows where rdchat looks."
            raise RdchatError(
                f"The program {self._short(program)} of the server {self._server.name} was not found.", hint
            )
        kept = {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("LC_")}
        process = await asyncio.create_subprocess_exec(
            found, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, limit=self.limits.message_bytes, cwd=Path.home(),
            env={**kept, "PATH": path, **self._server.environment, **self._values}, start_new_session=True,
        )  # fmt: skip
        self._guard.watch(process.pid)
        return process

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        while piece := await process.stderr.read(_PIECE):
            *lines, rest = (rest[:_PIECE] + piece).split(b"\n")
            for line in lines[-_LOG_LINES:]:
                self.note(line)
            # A server that never stops has to wait.
            await asyncio.sleep(0.01)
        if rest:
            self.note(rest)


class _Pipes(AbstractAsyncContextManager[Any]):
    """A program's input and output as the streams of a session. A line is limited before it is parsed."""

    def __init__(self, process: asyncio.subprocess.Process, connection: Connection) -> None:
        self._process, self._connection, self._garbage = process, connection, 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        connection = self._connection
        while self._garbage <= _MAX_GARBAGE and connection.failure is None:
            try:
                line, is_long = await self._line()
                connection.spend(len(line) + _MESSAGE_COST)
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except asyncio.IncompleteReadError:
                await _end_politely(self._process, _POLITE_S)
                connection.fail(_ended(self._process.returncode))
            except ValueError:
                self._garbage += bool(line.strip())
                connection.note(b"(not a message) " + line)
                if (b'"result"' in line or b'"error"' in line) and (answer := _ANSWER.search(line)):
                    error = types.ErrorData(code=types.PARSE_ERROR, message=connection.too_long if is_long else "")
                    return SessionMessage(
                        types.JSONRPCError(jsonrpc="2.0", id=int(answer[1] or answer[2]), error=error)
                    )
        connection.fail("sent lines that are not messages, so it was ended.")
        raise StopAsyncIteration

    async def _line(self) -> tuple[bytes, bool]:
        """Return the next line, and whether it is over the limit. Of such a line there are both ends, for its id."""
        line, output = b"", cast("asyncio.StreamReader", self._process.stdout)
        while True:
            try:
                return line + await output.readuntil(), bool(line)
            except asyncio.LimitOverrunError as error:
                line += await output.readexactly(error.consumed)
                self._connection.spend(len(line))
                # What is left is no JSON, so that it is never taken for the whole.
                line = line[:_PIECE] + b"\0" + line[-_PIECE:]

    async def send(self, message: SessionMessage) -> None:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        program_input = cast("asyncio.StreamWriter", self._process.stdin)
        # The end of the process is noticed elsewhere.
        with suppress(ConnectionError):
            program_input.write(text.encode() + b"\n")
            await program_input.drain()

    async def __aexit__(self, *_error: object) -> None:
        """Leave the pipes to `Connection`."""


class _Counted(httpx2.AsyncByteStream):
    """An answer's body that is counted while it comes. The SDK limits each event of a stream."""

    def __init__(self, body: Any, connection: Connection, is_stream: bool) -> None:
        self._body, self._connection, self._is_stream = body, connection, is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            self._connection.spend(len(piece) + self._is_stream * piece.count(b"\ndata:") * _MESSAGE_COST)
            if not self._is_stream and size > self._connection.limits.message_bytes:
                # The SDK fails the request with this text.
                raise httpx2.StreamError(self._connection.too_long)
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


async def _end_politely(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Close a program's input, later ask it to end; `wait` would also wait for children that hold its pipes."""
    assert process.stdin is not None
    process.stdin.close()
    for wish in (signal.SIGTERM, 0):
        end = time.monotonic() + seconds
        while process.returncode is None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, wish)


def _ended(status: int | None) -> str:
    return "closed its output." if status is None else f"ended by itself (status {status})."


def _is_read_only(tool: types.Tool) -> bool:
    hints = tool.annotations
    return hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True


def _is_secret(value: str) -> bool:
    """Return whether a value is masked: imports keep all variables as secrets, and tools need paths that exist."""
    is_path = value.startswith("/") and os.path.exists(value)  # noqa: PTH110  `Path` raises an error for a long one
    return len(value) >= _SHORTEST_SECRET and not is_path


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
