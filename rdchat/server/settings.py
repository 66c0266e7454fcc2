"""Where the server listens, and its limits."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.requests import require

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8817
CONTAINER_HOST = "host.docker.internal"
"""Docker's name for this machine. `.internal` is no public domain, so no web page can have it."""
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests and connections."""

    body_bytes: int = 8 * 2**20  # as a million tiny messages they take some 2 s to read
    body_seconds: float = 30.0  # until a body has come whole
    header_bytes: int = 32 * 2**10  # of one request's headers, and its first line
    header_seconds: float = 10.0  # until they have come whole
    idle_seconds: float = 60.0  # that a connection is kept open between two requests
    send_seconds: float = 30.0  # that a reader may take to read what was sent; then its reply is stopped
    connections: int = 100  # open at the same time; macOS lets an app have 256 files
    choices: int = 16  # replies to one request (`n`)
    silent_seconds: float = 8.0  # without a byte of a stream, until a ping follows within half as long


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server runs.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    key: str = field(repr=False)  # every request must have it; see `server_key`
    host: str = DEFAULT_HOST  # address to listen on; "0.0.0.0" lets other machines in
    port: int = DEFAULT_PORT  # 0 takes a free one
    may_load_models: bool = False  # whether a request that names another installed model loads it
    allowed_hosts: tuple[str, ...] = (
        CONTAINER_HOST,
    )  # more names of this machine in `Host`, as `host_names` gives them
    substitutes_models: bool = True  # whether the loaded model answers for one that is not installed
    queue_length: int = 64  # requests that wait at most; more are answered with 429
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        require(0 <= self.port < 2**16, "port", self.port, "from 0 to 65535")
        require(self.queue_length >= 1, "queue length", self.queue_length, "at least 1")
        require(len(self.key) >= 8, "length of the server's key", len(self.key), "at least 8 characters")


def host_names(given: Iterable[str]) -> tuple[str, ...]:
    """Return exact host names in lower case, without a dot at their end and without repetitions.

    Raises:
        InvalidSettingError: If one is no name, such as one with a wildcard, a port or a scheme.
    """
    names = tuple(dict.fromkeys(name.strip().lower().removesuffix(".") for name in given))
    wrong = next((name for name in names if not _HOST_NAME.fullmatch(name)), None)
    if wrong is not None:
        raise InvalidSettingError(f"{wrong!r} is no host name.", "Give an exact name, such as host.docker.internal.")
    return names
