"""HTTP with one server of tools, with the MCP SDK. What a server sends is limited before the SDK parses it.

JSON-RPC messages of servers of tools. Only what rdchat reads of a message is judged.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from pydantic_core import from_json

from rdchat.files.plain_data import as_text, json_or_none
from rdchat.tools.definitions import ToolServer

if TYPE_CHECKING:
    from rdchat.tools.connection import Connection

_REFUSALS = {
    401: "it needs a valid key (HTTP 401)",
    403: "it does not allow this (HTTP 403)",
    429: "it gets too many requests, so try again later (HTTP 429)",
}
# Each event of a stream costs as much as a short message.
_EVENT_COST = 4_000
_MARK = b"\xef\xbb\xbf"
_MAX_MESSAGES = 1_000
# Each takes some hundred bytes of memory, however short it is.
_MAX_NESTED = 1_000_000


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
    # A farewell could take as long as the server likes.
    transport = streamable_http_client(
        server.url,
        http_client=client,
        max_sse_event_size=connection.limits.message_bytes,
        terminate_on_close=False,
    )
    async with client, transport as streams:
        yield streams


async def _drop_session(request: httpx2.Request) -> None:
    """Begin a session without the id of one that has ended."""
    if MCP_SESSION_ID in request.headers and (await _message_of(request)).get("method") == "initialize":
        del request.headers[MCP_SESSION_ID]


async def _message_of(request: httpx2.Request) -> dict[str, Any]:
    # It is rdchat's own: an object, or empty.
    message: dict[str, Any] = json_or_none(await request.aread()) or {}
    return message


async def _limit_response(connection: "Connection", response: httpx2.Response) -> None:
    """Refuse what leads elsewhere, and what is packed; count the rest, and note a refusal for its request."""
    headers = response.headers
    sent_to = response.request.url
    if response.has_redirect_location and (host := sent_to.join(headers["location"]).host) != sent_to.host:
        connection.end_with(f"leads to another host, {connection.short(host)}, which is refused.")
    if headers.get("content-encoding", "identity") != "identity":
        connection.end_with("sent a compressed answer, which is refused.")
    if response.is_error:
        message = await _message_of(response.request)
        # The number of an answer is the server's.
        number = message.get("id") if "method" in message else None
        status = response.status_code
        is_ended = status == 404 and MCP_SESSION_ID in response.request.headers
        connection.refusals[number] = "" if is_ended else _REFUSALS.get(status, f"it answered with HTTP {status}")
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    response.stream = _Counted(response.stream, connection, is_stream)


class _Counted(httpx2.AsyncByteStream):
    """An answer's body that is counted while it comes. The SDK limits each event of a stream."""

    def __init__(self, body: Any, connection: "Connection", is_stream: bool) -> None:
        self._body = body
        self._connection = connection
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            self._connection.spend(len(piece) + piece.count(b"\ndata:") * _EVENT_COST)
            if not self._is_stream and size > self._connection.limits.message_bytes:
                # The SDK fails the request with this text.
                raise httpx2.StreamError(self._connection.too_long)
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def parse_messages(text: bytes) -> list[types.JSONRPCMessage]:
    """Return the messages in a line or a body, which may be a list; empty if it is no JSON, has none, or too much.

    rdchat reads no error's code, so a server's own error has 0: other codes are those of the SDK.
    """
    if text.count(b"{") + text.count(b"[") > _MAX_NESTED:
        return []
    with suppress(ValueError):
        data = from_json(text.removeprefix(_MARK))
        parts = data if isinstance(data, list) else [data]
        if len(parts) > _MAX_MESSAGES:
            return []
        results = [_message(part) for part in parts if isinstance(part, dict)]
        return [message for message in results if message is not None]
    return []


def _message(data: dict[str, Any]) -> types.JSONRPCMessage | None:
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
    """Return an error as the answer to a request; without a text, the answer is not valid."""
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=0, message=text))


def error_text(*parts: object) -> str:
    """Return what an error says, in its message and in its data."""
    return ": ".join(dict.fromkeys(as_text(part) for part in parts if part))
