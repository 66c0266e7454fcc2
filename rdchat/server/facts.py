"""Snapshots of the server's work: plain frozen data for the window."""

from dataclasses import dataclass
from enum import StrEnum


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
        request_id: Id that `Server.cancel` takes.
        path: Path of the request, such as `/v1/messages`.
        user_agent: Name that the client gives itself, one line.
        model: Name of the model.
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
