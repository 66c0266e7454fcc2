"""A reply that a remote server writes: its text, thoughts and calls of tools, in the forms of all servers.

`RemoteReply` turns the chunks of a stream into the events of `TokenIterator`. `_ReceivedReply` checks the chunks and
joins them; `StreamedCalls` does that for calls. Much here exists because servers differ: a comment says what some do.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

from rdchat.errors import ModelError
from rdchat.files import as_text
from rdchat.inference.api import (
    MAX_ARGUMENTS,
    MAX_CALL_NAME,
    MAX_CALLS,
    THINK,
    DraftSettings,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Mode,
    PartsReader,
    PrefillProgress,
    ReplyEnd,
    Statistics,
    TokenEvent,
    ToolCall,
    markers_among,
    parsed_json,
)
from rdchat.inference.remote.server_connection import DONE, Connection

# Longest id of a call; some servers put a signature into it.
_MAX_ID = 2**15
# Fields with the text of a part of the content, and fields with a thought beside the content.
_TEXT_FIELDS = ("text", "value", "content", "refusal", "summary", "thinking", "reasoning")
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "thinking")
UNKNOWN_TOKEN = -1
"""The id in a `TokenEvent` whose text may be of any number of tokens."""
# Counters from this on are not believed.
_MAX_COUNT = 2**31
# A server that sends more characters than so many for each requested token, and some more, does not keep the limit.
_TOKEN_CHARACTERS = 64
_MORE_CHARACTERS = 100_000
# Tokens per second that are believed.
_SPEEDS = (1e-3, 1e6)
# Values of `finish_reason`. With any other one a reply is not complete: `error`, `content_filter`, a server's own.
_COMPLETE = (
    "stop", "tool_calls", "tool_call", "tool_use", "function_call", "stop_sequence", "end_turn", "eos", "eos_token",
    "complete",
)  # fmt: skip
_CUT = ("length", "max_tokens", "model_length")
_FINISH = dict.fromkeys(_COMPLETE, FinishReason.EOS) | dict.fromkeys(_CUT, FinishReason.LENGTH)
_MODES = {mode.value: mode for mode in Mode}


def delta_texts(delta: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a delta in order, each with whether it is a thought.

    A part of the content without text is its type, such as `[image_url]`.
    """
    # Some servers send a thought under several names: it counts once.
    yield next(filter(None, (_text_in(delta.get(name)) for name in _THOUGHTS)), ""), True
    content = delta.get("content")
    for part in content if isinstance(content, list) else [content]:
        fields = part if isinstance(part, dict) else {"text": part}
        kind = str(fields.get("type"))
        is_thought = "think" in kind or "reason" in kind
        has_text = is_thought or not fields.keys().isdisjoint(_TEXT_FIELDS)
        yield _text_in(fields) if has_text else f"[{kind}]", is_thought
    yield _text_in(delta.get("refusal")), False


def _text_in(value: object) -> str:
    """Return the text of a value: a text, a part of one, or a list of parts."""
    match value:
        case str():
            return value
        case list():
            return "".join(map(_text_in, value))
        case dict():
            # The same text under several names counts once.
            return "".join(dict.fromkeys(_text_in(value.get(name)) for name in _TEXT_FIELDS))
        case None | bool():
            return ""
    return str(value)


@dataclass(slots=True)
class _Call:
    """A call of a tool, as far as it has come.

    Attributes:
        call_id: Its id; empty where no piece had one.
        name: Name of the tool, which may come in pieces.
        arguments: The JSON of its arguments, to which the pieces are added.
        is_complete: Whether its first piece had complete arguments.
    """

    call_id: str = ""
    name: str = ""
    arguments: StringIO = field(default_factory=StringIO)
    is_complete: bool = False

    def is_other(self, call_id: str, name: str, arguments: str) -> bool:
        """Return whether a piece that would continue this call begins another one instead.

        A piece without a name never does. If both have an id, another id does. Otherwise, once this call has arguments,
        another name does, and so do further arguments behind complete ones.
        """
        if not name:
            return False
        if call_id and self.call_id:
            # Some servers give each piece an id of its own, but then it has no name.
            return call_id != self.call_id
        is_named_otherwise = self.name not in ("", name)
        return self.arguments.tell() > 0 and (is_named_otherwise or (self.is_complete and bool(arguments)))

    def is_repeated_by(self, other: "_Call") -> bool:
        """Return whether another call is this one again, perhaps with more arguments."""
        is_same = (self.call_id, self.name) == (other.call_id, other.name)
        return is_same and other.arguments.getvalue().startswith(self.arguments.getvalue())


