"""A connection that waits only so long for the headers of a request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """uvicorn's connection, which alone would wait for ever for a request that comes byte by byte."""

    header_seconds = 10.0

    @classmethod
    def limited_to(cls, seconds: float) -> "type[Connection]":
        """Return the class with another limit."""
        return type("Connection", (cls,), {"header_seconds": seconds})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # By the loop's clock; 0 between requests.
        self._headers_until = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request, unless too many are open: each takes one of the app's files."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            transport.abort()
            return
        # Each request gets a copy in `scope["state"]`.
        self.app_state = {"abort": transport.abort}
        self._limit()

    def data_received(self, data: bytes) -> None:
        """Take data; what begins a request has a limit for its end."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._limit()
        else:
            self._headers_until = 0.0

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; behind a response only closing is left, where uvicorn would raise an error."""
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _limit(self) -> None:
        self._headers_until = self._headers_until or self.loop.time() + self.header_seconds
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self._headers_until, self.timeout_keep_alive_handler)
