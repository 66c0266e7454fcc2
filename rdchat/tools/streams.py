"""The streams of messages between rdchat and a server of tools: over HTTP with the MCP SDK, or a program's pipes.

What a server sends is counted and limited before it is parsed. A program's lines are parsed here, not by the SDK:
fields of a JSON-RPC message that rdchat does not read may be wrong.

`Connection` (`connection.py`) opens one pair of streams. Its `spend` takes what the server sent off its allowance, the
bytes that it may still send now; `end_with` ends it for a reason, which is then its `failure`; `note` keeps a line of
its log.
"""

import asyncio
import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import httpx2
import mcp_types as types
import psutil
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from rdchat.errors import RdchatError
from rdchat.files import as_text, json_or_none
from rdchat.tools.definitions import ToolServer
from rdchat.tools.process_guard import ProcessGuard, kill_tree, tree_of
from rdchat.wording import size_text

if TYPE_CHECKING:
    from rdchat.tools.connection import Connection

_REFUSALS = {
    401: "it needs a valid key (HTTP 401)",
    403: "it does not allow this (HTTP 403)",
    429: "it gets too many requests, so try again later (HTTP 429)",
}
# Bytes that are taken off the allowance for each message or event besides its own: a short one is as much work.
_MESSAGE_COST = 4_000
# Of the app's environment, programs get these, what begins with LC_, and PATH of the login shell.
_VARIABLES = ("HOME", "USER", "LANG", "TMPDIR")
# Seconds for a program to end after its input was closed, and again after SIGTERM.
_POLITE_S = 0.5
# Bytes that are read at a time, and kept of each end of a line over the limit.
_PIECE = 2**16
LOG_LINES = 200
"""Lines of standard error that are kept."""
SESSION_ENDED = ""
"""Stands in `Connection.refusals` for a request that was refused since the server has ended the session."""
# Lines of output that are no message, after which a program is ended.
_MAX_GARBAGE = 100
# The id in an answer that cannot be parsed, at its beginning or its end, such as 7 in `{"id": 7, "result": …` and in
# `… "id": 7}`: its request fails, and waits no longer.
_ANSWER_ID = re.compile(rb'^[\s\[\xef\xbb\xbf]*{[^{]*?"id"\s*:\s*(\d{1,9})|"id"\s*:\s*(\d{1,9})\s*}[\s\]]*$')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# An escape in JSON, with its other half if it is a pair of surrogates; the group is half a character alone.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Limits of one line: its messages, and its objects and lists, each of which takes some hundred bytes of memory.
_MAX_MESSAGES = 1_000
_MAX_CONTAINERS = 1_000_000