class StreamedCalls:
    """Joins the pieces of calls in the deltas of one reply.

    Attributes:
        is_too_long: Whether the calls are more or longer than a reply may have.
    """

    def __init__(self) -> None:
        self.is_too_long = False
        self._calls: list[_Call] = []
        # Calls by the index of their pieces, as a text. The last call also has the key "None", since a piece without an
        # index belongs to it.
        self._by_index: dict[str, _Call] = {}
        # Characters of all arguments.
        self._length = 0

    def add_piece(self, piece: object) -> None:
        """Add a piece: the beginning of a call, more of one, or a complete one. Once they are too long, do nothing.

        It belongs to the call with its index. Where there is none, a piece without a name may be more of the last call.
        Otherwise, or if it is of another call (`_Call.is_other`), it begins a call.
        """
        if self.is_too_long:
            return
        fields: dict[str, Any] = piece if isinstance(piece, dict) else {}
        function = fields.get("function") or {}
        index = str(fields.get("index"))
        call_id = str(fields.get("id") or "")
        name = str(function.get("name") or "")
        arguments = as_text(function.get("arguments") or "")
        last = self._by_index.get(str(None))
        call = self._by_index.get(index)
        if call is None and last and not (name or last.is_complete) and call_id in ("", last.call_id):
            # Some servers number the pieces of a call, not the calls: it is more of the last one.
            call = last
        if call is None or call.is_other(call_id, name, arguments):
            call = _Call(is_complete=isinstance(parsed_json(arguments), dict))
            self._calls.append(call)
            self._by_index |= {index: call, str(None): call}
        call.call_id = call.call_id or call_id
        # A name may come in pieces, again with each piece of the arguments, or after them.
        if name != call.name and not (call.name and call.arguments.tell()):
            call.name += name
        self._length += call.arguments.write(arguments)
        is_long = len(call.name) > MAX_CALL_NAME or len(call.call_id) > _MAX_ID or self._length > MAX_ARGUMENTS
        self.is_too_long |= is_long or len(self._calls) > MAX_CALLS

    def finished(self) -> tuple[list[ToolCall], list[str]]:
        """Return the calls, and a text for each that has no name or whose arguments are no JSON object."""
        calls = list[ToolCall]()
        damaged = list[str]()
        for at, call in enumerate(self._calls):
            # Some servers send a call again, with another index and more arguments.
            if call.call_id and any(map(call.is_repeated_by, self._calls[at + 1 :])):
                continue
            name = joined_halves(call.name)
            arguments = joined_halves(call.arguments.getvalue()) or "{}"
            if name and isinstance(parsed_json(arguments), dict):
                calls.append(ToolCall(name, arguments, joined_halves(call.call_id)))
            else:
                damaged.append(f"[a call of a tool that is not valid: {name}({arguments})]")
        return calls, damaged


