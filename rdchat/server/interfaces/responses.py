"""OpenAI's `/v1/responses`. No response is stored: each request brings its whole conversation.

Requests and responses are lists of items: messages, thoughts (`reasoning`), calls and their outputs. A client may name
an item of one of the last responses by its id instead of sending it; these are in memory. It may send a thought back as
`encrypted_content`, a text that clients do not read.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from rdchat.inference.api import MAX_LOG_PROBS, ChatMessage, PrefillProgress, Role, ToolCall
from rdchat.server.interfaces.chat_completions import log_probs
from rdchat.server.interfaces.chat_messages import arguments_of, message_of, read_message, thought_of
from rdchat.server.interfaces.client_tools import input_of, origin_of, read_answer, read_shape, read_tools
from rdchat.server.interfaces.fields import ApiError, Fields, wrong
from rdchat.server.interfaces.interface import OpenAIInterface, event, finish_of, read_effort
from rdchat.server.interfaces.reply_request import (
    MAX_TOKENS,
    Choice,
    Delta,
    Prompt,
    ReplyRequest,
    drafting_usage,
    read_common,
    read_thinking,
)

# Most characters of all stored items together, as JSON.
MAX_STORED = 4 * 2**20
# Begins each `encrypted_content` of ours.
_SEAL = "rdchat:"
# Types of items with text, and the type of that text.
_TEXTS = {"reasoning": "reasoning_text", "message": "output_text"}
# The beginning of an item's id, by its type.
_IDS = {"reasoning": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
# Values of `include` that have an effect.
_LOG_PROBS = "message.output_text.logprobs"
_SEALED = "reasoning.encrypted_content"
# What a response repeats of its request, with the values of a request that leaves them out.
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
}
# Sampling values that a response repeats, where neither the request nor a model gives them.
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
# Fields that the Open Responses specification wants in each response.
_FIXED = {
    **dict.fromkeys(("max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier")),
    "background": False,
    "service_tier": "default",
    "store": False,
    "truncation": "disabled",
}


class StoredItems:
    """The items of the last responses, in memory. All clients have the server's one key, so all may name them."""

    def __init__(self) -> None:
        self._items: dict[str, str] = {}
        self._size = 0

    def add_item(self, item: dict[str, Any]) -> None:
        """Keep a copy of an item; the oldest ones go when all of them are too long."""
        self._items[item["id"]] = json.dumps(item)
        self._size += len(self._items[item["id"]])
        while self._size > MAX_STORED:
            self._size -= len(self._items.pop(next(iter(self._items))))

    def resolved(self, item: Fields) -> Fields:
        """Return the item that an `item_reference` names; other items as they are.

        Raises:
            ApiError: If it is not there.
        """
        if item.raw_value("type") != "item_reference":
            return item
        name = item.read_text("id")
        if name not in self._items:
            why = "Only those of the last responses are kept: with `store: false` clients send the items themselves."
            raise ApiError(400, f"There is no item {name[:50]!r} here. {why}", item.field_name("id"))
        return Fields(json.loads(self._items[name]), item.field_name(""))


def sealed(thought: str) -> str:
    """Return a thought as `encrypted_content`. It is no secret to the client, so it is only encoded."""
    return _SEAL + b64encode(thought.encode(errors="replace")).decode()


def unsealed(item: Fields) -> str:
    """Return the thought in an item's `encrypted_content`; what was not made here counts as ignored."""
    given = item.read_text("encrypted_content", "")
    with suppress(ValueError):
        if given.startswith(_SEAL):
            return b64decode(given.removeprefix(_SEAL), validate=True).decode()
    item.ignored += ["encrypted_content"] if given else []
    return ""


