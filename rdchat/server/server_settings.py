"""Plain frozen data of the server: its settings and limits, and its state for the window (`ServerFacts`)."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import DEFAULT_PORT, require

DEFAULT_HOST = "127.0.0.1"
CONTAINER_HOST = "host.docker.internal"
"""Docker's name for this machine. `.internal` is no public domain, so no web page can have it."""
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests and connections.

    Attributes:
        body_bytes: Limit of a body; images take most of it. Anthropic's API has the same.
        body_seconds: Time for a whole body.
        header_bytes: Limit of one request's headers and first line.
        header_seconds: Time for all headers.
        idle_seconds: Time that a connection stays open between two requests.
        send_seconds: Time that a client has to read what was sent; then its reply is stopped.
        connections: Largest number of open connections; macOS lets an app have 256 open files.
        choices: Largest number of replies to one request (`n`).
        queue_length: Limit of waiting requests; more are answered with 429.
        silent_seconds: A stream that has sent no data for so long gets a ping. `Answer` looks every half of this time,
            so a ping comes after 1 to 1.5 times as long.
    """

    body_bytes: int = 32 * 2**20
    body_seconds: float = 30.0
    header_bytes: int = 32 * 2**10
    header_seconds: float = 10.0
    idle_seconds: float = 60.0
    send_seconds: float = 30.0
    connections: int = 100
    choices: int = 16
    queue_length: int = 64
    silent_seconds: float = 8.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server runs.

    Attributes:
        key: Key that every request must have; see `credentials`.
        host: Address to listen on; "0.0.0.0" lets other machines in.
        port: Port to listen on; 0 takes a free one.
        may_load_models: Whether a request that names another installed model loads it.
        allowed_hosts: More names of this machine that the header `Host` may have; see `host_names`.
        substitutes_models: Whether the loaded model answers for one that is not installed.
        limits: Limits of requests and connections.
        certificate: PEM file of the certificate that encrypts the connections; None for none.
        certificate_key: PEM file of its key; None where the same file has it.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    key: str = field(repr=False)
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    may_load_models: bool = False
    allowed_hosts: tuple[str, ...] = (CONTAINER_HOST,)
    substitutes_models: bool = True
    limits: Limits = Limits()
    certificate: Path | None = None
    certificate_key: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_hosts", host_names(self.allowed_hosts))
        require(0 <= self.port < 2**16, "port", self.port, "from 0 to 65535")
        require(len(self.key) >= 8, "length of the server's key", len(self.key), "at least 8 characters")

    @property
    def partition(self) -> str:
        """The name under which the engine keeps KV caches of requests with this key; see `GenerationRequest.partition`.

        Requests with another key, and chats of the window, never use them.
        """
        return f"server-{hashlib.sha256(self.key.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def host_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return exact host names in lower case, without a dot at their end and without repetitions.

    Raises:
        InvalidSettingError: If one is no name, such as one with a wildcard, a port or a scheme.
    """
    exact = tuple(dict.fromkeys(name.strip().lower().removesuffix(".") for name in names))
    for name in exact:
        if not _HOST_NAME.fullmatch(name):
            raise InvalidSettingError(f"{name!r} is no host name.", "Give an exact name, such as host.docker.internal.")
    return exact


class Phase(StrEnum):
    """The state of a request.

    Attributes:
        WAITING: Waits for its turn.
        LOADING: A model is loaded for it.
        READING: The model reads the prompt.
        WRITING: The model writes the reply.
    """

    WAITING = "waiting"
    LOADING = "loading"
    READING = "reading"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request that waits or runs.

    Attributes:
        request_id: Id that `Server.cancel_request` takes.
        path: Path of the request, such as `/v1/messages`.
        user_agent: Name that the client gives itself, one line.
        model: Name of the model.
        phase: What happens with it now.
        tokens: Tokens written so far in all its replies.
        tokens_per_second: Speed of the present reply; None before its second token.
        acceptance: Share of drafted tokens that were accepted; None if none was drafted.
    """

    request_id: int
    path: str
    user_agent: str
    model: str
    phase: Phase
    tokens: int = 0
    tokens_per_second: float | None = None
    acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server at one moment.

    Attributes:
        address: Address such as `http://127.0.0.1:8817`; empty while it does not run.
        running: The one request that the engine answers now.
        waiting: Waiting requests in the order of their turns.
        answered: Requests that ended since the start.
    """

    address: str
    running: RequestFacts | None = None
    waiting: tuple[RequestFacts, ...] = ()
    answered: int = 0
