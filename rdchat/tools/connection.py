"""The connection to one server of tools: it begins a session (MCP), lists the tools, and calls them.

It lives on the event loop of the tools' child process. The MCP SDK only carries the messages: lists and results are
parsed here piece by piece, and `streams` limits what a server sends before anything is parsed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from rdchat import __version__
from rdchat.errors import RdchatError, one_line
from rdchat.tools.definitions import MAX_LISTED, ServerLimits, SessionEndedError, ToolServer, listed_tools
from rdchat.tools.process_guard import ProcessGuard
from rdchat.tools.secret_values import SecretMask
from rdchat.tools.streams import LOG_LINES, SESSION_ENDED, Program, error_text, http_streams, program_streams
from rdchat.tools.tool_results import result_fields
from rdchat.wording import size_text

# From one look at the server to the next: its processes' memory takes some milliseconds to find.
_TICK_S = 1.0
# How long a request that lost its connection waits for the reason.
_END_S = 3.0
# Longest line of standard error that is kept, in characters.
_LOG_LINE = 500
# A server's allowance: it may send so many bytes at once, and then so many more each tick.
_BURST = 80_000_000
_PER_TICK = 200_000
# What the SDK says in place of an HTTP error's body.
_SDK_ERRORS = {"Server returned an error response", "Not Found"}


class Connection:
    """Starts a server, or connects to one, lists its tools, and calls them. Lives on an event loop.

    Args:
        server: The server.
        values: Values of its secrets, by name.
        path: Returns PATH for its program.
        limits: Its limits, also as an attribute.
        guard: Kills the program if this process ends.

    Attributes:
        tools: Its tools by name, as `listed_tools` returns them; None until it has started.
        failure: Why it ended; None while it runs.
        refusals: By the number of a request that was answered with an HTTP error: what its status says, as the end of a
            sentence, or `SESSION_ENDED`.
        program: Its program while that runs; None for an address.
        is_ending: Whether the program is ended here, so that its end is no failure.
    """

    def __init__(
        self, server: ToolServer, values: Mapping[str, str], path: Awaitable[str], limits: ServerLimits,
        guard: ProcessGuard,
    ) -> None:  # fmt: skip
        self._server = server
        self._values = values
        self._path = path
        self.limits = limits
        self._guard = guard
        self._masked = SecretMask(server, values)
        self.tools: dict[str, dict[str, Any]] | None = None
        self.failure: RdchatError | None = None
        self.refusals: dict[int | None, str] = {}
        # `serve` sets these before they are used; the task is its own, which is cancelled to end the connection.
        self._task: asyncio.Task[Any]
        self._dispatcher: JSONRPCDispatcher
        self._report: Callable[[dict[str, Any]], object]
        self._numbers = count()
        # How many sessions have begun; a server over HTTP may end one, and another follows.
        self._session = 0
        self._renewing = asyncio.Lock()
        self.program: Program | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self.is_ending = False
        # What `_tick` reports next.
        self._list_changed = False
        self._log_changed = False
        self._allowance = _BURST

    async def serve(self, report: Callable[[dict[str, Any]], object]) -> None:
        """Serve until the server ends, or this is cancelled.

        Args:
            report: Gets `tools` and `problems` (see `listed_tools`) when they are known and when they change, and
                `log`, the last lines of the server's standard error.

        Raises:
            RdchatError: Why it ended.
        """
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._report = report
        ticker = asyncio.create_task(self._tick())
        try:
            if self._server.url:
                connected = http_streams(self._server, self._values, self)
            else:
                connected = program_streams(self._server, self._values, await self._path, self, self._guard)
            async with connected as (read, write), anyio.create_task_group() as tasks:
                self._dispatcher = JSONRPCDispatcher(read, write)
                await tasks.start(self._dispatch)
                async with asyncio.timeout(self.limits.start_s):
                    await self._begin_session()
                # The end of this block waits for `_dispatch`, so until the server ends.
        except BaseException as error:
            self.failure = self.failure or self._failure_of(error)
            raise (self.failure or error) from error
        finally:
            ticker.cancel()
            self._report_log()

    async def _dispatch(self, *, task_status: TaskStatus[None]) -> None:
        """Read the server's messages until it closes the connection."""

        async def answer(_context: object, method: str, _params: object) -> dict[str, Any]:
            # A server is offered nothing: no sampling, no elicitation, no roots.
            if method == "ping":
                return {}
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")

        async def notice(_context: object, method: str, _params: object) -> None:
            self._list_changed |= method == "notifications/tools/list_changed"

        await self._dispatcher.run(answer, notice, task_status=task_status)
        self.end_with("closed the connection.")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return the fields of `ToolResult`.

        Raises:
            SessionEndedError: If the server has ended the session, or it is being renewed.
            RdchatError: If the server refuses, ends, or takes too long.
        """
        # The caller then renews the session, which waits for the renewal under way, and calls again.
        if self._renewing.locked():
            raise SessionEndedError(self._server.name, self._session)
        # Each call begins with the whole allowance.
        self._allowance = _BURST
        try:
            async with asyncio.timeout(self.limits.call_s):
                result = await self._request("tools/call", {"name": name, "arguments": arguments})
            return result_fields(result, self._masked)
        except TimeoutError:
            what = f"took longer than {self.limits.call_s:.0f} seconds, so it was stopped"
        except ConnectionError:
            what = "broke off its answer, or it was too long"
        except ValueError:
            what = "gave an answer that is not valid"
        except _AnsweredError as error:
            what = f"was refused: {error}"
        raise RdchatError(f"The tool {name} {what}.")

    async def renew_session(self, ended: SessionEndedError) -> None:
        """Begin a new session, and read the tools again, unless another call has done so.

        If that fails or is stopped, the server is ended, and `failure` says why: the new session's tools must be known
        before one is called.
        """
        async with self._renewing:
            if ended.session == self._session:
                try:
                    async with asyncio.timeout(self.limits.start_s):
                        await self._begin_session()
                except asyncio.CancelledError:
                    self.end_with("was stopped.")
                    raise
                except Exception as error:
                    self._end(self._failure_of(error))

    async def _begin_session(self) -> None:
        """Agree on a version of the protocol, tell the server that the session has begun, and read its tools."""
        client = {"name": "rdchat", "version": __version__}
        offer = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": client}
        version = (await self._request("initialize", offer)).get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise ValueError("an unknown version")
        # The SDK sends this header with all later requests.
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        await self._dispatcher.notify("notifications/initialized", None, {"headers": headers})
        await self._read_tools()
        self._session += 1

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the result.

        Raises:
            SessionEndedError: If the server has ended the session.
            ConnectionError: If the answer broke off.
            ValueError: If the answer is not valid.
            _AnsweredError: If the answer is an error.
            RdchatError: If the server has ended.
        """
        number = next(self._numbers)
        session = self._session
        try:
            # The protocol forbids to cancel the beginning of a session.
            options: CallOptions = {"request_id": number, "cancel_on_abandon": method != "initialize"}
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            refusal = self.refusals.pop(number, None)
            if refusal == SESSION_ENDED:
                raise SessionEndedError(self._server.name, session) from error
            raise await self._meaning_of(error.error, refusal) from error

    async def _meaning_of(self, details: types.ErrorData, refusal: str | None) -> Exception:
        """Return what an MCPError means, as one of the errors of `_request`.

        Errors of the SDK itself come this way too. They are told by their words, as servers may use the same codes for
        errors of their own.

        Args:
            details: The error, of the SDK or of the server.
            refusal: What the HTTP status says; None without an HTTP error.
        """
        text = error_text(details.message, details.data)
        # The SDK quotes an answer that it cannot parse, so its text is not shown, except where it only quotes our own
        # words for an answer over the limit.
        is_quoted = details.code == types.PARSE_ERROR and text.startswith("Failed to parse ")
        if not text or (is_quoted and self.too_long not in text):
            return ValueError("not valid")
        if text.startswith("SSE stream "):
            return ConnectionError("broken off")
        if text == "Connection closed":
            # The reason is known when all of the connection has ended. Otherwise, these are the server's words.
            await asyncio.wait([self._task], timeout=_END_S)
            if self._task.done() or self.failure is not None:
                return self.failure or RdchatError(f"The server {self._server.name} was stopped.")
        if refusal and text in _SDK_ERRORS:
            return _AnsweredError(refusal)
        return _AnsweredError(self.short(error_text(refusal, text)))

    def end_with(self, what: str) -> None:
        """End the connection; only the first reason counts."""
        self._end(RdchatError(f"The server {self._server.name} {what}"))

    def _end(self, failure: RdchatError | None) -> None:
        """Cancel the task of `serve`, which then raises this, unless the connection is ending already."""
        if self.failure is None and not self.is_ending and not self._task.cancelling():
            self.failure = failure
            self._task.cancel()

    def _failure_of(self, error: BaseException) -> RdchatError | None:
        """Return why the connection failed, for people; a server's own text is short. None if it was cancelled.

        Of several errors in a group the first counts. Any error not listed here means an answer that is not valid.
        """
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        what = "gave an answer that is not valid"
        match error:
            case RdchatError():
                return error
            case asyncio.CancelledError():
                return None
            case TimeoutError():
                what = f"did not answer within {self.limits.start_s:.0f} seconds"
            case _AnsweredError():
                what = f"refused the connection: {error}"
            case httpx2.HTTPError():
                what = "cannot be reached"
            case ConnectionError():
                what = "broke off its answer, or it was too long"
            case OSError():
                what = f"could not be started: {self.short(error)}"
        return RdchatError(f"The server {self._server.name} {what}.")

    async def _read_tools(self) -> None:
        """Read the server's list of tools, page by page, and report it.

        If the first page fails, the error is raised; if a later one does, the tools so far are used, with a problem.
        The list ends where there is no next cursor, or one that was sent before.
        """
        listed: list[Any] = []
        unread: list[str] = []
        params: dict[str, Any] = {}
        sent: list[dict[str, Any]] = []
        while params not in sent and max(len(listed), len(sent)) <= MAX_LISTED:
            sent.append(params)
            try:
                result = await self._request("tools/list", params)
                # An empty list is null in some languages.
                page = result.get("tools") or []
                if not isinstance(page, list):
                    raise ValueError("no list")
            except (_AnsweredError, ConnectionError, ValueError) as error:
                if not params:
                    raise
                reason = str(error) if isinstance(error, _AnsweredError) else "its answer is not valid"
                unread.append(f"The server did not list the rest of its tools: {reason}.")
                break
            # A server that takes an empty cursor for none sends its first page again.
            if listed[: len(page)] != page:
                listed += page
            # An empty cursor is one, and the list may go on behind an empty page.
            if result.get("nextCursor") is None:
                break
            params = {"cursor": result["nextCursor"]}
        tools, problems = listed_tools(self._masked(listed[:MAX_LISTED]))
        if max(len(listed), len(sent)) > MAX_LISTED:
            problems.append(f"The server lists more than {MAX_LISTED:,} tools or pages; the others were not read.")
        self.tools = {tool["name"]: tool for tool in tools}
        self._report({"tools": tools, "problems": problems + unread})

    async def _tick(self) -> None:
        """Notice the end of the program, its memory, changed tools, and what it logged; renew its allowance."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._allowance = min(_BURST, self._allowance + _PER_TICK)
            self._report_log()
            if self.program is not None:
                self.program.check_processes()
            # Before the first session the list is not known yet, so there is nothing to read again.
            if self._list_changed and self._session > 0:
                self._list_changed = False
                try:
                    async with asyncio.timeout(self.limits.start_s):
                        await self._read_tools()
                # A timeout and a broken connection are OSErrors.
                except (RdchatError, _AnsweredError, OSError, ValueError):
                    self.end_with("did not list its tools again.")

    def _report_log(self) -> None:
        if self._log_changed:
            self._log_changed = False
            self._report({"log": self._masked("\n".join(self._log)).split("\n")})

    def note(self, line: bytes) -> None:
        """Keep a line of the server's standard error, to be reported at the next tick."""
        self._log.append(self._masked(line.decode(errors="replace").rstrip())[:_LOG_LINE])
        self._log_changed = True

    def short(self, text: object) -> str:
        """Return a stranger's text on one line without secrets."""
        return one_line(self._masked(str(text))).rstrip(".")

    def spend(self, size: int) -> None:
        """Take so many bytes that the server has sent off its allowance; end it if that is used up."""
        self._allowance -= size
        if self._allowance < 0:
            self.end_with("sent too much, so it was ended.")

    @property
    def too_long(self) -> str:
        """The error text for an answer over the limit."""
        return f"its answer has more than {size_text(self.limits.message_bytes)}"


class _AnsweredError(Exception):
    """A server answered a request with an error; the text is short and masked."""