class ResponseFormat:
    """Writes the one response to a request.

    The response has a list of items. A stream opens and closes them one after another, and ends with the whole
    response; so a complete response is written by going through the same steps.
    """

    def __init__(self, request: ReplyRequest, model: str, reply_id: str, stored_items: StoredItems) -> None:
        self._request = request
        self._reply_id = reply_id
        self._stored_items = stored_items
        head: dict[str, Any] = {
            "id": f"resp_{reply_id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
        }
        sampling = {name: request.sampling.get(name, usual) for name, usual in _SAMPLING.items()}
        top = {"top_logprobs": request.top_log_probs or 0}
        self._head = head | _FIXED | sampling | top | dict(request.repeated)
        # Numbers of the events.
        self._numbers = count()
        self._begun = False
        # The items so far; the last one may be open.
        self._output: list[dict[str, Any]] = []
        # The part with the text of the last item that has text.
        self._part: dict[str, Any] = {}
        # Fields that the response has at its end; `finish` sets them, before `end` and `complete` read them.
        self._ending: dict[str, Any] = {}

    def complete(self, choices: Sequence[Choice]) -> dict[str, Any]:
        (choice,) = choices
        self.finish(choice, Delta(choice.index, choice.thought, choice.answer, tuple(choice.listed())))
        return self._response(**self._ending)

    def begin(self, prompt: PrefillProgress | None = None) -> str:  # noqa: ARG002  no event of this API has progress
        """Return the events before all text; nothing for later progress."""
        if self._begun:
            return ""
        self._begun = True
        response = self._response(status="in_progress")
        return "".join(self._event(f"response.{each}", response=response) for each in ("created", "in_progress"))

    def delta(self, delta: Delta) -> str:
        """Return the events for more text."""
        text = ""
        if delta.thought:
            text += self._open_item("reasoning", summary=[], content=[]) + self._add_text(delta.thought)
        if delta.answer:
            text += self._open_item("message", role="assistant", content=[])
            text += self._add_text(delta.answer, logprobs=log_probs(delta.tokens)["content"])
        return text

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, and the tool calls."""
        is_cut = finish_of(choice) == "length"
        status = "incomplete" if is_cut else "completed"
        text = self.delta(tail) + self._close_item(status)
        for call_id, call in choice.named_calls(self._reply_id):
            text += self._call_item(call, call_id)
        self._ending = {"status": status, "usage": _usage(choice)} | self._request.ids_of(choice)
        if is_cut:
            self._ending["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self._ending["completed_at"] = int(time.time())
        return text

    def end(self, choices: Sequence[Choice]) -> str:  # noqa: ARG002  `finish` had the one response
        """Return the last event, with the whole response."""
        last = self._event(f"response.{self._ending['status']}", response=self._response(**self._ending))
        return last + event("[DONE]")

    def fail(self, error: ApiError) -> str:
        """Return the events for a failure, with what was written before."""
        named = error.openai()["error"]
        failure = {"code": named["code"] or named["type"], "message": named["message"]}
        text = self.begin() + self._close_item("incomplete")
        text += self._event("response.failed", response=self._response(status="failed", error=failure))
        return text + event("[DONE]")

    def _call_item(self, call: ToolCall, call_id: str) -> str:
        """Return the events of a call, as an item of its own."""
        tool = origin_of(call, self._request.tools)
        kind = "function_call"
        field = "arguments"
        given = call.arguments
        if tool.get("custom"):
            kind = "custom_tool_call"
            field = "input"
            given = input_of(call)
        namespace = tool.get("namespace", "")
        named = {"name": call.name.removeprefix(namespace)} | ({"namespace": namespace} if namespace else {})
        text = self._open_item(kind, call_id=call_id, **named, **{field: ""})
        self._output[-1][field] = given
        event_of = f"response.{kind}_{field}"
        text += self._item_event(f"{event_of}.delta", delta=given)
        text += self._item_event(f"{event_of}.done", name=named["name"], **{field: given})
        return text + self._close_item()

    def _open_item(self, kind: str, **fields: Any) -> str:
        """Open an item with some fields, unless one of its type is open."""
        last = self._output[-1] if self._output else {}
        if last.get("status") == "in_progress" and last["type"] == kind:
            return ""
        closed = self._close_item()
        item_id = f"{_IDS[kind]}_{self._reply_id}{len(self._output):02}"
        self._output.append({"id": item_id, "type": kind, "status": "in_progress"} | fields)
        begun = self._event("response.output_item.added", **self._position, item=self._output[-1])
        if kind not in _TEXTS:
            return closed + begun
        # Where a summary is requested, such as `auto`, it is the thought itself, and in no other field: some clients
        # show both.
        in_summary = kind == "reasoning" and self._head["reasoning"]["summary"]
        self._part = {"type": "summary_text" if in_summary else _TEXTS[kind], "text": ""}
        if kind == "message":
            self._part |= {"annotations": [], "logprobs": []}
        self._output[-1]["summary" if in_summary else "content"] = [self._part]
        return closed + begun + self._part_event("content_part.added", part=self._part)

    def _add_text(self, text: str, **logged: Any) -> str:
        """Add text to the open item."""
        self._part["text"] += text
        if logged:
            self._part["logprobs"] += logged["logprobs"]
        return self._part_event(f"{self._part['type']}.delta", delta=text, **logged)

    def _close_item(self, status: str = "completed") -> str:
        """Close the open item, if one is."""
        item = self._output[-1] if self._output else {}
        if item.get("status") != "in_progress":
            return ""
        text = ""
        if item["type"] in _TEXTS:
            part = self._part
            logged = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            text += self._part_event(f"{part['type']}.done", text=part["text"], **logged)
            text += self._part_event("content_part.done", part=part)
            if item["type"] == "reasoning" and self._request.seal_thoughts:
                item["encrypted_content"] = sealed(part["text"])
        item["status"] = status
        if self._request.keep_items:
            self._stored_items.add_item(item)
        return text + self._event("response.output_item.done", **self._position, item=item)

    @property
    def _position(self) -> dict[str, int]:
        return {"output_index": len(self._output) - 1}

    def _item_event(self, kind: str, **fields: Any) -> str:
        return self._event(kind, item_id=self._output[-1]["id"], **self._position, **fields)

    def _part_event(self, kind: str, **fields: Any) -> str:
        """Return an event of the open item's text; the names of a summary's events are different."""
        index = "content_index"
        if self._part["type"] == "summary_text":
            kind = f"reasoning_summary_{kind.partition('_')[2]}"
            index = "summary_index"
        return self._item_event(f"response.{kind}", **{index: 0}, **fields)

    def _event(self, kind: str, **fields: Any) -> str:
        return event({"type": kind, "sequence_number": next(self._numbers)} | fields, kind)

    def _response(self, **fields: Any) -> dict[str, Any]:
        empty = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        return self._head | empty | {"output": self._output} | fields


class Responses(OpenAIInterface):
    """Reads requests and writes responses of `/v1/responses`; see `Interface`."""

    def __init__(self) -> None:
        self._stored_items = StoredItems()

    def format(self, request: ReplyRequest, model: str, reply_id: str) -> ResponseFormat:
        """Return what writes the response; see `Interface.format`."""
        return ResponseFormat(request, model, reply_id, self._stored_items)

    def read_request(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read_request`."""
        common = read_common(fields, "stop")
        why = "rdchat stores no responses; send the whole conversation as `input`."
        fields.refuse(why, "previous_response_id", "conversation")
        fields.refuse("rdchat answers at once.", "background")
        fields.refuse("rdchat has no stored prompts; send the text.", "prompt")
        # No response is stored, so `store: true` has no effect. Items are kept in memory unless it is `store: false`.
        if fields.flag("store"):
            fields.ignored.append("store")
        reasoning = fields.part("reasoning")
        text = fields.part("text")
        # Not used; a field that was read is not reported as ignored.
        reasoning.read_text("summary", "")
        limit = reasoning.read_integer("max_tokens", 0, MAX_TOKENS)
        if limit is not None:
            common["thinking_tokens"] = limit
        tools = read_tools(fields)
        # Here `reasoning` and `text` are objects or absent: `part` has refused anything else.
        repeated = {name: fields.raw_value(name, usual) for name, usual in _REPEATED.items()}
        for name in ("reasoning", "text"):
            repeated[name] = {field: repeated[name].get(field, usual) for field, usual in _REPEATED[name].items()}
        listed = [{"type": "function", "strict": each["strict"]} | each["function"] for each in tools]
        return ReplyRequest(
            prompts=(Prompt(tuple(_read_conversation(fields, self._stored_items))),),
            one_call=not fields.flag("parallel_tool_calls", default=True),
            top_log_probs=_read_log_probs(fields),
            seal_thoughts=_SEALED in fields.items("include"),
            keep_items=fields.flag("store", default=True),
            effort=read_thinking(fields, read_effort(reasoning, "effort")),
            **read_answer(tools, repeated["tool_choice"], read_shape(text.part("format"))),
            **common,
            repeated=repeated | {"tools": listed},
            ignored=fields.unread(),
        )


