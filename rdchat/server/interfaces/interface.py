"""What each API implements: `Interface` reads requests, and `ReplyFormat` writes the replies to one request.

Here is also what several of OpenAI's three interfaces share: fields of requests, and the counters (`usage`).
"""

import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from rdchat.inference.api import FinishReason, PrefillProgress
from rdchat.server.interfaces.fields import ApiError, Fields, wrong
from rdchat.server.interfaces.reply_request import EFFORTS, Choice, Delta, ReplyRequest, drafting_usage, read_common


class ReplyFormat(Protocol):
    """Writes the replies to one request: all at once, or as server-sent events (lines of text) one after another."""

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

    def read_request(self, fields: Fields) -> ReplyRequest:
        """Read a request; raises ApiError.

        `ignored` is read last (`Fields.unread`): what nothing has read by then has no effect.
        """

    def format(self, request: ReplyRequest, model: str, reply_id: str) -> ReplyFormat:
        """Return what writes the replies to a request; `model` is the name of the one that answers."""


def event(data: dict[str, Any] | str, name: str = "") -> str:
    """Return a server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def read_effort(fields: Fields, field: str) -> str:
    """Read how much to think; empty where it is left to the model."""
    effort = fields.read_text(field, "")
    if effort and effort not in EFFORTS:
        raise wrong(fields.field_name(field), f"must be one of {', '.join(EFFORTS)}.")
    return effort


def read_openai(fields: Fields) -> dict[str, Any]:
    """Read what `/v1/chat/completions` and `/v1/completions` share; return it as fields of `ReplyRequest`."""
    common = read_common(fields, "stop")
    fields.refuse("a token's chance cannot be changed.", "logit_bias")
    include_usage = fields.part("stream_options").flag("include_usage")
    return common | {"choices": fields.read_integer("n", 1, 128) or 1, "include_usage": include_usage}


class OpenAIInterface:
    """What OpenAI's interfaces share: a ping is a comment, which their clients ignore."""

    ping = ": please wait\n\n"


class OpenAIFormat:
    """Writes the replies to one request of `/v1/chat/completions` or `/v1/completions`.

    A stream is a list of chunks: JSON objects with the new text of one reply each. `delta` and `finish` are in the
    subclasses (`chat_completions`).

    Attributes:
        id_prefix: The beginning of the answer's id.
        kind: The field `object` of a complete answer.
        chunk_kind: The field `object` of a chunk.
    """

    id_prefix: ClassVar[str]
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, request: ReplyRequest, model: str, reply_id: str) -> None:
        self._request = request
        self._reply_id = reply_id
        # Of each chunk; `complete` replaces the field `object`.
        ids = {"id": f"{self.id_prefix}-{reply_id}", "object": self.chunk_kind}
        self._head = ids | {"created": int(time.time()), "model": model}

    def complete(self, choices: Sequence[Choice]) -> dict[str, Any]:
        listed = [self._complete_choice(choice) | self._request.ids_of(choice) for choice in choices]
        return self._head | {"object": self.kind, "choices": listed, "usage": self._usage(choices)}

    def _complete_choice(self, choice: Choice) -> dict[str, Any]:
        raise NotImplementedError

    def begin(self, _prompt: PrefillProgress) -> str:
        return ""

    def end(self, choices: Sequence[Choice]) -> str:
        """Return the counters, if they are requested, and the end mark."""
        usage = (
            event(self._head | {"choices": [], "usage": self._usage(choices)}) if self._request.include_usage else ""
        )
        return usage + event("[DONE]")

    def fail(self, error: ApiError) -> str:
        """Return the event for a failure, which OpenAI's clients raise as an error."""
        return event(error.openai())

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Return the counters: each prompt counts once, whatever the number of its replies."""
        first_replies = [choice.last.statistics for choice in choices if choice.index % self._request.choices == 0]
        prompt = sum(statistics.prompt_tokens for statistics in first_replies)
        completion = sum(len(choice.last.token_ids) for choice in choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "completion_tokens_details": {"reasoning_tokens": sum(choice.thought_tokens for choice in choices)},
            "prompt_tokens_details": {"cached_tokens": sum(each.cached_prompt_tokens for each in first_replies)},
            "rdchat": drafting_usage(choices),
        }

    def _chunk(self, choice: dict[str, Any]) -> str:
        """Return the event of a chunk; where counters are requested, each chunk must have the field."""
        usage = {"usage": None} if self._request.include_usage else {}
        return event(self._head | {"choices": [choice]} | usage)


def finish_of(choice: Choice) -> str:
    """Return OpenAI's word for why a reply ended: a limit is the reason also behind a call."""
    if choice.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT_FULL):
        return "length"
    return "tool_calls" if choice.calls else "stop"
