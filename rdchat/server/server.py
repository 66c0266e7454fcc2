"""The HTTP server: uvicorn on a thread and an event loop of its own.

`Server` may be used from any other thread. `Connection` adds time limits that uvicorn does not have.
"""

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

# Connections that the operating system holds until they are accepted.
_BACKLOG = 128
# When the server stops, the replies that are being sent have this time to end.
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
            # uvicorn takes a class and makes the connections itself, so the limit is an attribute of the class.
            http=type("LimitedConnection", (Connection,), {"header_seconds": limits.header_seconds}),
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            # uvicorn's log of broken requests would go to the terminal.
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
        # `load` makes these settings from files by itself, and has none here: so ours are set after it.
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
        """Return a socket that listens on the address of the settings; raises RdchatError."""
        host = self.settings.host
        port = self.settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            # Python adds the address, which the message has already.
            reason, _, _ = (error.strerror or str(error)).partition(" (while")
            raise RdchatError(
                f"The server cannot listen on {host}, port {port}: {reason}.", "Choose another address or port."
            ) from error

    async def _serve(self, listener: socket.socket, server: uvicorn.Server) -> None:
        """Answer requests until the server is stopped; then close the connections that are still open."""
        with listener:
            await server.serve([listener])
        # The clients of these connections do not read what was sent.
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
    """uvicorn's connection with a time limit for the headers of each request.

    By itself uvicorn waits for ever for a request that comes byte by byte. uvicorn's `cycle` is the request that is
    being answered, and its timer `timeout_keep_alive_task` closes a connection that waits for the next request.

    Attributes:
        header_seconds: Time for all headers of a request.
    """

    header_seconds = 10.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Until when the headers must be complete, by the loop's clock; 0 while a request is answered.
        self._headers_until = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request, unless too many are open: a connection takes one of the app's files.

        uvicorn itself answers 503 once `limit_concurrency` connections are open, so room is made before: when this
        connection reaches the limit, the one that has waited longest for headers is dropped. If all others answer, this
        connection stays, for uvicorn's 503, but one beyond the limit is dropped at once.
        """
        super().connection_made(transport)
        others = cast("set[Connection]", self.connections - {self})
        if self.limit_concurrency is not None and len(others) + 1 >= self.limit_concurrency:
            # Anybody can open connections without a key, so those on which no request is answered make room.
            waiting = [each for each in others if not each._is_answering]
            if waiting:
                oldest = min(waiting, key=lambda each: each._headers_until)
                self.connections.discard(oldest)
                oldest.transport.abort()
            elif len(others) >= self.limit_concurrency:
                transport.abort()
                return
        # Each request gets a copy in `scope["state"]`.
        self.app_state = {"abort": transport.abort}
        self._limit_headers()

    def data_received(self, data: bytes) -> None:
        """Take data. While it is only a part of a request's headers, their time goes on."""
        super().data_received(data)
        if self._is_answering:
            self._headers_until = 0.0
        else:
            self._limit_headers()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. Once a response has begun, only close: uvicorn would raise an error here."""
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            super().send_400_response(msg)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _limit_headers(self) -> None:
        """Close the connection at the end of the headers' time, which begins now unless it has begun before.

        uvicorn's own timer is replaced: it would give the connection the time between two requests.
        """
        self._headers_until = self._headers_until or self.loop.time() + self.header_seconds
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self._headers_until, self.timeout_keep_alive_handler)