def _read_log_probs(fields: Fields) -> int | None:
    """Return how many likely tokens to name beside each token; None for no log-probabilities."""
    top = fields.read_integer("top_logprobs", 0, MAX_LOG_PROBS)
    included = fields.items("include")
    fields.ignored += [f"include.{each}" for each in included if each not in (_LOG_PROBS, _SEALED)]
    if top or _LOG_PROBS in included:
        return top or 0
    return None


def _read_conversation(fields: Fields, stored_items: StoredItems) -> Iterator[ChatMessage]:
    """Yield the instructions, and the messages of `input`; neighbouring items of the assistant are one message."""
    if instructions := fields.read_text("instructions", ""):
        yield ChatMessage(Role.SYSTEM, instructions)
    given = fields.raw_value("input")
    # Anything but a text or a list is an error of `inners`; no input at all is one below.
    items = [] if isinstance(given, str) else [stored_items.resolved(each) for each in fields.inners("input")]
    if given is None or given == []:
        raise wrong("input", "must be a text, or a list with at least one item.")
    if isinstance(given, str):
        yield ChatMessage(Role.USER, given)
    messages = (_read_item(item, fields, last=item is items[-1]) for item in items)
    for is_reply, group in groupby(filter(None, messages), lambda message: message.role is Role.ASSISTANT):
        neighbours = list(group)
        yield from _joined(neighbours, fields.ignored) if is_reply else neighbours


