"""Sends a response to a client that may read slowly or have left, and reads the body of a request."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import Message, Receive, Scope, Send


class DisconnectedError(Exception):
    """The client has left, or does not read."""


class Response:
    """The response to one request.

    Args:
        scope: The request, with the connection's `abort` in its state.
        send: Sends a part of the response.
        seconds: The time that a client may take to read what was sent before.

    Attributes:
        abort: Drops the connection at once. An orderly close would wait until the client has read what was sent.
        started: Whether the status was sent.
        headers: Headers that every response has.
        written_at: Time of the last sending, by `time.monotonic`; at first the time of the request. `Answer` in
            `endpoints.py` sends a ping where it is long ago.
    """

    def __init__(self, scope: Scope, send: Send, seconds: float) -> None:
        self.abort: Callable[[], None] = scope["state"]["abort"]
        self._send = send
        self._seconds = seconds
        self.started = False
        self.headers: Mapping[str, str] = {}
        self.written_at = time.monotonic()

    async def send_head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        """Send the status and the headers; `kind` is the content type."""
        self.started = True
        all_headers = {"content-type": kind, "cache-control": "no-store", "x-content-type-options": "nosniff"}
        all_headers |= {**self.headers, **headers}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
        await self._send_message({"type": "http.response.start", "status": status, "headers": encoded})

    async def send_part(self, text: str, *, more: bool = True) -> None:
        """Send a part of the body, or with `more=False` its end. Half a character (a surrogate) becomes `?`."""
        await self._send_message(
            {"type": "http.response.body", "body": text.encode(errors="replace"), "more_body": more}
        )

    async def json(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        """Send a complete response with a JSON body."""
        text = json.dumps(body, ensure_ascii=False)
        length = len(text.encode(errors="replace"))
        await self.send_head(status, "application/json", {**headers, "content-length": str(length)})
        await self.send_part(text, more=False)

    async def _send_message(self, message: Message) -> None:
        self.written_at = time.monotonic()
        try:
            await asyncio.wait_for(self._send(message), self._seconds)
        except TimeoutError as error:
            self.abort()
            raise DisconnectedError from error


async def read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the body of a request; None if it is longer than `max_bytes`.

    Raises:
        DisconnectedError: If the client leaves before its end.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        body += message.get("body", b"")
        if len(body) > max_bytes:
            return None
        if not message.get("more_body", False):
            return bytes(body)
