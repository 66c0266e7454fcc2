"""The HTTP server on a thread of its own: it is started, stopped and watched from any other thread."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rdchat.errors import RdchatError
from rdchat.server.credentials import server_tls
from rdchat.server.endpoints import Endpoints
from rdchat.server.guard import Guard
from rdchat.server.request_queue import RequestQueue
from rdchat.server.served_models import ServerEngine
from rdchat.server.server_settings import ServerFacts, ServerSettings

# Connections that the system holds until they are accepted.
_BACKLOG = 128
# Time for replies that are sent when the server stops.
_STOP_SECONDS = 2
_LOG = logging.getLogger(__name__)


class Server:
    """Answers requests of other programs with the engine.

    Args:
        settings: Its address, key and limits.
        engine: The engine.
        on_change: Called on the server's thread when `facts` have changed; progress of a reply at most 10 times a
            second. It must be quick.
    """

    def __init__(
        self,
        settings: ServerSettings,
        engine: ServerEngine,
        on_change: Callable[[ServerFacts], object] = lambda _facts: None,
    ) -> None:
        self.settings = settings
        self._queue = RequestQueue(settings, engine, on_change)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """Its address, such as `http://127.0.0.1:8817`; empty while it does not run."""
        return self.facts.address

    @property
    def facts(self) -> ServerFacts:
        """The server at this moment; progress of a reply is up to a tenth of a second old."""
        return self._queue.facts

    def listen(self) -> None:
        """Listen, and begin to answer. A server is started once.

        Raises:
            RdchatError: If the address cannot be listened on, such as a port in use, or the certificate
                cannot be used.
        """
        assert self._thread is None
        file = self.settings.certificate
        tls = server_tls(file, self.settings.certificate_key) if file else None
        listener = self._listen()
        port = listener.getsockname()[1]
        host = self.settings.host
        self._queue.facts = ServerFacts(f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}")
        limits = self.settings.limits
        config = uvicorn.Config(
            Endpoints(self._queue, Guard(self.settings, port), limits),
            http=type("LimitedConnection", (Connection,), {"header_seconds": limits.header_seconds}),
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            # Its log of broken requests would go to the terminal.
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=limits.connections,
            timeout_keep_alive=round(limits.idle_seconds),
            timeout_graceful_shutdown=_STOP_SECONDS,
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        config.load()
        config.ssl = tls
        server = uvicorn.Server(config)
        self._server = server
        loop = asyncio.new_event_loop()
        self._loop = loop
        run = partial(asyncio.run, self._serve(listener, server), loop_factory=lambda: loop)
        self._thread = threading.Thread(target=run, name="server", daemon=True)
        self._thread.start()

    def stop_server(self, timeout_s: float = 5.0) -> bool:
        """Stop all replies, close all connections and end the thread; False if it did not end in time."""
        if self._thread is None or self._server is None:
            return True
        self._call(self._queue.close_queue)
        self._server.should_exit = True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _LOG.error("The server's thread did not end within %.0f s", timeout_s)
            return False
        self._queue.facts = ServerFacts("")
        return True

    def cancel_request(self, request_id: int) -> None:
        """Stop a request that waits or runs; one that has ended stays as it is."""
        self._call(lambda: self._queue.cancel_request(request_id))

    def _listen(self) -> socket.socket:
        host = self.settings.host
        port = self.settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason, _, _ = (error.strerror or str(error)).partition(" (while")  # Python adds the address
            raise RdchatError(
                f"The server cannot listen on {host}, port {port}: {reason}.", "Choose another address or port."
            ) from error

    async def _serve(self, listener: socket.socket, server: uvicorn.Server) -> None:
        with listener:
            await server.serve([listener])
        # These clients do not take what was sent.
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        # A transport closes its socket in the loop's next turn.
        for _ in range(2):
            await asyncio.sleep(0)

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function on the server's thread, unless it has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


class Connection(H11Protocol):
    """uvicorn's connection with time limits: by itself it would wait for ever for a request that comes byte by byte."""

    header_seconds = 10.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # By the loop's clock; 0 between requests.
        self._headers_until = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request, unless too many requests run: each takes one of the app's files."""
        super().connection_made(transport)
        others = cast("set[Connection]", self.connections - {self})
        if self.limit_concurrency is not None and len(others) + 1 >= self.limit_concurrency:
            # Connections without a whole request need no key, so they make room.
            waiting = [each for each in others if each.cycle is None or each.cycle.response_complete]
            if waiting:
                oldest = min(waiting, key=lambda each: each._headers_until)
                self.connections.discard(oldest)
                oldest.transport.abort()
            elif len(others) >= self.limit_concurrency:
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