def joined_halves(text: str) -> str:
    """Return a text in which two halves of a character (surrogates) are joined, and a half alone is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class RemoteReply:
    """Implements `api.events.TokenIterator`; the server drafts the reply, and goes on while it is paused here.

    Each `TokenEvent` has the text that came at once, which may be of any number of tokens. Servers send a thought in a
    field of its own; in the text here it stands before the answer, with the marker that ends it. `PrefillProgress` says
    that the reply begins with a thought.

    The reader's thread runs an event loop while it waits for an event; `cancel` may be called from any thread.

    Args:
        connection: The server.
        request: The request.
        body: The JSON that is sent for it.
        is_rdchat: Whether the server is rdchat's own.
    """

    def __init__(
        self, connection: Connection, request: GenerationRequest, body: Mapping[str, Any], *, is_rdchat: bool
    ) -> None:
        self._request = request
        self._events = connection.events("/v1/chat/completions", body)
        self._runner = asyncio.Runner()
        # What waits, or waited last, for an event of the server; other threads cancel it. `_cancelled` is for the time
        # before the next one.
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._ended = False
        self._ready: deque[GenerationEvent] = deque()
        self._received = _ReceivedReply(connection, request.sampling.max_tokens)
        # Times of the request, of the first text and of the last one, by `time.monotonic`; 0 before there is text.
        self._begun_at = time.monotonic()
        self._text_at = 0.0
        self._last_at = 0.0
        # Number of `TokenEvent`s so far.
        self._index = 0
        # In the text of rdchat's server, what looks like a marker is text: every marker begins with the empty text, so
        # each counts only at an offset that is passed to the reader.
        self._markers = markers_among([""]) if is_rdchat else frozenset()
        self._reader = self._new_reader()

    def _new_reader(self) -> PartsReader:
        """Return what splits the text into thought and answer; the first text says whether it begins in a thought."""
        return PartsReader.for_request(self._request, self._received.begun, self._markers)

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self

    def __next__(self) -> GenerationEvent:
        while not self._ready:
            if self._ended:
                raise StopIteration
            self._receive()
        return self._ready.popleft()

    def update(self, settings: DraftSettings) -> None:
        """Do nothing: the server drafts."""

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self) -> None:
        self._cancelled = True
        if (task := self._task) is not None:
            with suppress(RuntimeError):  # The loop is closed.
                task.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        self._ended = True
        with suppress(RuntimeError):  # It is closed, or Ctrl-C interrupted an event, which is cancelled then.
            self._runner.run(self._events.aclose())
        self._runner.close()

    @property
    def statistics(self) -> Statistics:
        """The server's counters, which come at the end, and times that were measured here."""
        reported = self._received.statistics
        if not self._text_at:
            return reported
        ttft_ms = (self._text_at - self._begun_at) * 1000
        measured_ms = (self._last_at - self._text_at) * 1000
        return replace(reported, ttft_ms=ttft_ms, decode_ms=reported.decode_ms or measured_ms)

    def _receive(self) -> None:
        """Wait for the next chunk of the server, and make events of it."""
        try:
            event = self._runner.run(self._next_event())
        except asyncio.CancelledError:
            self._end(FinishReason.CANCELLED)
            return
        if event is None:
            self._end(None)
            return
        if event is DONE:
            # Some servers give no other word for the end. The end of the stream comes next.
            self._received.ending = self._received.ending or "stop"
            return
        # A server may begin and end a thought in each chunk, so the markers are not looked through each time.
        known = len(self._received.offsets)
        if text := self._received.add_event(event, inline=self._request.continue_last):
            self._take(text, known)

    async def _next_event(self) -> dict[str, Any] | None:
        """Return the next chunk; None at the end of the stream."""
        self._task = asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        return await anext(self._events, None)

    def _take(self, text: str, known: int) -> None:
        """Make an event of text; the reader gets the offsets of its markers, those behind the first `known` ones."""
        self._last_at = time.monotonic()
        number = self._request.request_id
        if not self._text_at:
            self._text_at = self._last_at
            self._reader = self._new_reader()
            self._ready.append(PrefillProgress(number, 0, 0, 0, in_thought=self._received.begun))
        pieces = self._reader.add_text(text, self._received.offsets[known:])
        self._ready.append(TokenEvent(number, self._index, UNKNOWN_TOKEN, text, pieces=pieces))
        self._index += 1

    def _end(self, reason: FinishReason | None) -> None:
        """Make the last event; raise RdchatError for a reply that is not complete.

        One is not complete where the stream ended without a word for why. The text that is added at the end
        (`trailing`) is, in this order: half a character that waited, the end of an open thought, and the calls that are
        not valid. The reader knows most of the offsets already; it takes each once.

        Args:
            reason: `CANCELLED`, or None where the server ended the reply.
        """
        received = self._received
        finish = reason or _FINISH.get(received.ending.lower())
        if finish is None:
            raise received.connection.stopped(received.ending)
        calls, damaged = received.calls.finished() if reason is None else ([], [])
        trailing = received.flush() + (received.close_thought() if finish is FinishReason.EOS or damaged else "")
        trailing += "".join(received.add_text(f"\n{call}") for call in damaged)
        self._ended = True
        number = self._request.request_id
        text = received.text
        self._reader.add_text(trailing, received.offsets)
        parts = self._reader.own(self._reader.finish_reply(finish is FinishReason.EOS))
        self._ready.append(
            ReplyEnd(number, text, tuple(received.token_ids), trailing, finish, self.statistics, received.mode,
                     tool_calls=tuple(calls), told=parts)
        )  # fmt: skip


