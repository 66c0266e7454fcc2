"""HTTP with one server of tools, with the MCP SDK. Answers are limited, and made plain, before the SDK parses them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from rdchat.files.plain_data import json_or_none
from rdchat.tools.definitions import ToolServer
from rdchat.tools.messages import answer_in, error_answer, parse_messages, refusal_text

if TYPE_CHECKING:
    from rdchat.tools.connection import Connection

_NOT_FOUND, _REFUSED = 404, 400
# Each event of a stream costs as much as a short message.
_EVENT_COST = 4_000


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
    transport: AbstractAsyncContextManager[tuple[Any, Any]] = streamable_http_client(
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
    message = json_or_none(await request.aread())
    return message if isinstance(message, dict) else {}


async def _limit_response(connection: "Connection", response: httpx2.Response) -> None:
    """Refuse what leads elsewhere, and what is packed; count the rest."""
    headers = response.headers
    sent_to = response.request.url
    if response.has_redirect_location and (host := sent_to.join(headers["location"]).host) != sent_to.host:
        connection.fail(f"leads to another host, {connection.short(host)}, which is refused.")
    if headers.get("content-encoding", "identity") != "identity":
        connection.fail("sent a compressed answer, which is refused.")
    number = (await _message_of(response.request)).get("id")
    is_refused = response.status_code >= _REFUSED
    if is_refused and number is not None:
        # The SDK reads the answer then.
        headers["content-type"] = "application/json"
        if response.status_code == _NOT_FOUND and MCP_SESSION_ID in response.request.headers:
            connection.without_session.add(number)
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    answer = None if is_stream else partial(_plain_answer, connection, response.status_code, number)
    response.stream = _Body(response.stream, connection, answer)


def _plain_answer(connection: "Connection", status: int, number: int | None, body: bytes | None) -> bytes:
    """Return a body as the SDK expects it, one answer to the request; a body without one stays as it is.

    Args:
        connection: The connection.
        status: The status of the response.
        number: The number of its request; None for another message.
        body: The body; None for one over the limit.
    """
    answer: types.JSONRPCMessage | None = None
    if body is None:
        answer = error_answer(number, connection.too_long)
    elif status >= _REFUSED:
        answer = error_answer(number, refusal_text(status, body))
    else:
        messages = parse_messages(body)
        for message in messages:
            connection.take_notification(message)
        answer = answer_in(messages)
    if answer is None or number is None:
        return body or b""
    answer.id = number
    return answer.model_dump_json(by_alias=True).encode()


class _Body(httpx2.AsyncByteStream):
    """An answer's body that is counted while it comes. The SDK limits each event of a stream.

    Args:
        body: The body.
        connection: Its connection.
        answer: Returns what the SDK gets for a body, or for None in place of one over the limit; None for a stream.
    """

    def __init__(self, body: Any, connection: "Connection", answer: Callable[[bytes | None], bytes] | None) -> None:
        self._body = body
        self._connection = connection
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        async for piece in self._body:
            events = 0 if self._answer else piece.count(b"\ndata:")
            self._connection.spend(len(piece) + events * _EVENT_COST)
            if self._answer is None:
                yield piece
            elif len(whole) + len(piece) > self._connection.limits.message_bytes:
                yield self._answer(None)
                return
            else:
                whole += piece
        if self._answer is not None:
            yield self._answer(bytes(whole))

    async def aclose(self) -> None:
        await self._body.aclose()