def _joined(reply: Sequence[ChatMessage], ignored: list[str]) -> Iterator[ChatMessage]:
    """Yield neighbouring items of the assistant as one message; thoughts alone make none, and count as ignored."""
    content = "\n".join(each.content for each in reply if each.content)
    calls = tuple(call for each in reply for call in each.tool_calls)
    thought = "\n".join(each.thought for each in reply if each.thought)
    if content or calls:
        yield ChatMessage(Role.ASSISTANT, content, tool_calls=calls, thought=thought)
    elif thought:
        ignored.append("input.reasoning")


def _read_item(item: Fields, fields: Fields, *, last: bool) -> ChatMessage | None:
    """Return an item of `input` as a message; None for one of OpenAI's own tools, which counts as ignored."""
    kind = item.read_text("type", "message")
    # Not used; a field that was read is not reported as ignored.
    for name in ("id", "status"):
        item.raw_value(name)
    match kind:
        case "message":
            return read_message(item, last=last)
        # Calls of a client's own tools, such as Codex's patches and its shell, whatever their type is called.
        case _ if kind.endswith("_call") and item.raw_value("call_id") is not None:
            if item.raw_value("input") is None:
                given = arguments_of(item.raw_value("arguments") or item.raw_value("action"))
            else:
                given = json.dumps({"input": item.read_text("input")})
            name = item.read_text("namespace", "") + item.read_text("name", kind.removesuffix("_call"))
            return ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall(name, given, item.read_text("call_id")),))
        case _ if kind.endswith("_call_output"):
            result = message_of(Role.TOOL, item.raw_value("output", ""), item.field_name("output"), strict=False)
            return replace(result, tool_call_id=item.read_text("call_id", ""), name=item.read_text("name", ""))
        case "reasoning":
            texts = [thought_of(item.items(name)) for name in ("content", "summary")]
            texts.append(unsealed(item))
            # One thought in several fields counts once.
            return ChatMessage(Role.ASSISTANT, "", thought="\n".join(dict.fromkeys(filter(None, texts))))
    fields.ignored.append(f"input.{kind}")
    return None


def _usage(choice: Choice) -> dict[str, Any]:
    """Return the counters of a response."""
    statistics = choice.last.statistics
    written = len(choice.last.token_ids)
    return {
        "input_tokens": statistics.prompt_tokens,
        "input_tokens_details": {"cached_tokens": statistics.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": choice.thought_tokens},
        "total_tokens": statistics.prompt_tokens + written,
        "rdchat": drafting_usage([choice]),
    }
