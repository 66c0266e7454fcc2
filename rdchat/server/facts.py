"""Snapshots of what the server does: plain frozen data for the window."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a request does."""

    WAITING = "waiting"  # for its turn
    LOADING = "loading"  # a model
    READING = "reading"  # the prompt
    WRITING = "writing"  # the reply


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request that waits or runs."""

    request_id: int  # for `Server.cancel`
    path: str  # such as `/v1/messages`
    user_agent: str  # what the client calls itself, for people: one line
    model: str  # the model's name
    phase: Phase
    since: float  # when it came, by `time.monotonic`
    tokens: int = 0  # written so far, of all its replies
    tokens_per_second: float | None = None  # of the reply that is written; None before its second token
    acceptance: float | None = None  # share of drafted tokens that were accepted in it; None where none was drafted


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server at one moment."""

    address: str  # such as `http://127.0.0.1:8817`; empty where it does not run
    running: RequestFacts | None = None  # the engine answers one request at a time
    waiting: tuple[RequestFacts, ...] = ()  # in the order of their turns
    answered: int = 0  # requests that ended since the start
