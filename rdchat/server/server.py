"""The HTTP server on a thread of its own: it is started, stopped and watched from any other thread."""

from collections.abc import Callable

from rdchat.server.facts import ServerFacts
from rdchat.server.gate import EngineGate
from rdchat.server.settings import ServerSettings


class Server:
    """Answers requests of other programs with the engine behind a gate.

    Args:
        settings: Where it listens, its key and its limits.
        gate: The engine.
        on_change: Called on the server's thread when `facts` have changed, at most some 10 times a second; it must be
            quick.
    """

    def __init__(
        self,
        settings: ServerSettings,
        gate: EngineGate,
        on_change: Callable[[ServerFacts], object] = lambda _facts: None,
    ) -> None:
        self.settings = settings
        self._gate, self._on_change = gate, on_change

    @property
    def address(self) -> str:
        """Its address, such as `http://127.0.0.1:8817`; empty while it does not run."""
        raise NotImplementedError

    @property
    def facts(self) -> ServerFacts:
        """The server at this moment."""
        raise NotImplementedError

    def start(self) -> None:
        """Listen, and begin to answer.

        Raises:
            RdchatError: If the address cannot be listened on, such as a port in use.
        """
        raise NotImplementedError

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop all replies, close all connections and end the thread; False if it did not end in time."""
        raise NotImplementedError

    def cancel(self, request_id: int) -> None:
        """Stop a request that waits or runs; one that has ended stays as it is."""
        raise NotImplementedError