@dataclass(slots=True)
class _ReceivedReply:
    """What a server has sent of a reply: checked, and joined to one text, with markers around its thoughts.

    Attributes:
        connection: The server, for errors.
        max_tokens: How many tokens it was asked for.
        length: Characters of the text.
        begun: Whether the text begins inside a thought, without its opening marker.
        offsets: Offsets of the markers in the text.
        calls: Its calls of tools.
        ending: The server's word for why the reply ended; empty before.
        token_ids: Ids of its tokens; empty where the server does not send them.
        mode: The drafting mode; None where the server does not say it.
        statistics: The server's counters, which come at the end; zeros before.
    """

    connection: Connection
    max_tokens: int
    length: int = 0
    begun: bool = False
    offsets: list[int] = field(default_factory=list)
    calls: StreamedCalls = field(default_factory=StreamedCalls)
    ending: str = ""
    token_ids: array[int] = field(default_factory=lambda: array("I"))
    mode: Mode | None = None
    statistics: Statistics = field(default_factory=Statistics)
    _parts: list[str] = field(default_factory=list)
    # Half a character, whose other half may come in the next event.
    _half: str = ""
    # Whether the text so far ends inside a thought.
    _in_thought: bool = False
    # Whether a delta has come; complete messages are then no news.
    _has_deltas: bool = False

    def add_event(self, event: dict[str, Any], *, inline: bool) -> str:
        """Take one event, and return the text that it adds.

        Args:
            event: A chunk of `/v1/chat/completions`.
            inline: Whether a thought at the very beginning gets an opening marker, as for a message that is continued.
                Later thoughts always get one.

        Raises:
            ModelError: If something in it has a wrong type, or the answer is longer than was asked for.
        """
        added = ""
        try:
            if usage := event.get("usage"):
                with suppress(AttributeError, TypeError):
                    self._take_usage(usage)
            choice = (event.get("choices") or [{}])[0]
            delta = choice.get("delta") or {}
            self._has_deltas |= bool(delta)
            # Some servers send a complete message: the only one, or again all that the deltas had.
            if not self._has_deltas:
                delta = choice.get("message") or {}
            for text, is_thought in delta_texts(delta):
                added += self._add_thought(text, inline) if is_thought else self._add_answer(text)
            called = delta.get("tool_calls") or []
            for piece in called if isinstance(called, list) else [called]:
                self.calls.add_piece(piece)
            if former := delta.get("function_call"):
                self.calls.add_piece({"function": former})
            self.ending = str(choice.get("finish_reason") or self.ending)
            self.token_ids.extend(map(int, choice.get("token_ids") or ()))
        except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise self.connection.stranger() from error
        limit = self.max_tokens * _TOKEN_CHARACTERS + _MORE_CHARACTERS
        if self.length > limit or len(self.token_ids) > self.max_tokens or self.calls.is_too_long:
            text = f"{self.connection.server.host} writes more than it was asked for."
            raise ModelError(text, "Try another model.")
        return added

    @property
    def text(self) -> str:
        """Thought and answer, with the markers of the thought that were added here."""
        return "".join(self._parts)

    def add_text(self, text: str) -> str:
        """Add to the text, and return what is new. Half a character (a surrogate) waits for the other half."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = joined_halves(text.removesuffix(self._half))
        self._parts.append(text)
        self.length += len(text)
        return text

    def flush(self) -> str:
        """Add half a character, as U+FFFD, whose other half does not come."""
        half = joined_halves(self._half)
        self._half = ""
        return self.add_text(half)

    def close_thought(self) -> str:
        """End a thought that is open, and return the text for it."""
        if not self._in_thought:
            return ""
        self._in_thought = False
        return self._add_marker(f"\n{THINK[1]}\n\n")

    def _add_marker(self, marker: str) -> str:
        """Add a marker that begins with a line break; return what is new."""
        before = self.flush()
        self.offsets.append(self.length + 1)
        return before + self.add_text(marker)

    def _add_answer(self, text: str) -> str:
        """Add a part of the answer; return what is new."""
        return self.close_thought() + self.add_text(text) if text else ""

    def _add_thought(self, thought: str, inline: bool) -> str:
        """Add a part of a thought; return what is new. For `inline` see `add_event`."""
        if not thought:
            return ""
        opening = ""
        if not self._in_thought:
            self._in_thought = True
            if inline or self.length:
                opening = self._add_marker(f"\n{THINK[0]}\n")
            else:
                self.begun = True
        return opening + self.add_text(thought)

    def _take_usage(self, usage: dict[str, Any]) -> None:
        """Take the counters of a `usage`, as far as the server gives them; `rdchat` in it is our own server's."""
        own = usage.get("rdchat")
        prompt = _counter(usage, "prompt_tokens")
        generated = _counter(usage, "completion_tokens")
        speed = (own or {}).get("tokens_per_second") or 0.0
        self.mode = _MODES.get(str((own or {}).get("mode")))
        self.statistics = Statistics(
            prompt, min(_counter(usage.get("prompt_tokens_details"), "cached_tokens"), prompt), generated,
            decode_ms=(generated - 1) / speed * 1000 if _SPEEDS[0] < speed < _SPEEDS[1] and generated else 0.0,
            rounds=_counter(own, "rounds"), drafted=_counter(own, "drafted"), accepted=_counter(own, "accepted"),
            target_calls=_counter(own, "target_calls"), context_tokens=prompt + generated,
        )  # fmt: skip


def _counter(counters: dict[str, Any] | None, name: str) -> int:
    """Return one of a server's counters; 0 where it is missing or cannot be right."""
    value = (counters or {}).get(name)
    return value if type(value) is int and 0 <= value < _MAX_COUNT else 0
