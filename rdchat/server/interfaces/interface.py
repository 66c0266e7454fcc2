"""The protocol of an API: it reads requests, and writes replies and errors in its own form."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from rdchat.inference.api.events import PrefillProgress
from rdchat.server.interfaces.api_error import ApiError
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.reply_request import Choice, Delta, ReplyRequest


class ReplyFormat(Protocol):
    """Writes the replies to one request, at once or as server-sent events."""

    def complete(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Return the body with all replies."""

    def begin(self, prompt: PrefillProgress) -> str:
        """Return the events before all text, once; `prompt` is how far a prompt is read."""

    def delta(self, delta: Delta) -> str:
        """Return the events for more text."""

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the events at the end of one reply; `tail` is the rest of its text."""

    def end(self, choices: Sequence[Choice]) -> str:
        """Return the events after all replies."""

    def fail(self, error: ApiError) -> str:
        """Return the events for a failure in the middle of a stream, or before all text."""


class Interface(Protocol):
    """The requests and replies of one path.

    Attributes:
        ping: Sent in a stream after some time without data: many clients leave after 30 s without a byte.
    """

    ping: str

    def read(self, fields: Fields) -> ReplyRequest:
        """Read a request; raises ApiError."""

    def format(self, request: ReplyRequest, model: str, reply_id: str) -> ReplyFormat:
        """Return what writes the replies to a request; `model` is the name of the one that answers."""


def event(data: dict[str, Any] | str, name: str = "") -> str:
    """Return a server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