@asynccontextmanager
async def http_streams(
    server: ToolServer, headers: Mapping[str, str], connection: "Connection"
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams of messages from and to a server; `connection` limits what it sends."""
    client = httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=connection.limits.call_s,
        # A proxy of the environment is not for this computer.
        trust_env=server.is_remote,
        event_hooks={"request": [_drop_session], "response": [partial(_limit_response, connection)]},
    )
    # No request ends the session at the close: it could take as long as the server likes.
    transport = streamable_http_client(
        server.url,
        http_client=client,
        max_sse_event_size=connection.limits.message_bytes,
        terminate_on_close=False,
    )
    async with client, transport as streams:
        yield streams


async def _drop_session(request: httpx2.Request) -> None:
    """Remove an ended session's id, which the SDK still sends, from the request that begins another one."""
    if MCP_SESSION_ID in request.headers and (await _message_of(request)).get("method") == "initialize":
        del request.headers[MCP_SESSION_ID]


async def _message_of(request: httpx2.Request) -> dict[str, Any]:
    # A request's body is rdchat's own, so it is an object, or empty.
    message: dict[str, Any] = json_or_none(await request.aread()) or {}
    return message


async def _limit_response(connection: "Connection", response: httpx2.Response) -> None:
    """Refuse redirects to other hosts and compressed answers; note an HTTP error, and have the body counted.

    The error is noted in `Connection.refusals`, where the request that fails looks it up. HTTP 404 for a request with a
    session's id says that the session has ended.
    """
    headers = response.headers
    sent_to = response.request.url
    if response.has_redirect_location and (host := sent_to.join(headers["location"]).host) != sent_to.host:
        connection.end_with(f"leads to another host, {connection.short(host)}, which is refused.")
    if headers.get("content-encoding", "identity") != "identity":
        connection.end_with("sent a compressed answer, which is refused.")
    if response.is_error:
        message = await _message_of(response.request)
        # None where the message answers a request of the server's: its number is not one of ours.
        number = message.get("id") if "method" in message else None
        status = response.status_code
        is_ended = status == 404 and MCP_SESSION_ID in response.request.headers
        said = _REFUSALS.get(status, f"it answered with HTTP {status}")
        connection.refusals[number] = SESSION_ENDED if is_ended else said
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    response.stream = _Counted(response.stream, connection, is_stream)


class _Counted(httpx2.AsyncByteStream):
    """An answer's body that is counted and made whole while it comes. The SDK limits each event of a stream."""

    def __init__(self, body: Any, connection: "Connection", is_stream: bool) -> None:
        self._body = body
        self._connection = connection
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        limit = self._connection.limits.message_bytes
        # The beginning of a line whose end has not come: a character may go on in the next piece.
        rest = bytearray()
        async for piece in self._body:
            size += len(piece)
            # Each event has a line with `data:`.
            self._connection.spend(len(piece) + piece.count(b"\ndata:") * _MESSAGE_COST)
            if not self._is_stream and size > limit:
                # The SDK fails the request with this text.
                raise httpx2.StreamError(self._connection.too_long)
            line_end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            # The SDK refuses a line over the limit.
            if not line_end and len(rest) <= limit:
                rest += piece
                continue
            yield whole_text(bytes(rest) + piece[:line_end])
            rest = bytearray(piece[line_end:])
        yield whole_text(bytes(rest))

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def program_streams(
    server: ToolServer, values: Mapping[str, str], path: str, connection: "Connection", guard: ProcessGuard
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server's program with a PATH, and end it and all that it started at the end; `connection` limits it.

    Raises:
        RdchatError: If it is not there.
    """
    process = await _start_program(server, values, path, connection)
    guard.watch(process.pid)
    program = Program(process, connection)
    connection.program = program
    log = asyncio.create_task(program.read_log())
    try:
        yield program, program
    finally:
        connection.is_ending = True
        try:
            await _end_politely(process, _POLITE_S if connection.failure is None else 0.0)
        finally:
            kill_tree(process.pid, program.seen)
            guard.watch(process.pid, on=False)
            log.cancel()


async def _start_program(
    server: ToolServer, values: Mapping[str, str], path: str, connection: "Connection"
) -> asyncio.subprocess.Process:
    program, *arguments = server.command
    executable = shutil.which(os.path.expanduser(program), path=path)  # noqa: PTH111  unknown users stay as they are
    if executable is None:
        hint = "Install it, or give its full path. Settings > Tools shows where rdchat looks."
        raise RdchatError(f"The program {connection.short(program)} of the server {server.name} was not found.", hint)
    environment = {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("LC_")}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        executable, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, limit=connection.limits.message_bytes,
        cwd=Path.home(), env={**environment, "PATH": path, **server.environment, **values}, start_new_session=True,
    )  # fmt: skip


class Program(AbstractAsyncContextManager[Any]):
    """A program whose input and output are the two streams of a session, as the SDK uses them.

    A line of output is limited before it is parsed; it may have several messages. A line without any goes to the log,
    and counts as garbage unless it is blank; if it looks like the answer to a request, the request gets an error. When
    the output ends, so does the program.

    Attributes:
        seen: All processes that it has had so far, to be killed at the end.
    """

    def __init__(self, process: asyncio.subprocess.Process, connection: "Connection") -> None:
        self._process = process
        self._connection = connection
        self.seen: set[psutil.Process] = set()
        self._garbage = 0
        # Messages of the last line that were not returned yet.
        self._messages: deque[types.JSONRPCMessage] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        connection = self._connection
        while self._garbage <= _MAX_GARBAGE and connection.failure is None:
            if self._messages:
                return SessionMessage(self._messages.popleft())
            try:
                line, is_long = await self._line()
            except asyncio.IncompleteReadError:
                await _end_politely(self._process, _POLITE_S)
                connection.end_with(_end_text(self._process.returncode))
                continue
            self._messages.extend(parse_messages(line))
            connection.spend(len(line) + max(len(self._messages), 1) * _MESSAGE_COST)
            if not self._messages:
                self._garbage += bool(line.strip())
                connection.note(b"(not a message) " + line)
                if (b'"result"' in line or b'"error"' in line) and (result := _ANSWER_ID.search(line)):
                    text = connection.too_long if is_long else ""
                    self._messages.append(error_answer(int(result[1] or result[2]), text))
        # The loop ends after too much garbage, or a failure. After a failure this does nothing: the first counts.
        connection.end_with("sent lines that are not messages, so it was ended.")
        raise StopAsyncIteration

    async def _line(self) -> tuple[bytes, bool]:
        """Return the next line, and whether it is over the limit: then only both ends of it, which have its id."""
        line = b""
        output = cast("asyncio.StreamReader", self._process.stdout)
        while True:
            try:
                return line + await output.readuntil(), bool(line)
            except asyncio.LimitOverrunError as error:
                line += await output.readexactly(error.consumed)
                self._connection.spend(len(line))
                # The zero byte makes it no JSON, so that it is never taken for the complete line.
                line = line[:_PIECE] + b"\0" + line[-_PIECE:]

    async def send(self, message: SessionMessage) -> None:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        program_input = cast("asyncio.StreamWriter", self._process.stdin)
        # The end of the process is noticed elsewhere.
        with suppress(ConnectionError):
            program_input.write(text.encode() + b"\n")
            await program_input.drain()

    async def __aexit__(self, *_error: object) -> None:
        """Leave the pipes open: `program_streams` ends the program."""

    def check_processes(self) -> None:
        """End the connection if the program has ended, or takes too much memory."""
        connection = self._connection
        if self._process.returncode is not None:
            # A child of the program may hold the pipe open.
            connection.end_with(_end_text(self._process.returncode))
            return
        processes = tree_of(self._process.pid)
        self.seen.update(processes)
        used = 0
        for process in processes:
            with suppress(psutil.Error):
                used += process.memory_info().rss
        if used > connection.limits.memory_bytes:
            limit = size_text(connection.limits.memory_bytes)
            connection.end_with(f"took more than {limit} of memory, so it was ended.")

    async def read_log(self) -> None:
        """Pass the lines of its standard error to the connection until it ends."""
        output = cast("asyncio.StreamReader", self._process.stderr)
        rest = b""
        while piece := await output.read(_PIECE):
            *lines, rest = (rest[:_PIECE] + piece).split(b"\n")
            for line in lines[-LOG_LINES:]:
                self._connection.note(line)
            # A server that never stops has to wait.
            await asyncio.sleep(0.01)
        if rest:
            self._connection.note(rest)


async def _end_politely(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Close a program's input and wait so long for its end, then ask it to end by SIGTERM and wait again.

    `process.wait` would also wait for children that hold its pipes.
    """
    assert process.stdin is not None
    process.stdin.close()
    # Signal 0 does nothing: who still runs after the second wait is killed by the caller.
    for next_signal in (signal.SIGTERM, 0):
        end = time.monotonic() + seconds
        while process.returncode is None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, next_signal)


def _end_text(status: int | None) -> str:
    return "closed its output." if status is None else f"ended by itself (status {status})."


def parse_messages(text: bytes) -> list[types.JSONRPCMessage]:
    """Return the messages in a line, one or a list of them; empty if it is no JSON, has none, or is over a limit.

    A server's own error gets the code 0, as rdchat reads none: so other codes are known to be the SDK's.
    """
    if text.count(b"{") + text.count(b"[") > _MAX_CONTAINERS:
        return []
    with suppress(ValueError):
        data = from_json(whole_text(text).removeprefix(_BYTE_ORDER_MARK))
        parts = data if isinstance(data, list) else [data]
        if len(parts) > _MAX_MESSAGES:
            return []
        parsed = [_parse_message(part) for part in parts if isinstance(part, dict)]
        return [message for message in parsed if message is not None]
    return []


def whole_text(text: bytes) -> bytes:
    """Return a text with JSON in which U+FFFD stands for each byte that is no UTF-8, and for half a character."""
    text = text.decode(errors="replace").encode()
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def _parse_message(data: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return a JSON-RPC message, lenient in all that rdchat does not read; None if it is of no kind.

    In this order: with a method, it is a request, or a notification without an id; with an error, an error, with or
    without an id; with an id, a response, or an error without a text if it has no result.
    """
    # `type`, as a bool is an int too.
    number = data["id"] if type(data.get("id")) in {int, str} else None
    if isinstance(method := data.get("method"), str):
        if number is None:
            return types.JSONRPCNotification(jsonrpc="2.0", method=method)
        return types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method)
    if error := data.get("error"):
        fields = error if isinstance(error, dict) else {"data": error}
        return error_answer(number, error_text(fields.get("message"), fields.get("data")))
    if number is None:
        return None
    if "result" not in data:
        return error_answer(number, "")
    result = data["result"]
    fields = result if isinstance(result, dict) else {"structuredContent": result}
    return types.JSONRPCResponse(jsonrpc="2.0", id=number, result=fields)


def error_answer(number: int | str | None, text: str) -> types.JSONRPCError:
    """Return an error as the answer to a request; an empty text tells `Connection` that the answer was not valid."""
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=0, message=text))


def error_text(*parts: object) -> str:
    """Return the parts of an error that say something, such as its message and its data, as one text."""
    return ": ".join(dict.fromkeys(as_text(part) for part in parts if part))
