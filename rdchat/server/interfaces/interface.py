"""What an interface must be able to do: read requests, and write replies and errors in its own shapes."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from rdchat.inference.api.events import PrefillProgress
from rdchat.server.interfaces.api_error import ApiError
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.order import Choice, Delta, ReplyOrder


class ReplyStream(Protocol):
    """Writes one streamed reply as server-sent events."""

    def begin(self, prompt: PrefillProgress) -> str:
        """Return the events before all text, once; `prompt` is how far a prompt is read."""

    def delta(self, delta: Delta) -> str:
        """Return the events for more text."""

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the events at the end of one reply; `tail` is the rest of its text."""

    def end(self, choices: Sequence[Choice]) -> str:
        """Return the events after all replies."""


class Interface(Protocol):
    """The shapes of one path.

    Attributes:
        ping: Sent in a stream where nothing else was sent for a while: many clients leave after 30 s without a byte.
    """

    ping: str

    def read(self, fields: Fields) -> ReplyOrder:
        """Read a request; raises ApiError."""

    def whole(self, order: ReplyOrder, model: str, choices: Sequence[Choice], reply_id: str) -> dict[str, Any]:
        """Return the body of a reply that is sent at once."""

    def stream(self, order: ReplyOrder, model: str, reply_id: str) -> ReplyStream:
        """Return what writes a reply that is sent while it is written."""

    def stream_error(self, error: ApiError) -> str:
        """Return the events for a failure in the middle of a stream."""


COMMENT = ": please wait\n\n"
"""A ping for OpenAI's clients, which pass over comments."""


def event(data: dict[str, Any] | str, name: str = "") -> str:
    """Return a server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
