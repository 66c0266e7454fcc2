"""OpenAI's `/v1/responses`. No response is stored: each request has its whole conversation."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from typing import Any

from rdchat.inference.api.events import FinishReason, PrefillProgress
from rdchat.inference.api.messages import ChatMessage, Role, ToolCall
from rdchat.inference.api.requests import MAX_LOG_PROBS
from rdchat.server.interfaces.api_error import ApiError, unsupported, wrong
from rdchat.server.interfaces.chat_completions import log_probs
from rdchat.server.interfaces.chat_messages import arguments_of, id_of_call, read_message
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.interface import event
from rdchat.server.interfaces.openai_format import SAMPLING, OpenAIInterface, read_effort
from rdchat.server.interfaces.parts import text_of
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
from rdchat.server.interfaces.shapes import read_answer, read_shape
from rdchat.server.interfaces.tools import input_of, origin_of, read_tools

# Kind of an item's text, and the beginning of its id.
_TEXTS = {"reasoning": "reasoning_text", "message": "output_text"}
_IDS = {"reasoning": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
_LOG_PROBS = "message.output_text.logprobs"
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
# Sampling values, where the model is not known.
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
# Fields that the Open Responses specification wants in each response.
_FIXED = {
    **dict.fromkeys(("max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier")),
    "background": False,
    "service_tier": "default",
    "store": False,
    "truncation": "disabled",
}


class ResponseFormat:
    """Writes the one response to a request, as output items one after another if it is streamed."""

    def __init__(self, request: ReplyRequest, model: str, reply_id: str) -> None:
        self._request, self._reply_id = request, reply_id
        head: dict[str, Any] = {
            "id": f"resp_{reply_id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
        }
        sampling = {name: request.sampling.get(name, usual) for name, usual in _SAMPLING.items()}
        likely = {"top_logprobs": request.top_log_probs or 0}
        self._head = head | _FIXED | sampling | likely | dict(request.repeated)
        self._numbers = count()
        self._begun = False
        # The last item may be open.
        self._output: list[dict[str, Any]] = []
        self._ending: dict[str, Any] = {}

    def complete(self, choices: Sequence[Choice]) -> dict[str, Any]:
        (choice,) = choices
        self.finish(choice, Delta(choice.index, choice.thought, choice.answer, tuple(choice.listed())))
        return self._response(**self._ending)

    def begin(self, prompt: PrefillProgress | None = None) -> str:  # noqa: ARG002  nothing says how far a prompt is
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
            text += self._open("reasoning", summary=[], content=[]) + self._add(delta.thought)
        if delta.answer:
            text += self._open("message", role="assistant", content=[])
            text += self._add(delta.answer, log_probs(delta.tokens)["content"])
        return text

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, and the tool calls."""
        is_cut = choice.finish in {FinishReason.LENGTH, FinishReason.CONTEXT_FULL} and not choice.calls
        status = "incomplete" if is_cut else "completed"
        text = self.delta(tail) + self._close(status)
        for number, call in enumerate(choice.calls):
            text += self._call(call, id_of_call(call, self._reply_id, choice.index, number))
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
        text = self.begin() + self._close("incomplete")
        text += self._event("response.failed", response=self._response(status="failed", error=failure))
        return text + event("[DONE]")

    def _call(self, call: ToolCall, call_id: str) -> str:
        tool = origin_of(call, self._request.tools)
        kind, field, given = "function_call", "arguments", call.arguments
        if tool.get("custom"):
            kind, field, given = "custom_tool_call", "input", input_of(call)
        namespace = tool.get("namespace", "")
        named = {"name": call.name.removeprefix(namespace)} | ({"namespace": namespace} if namespace else {})
        text = self._open(kind, call_id=call_id, **named, **{field: ""})
        self._output[-1][field] = given
        event_of = f"response.{kind}_{field}"
        text += self._item_event(f"{event_of}.delta", delta=given)
        text += self._item_event(f"{event_of}.done", name=named["name"], **{field: given})
        return text + self._close()

    def _open(self, kind: str, **fields: Any) -> str:
        """Begin an item, unless one for texts of its kind is open."""
        last = self._output[-1] if self._output else {}
        if last.get("status") == "in_progress" and last["type"] == kind:
            return ""
        closed = self._close()
        item_id = f"{_IDS[kind]}_{self._reply_id}{len(self._output):02}"
        self._output.append({"id": item_id, "type": kind, "status": "in_progress"} | fields)
        begun = self._event("response.output_item.added", **self._place, item=self._output[-1])
        if kind not in _TEXTS:
            return closed + begun
        part: dict[str, Any] = {"type": _TEXTS[kind], "text": ""}
        if kind == "message":
            part |= {"annotations": [], "logprobs": []}
        self._output[-1]["content"] = [part]
        return closed + begun + self._part_event("response.content_part.added", part=part)

    def _add(self, text: str, likely: Sequence[dict[str, Any]] = ()) -> str:
        """Add text to the open item."""
        part = self._output[-1]["content"][0]
        part["text"] += text
        logged = {"logprobs": likely} if "logprobs" in part else {}
        if logged:
            part["logprobs"] += likely
        return self._part_event(f"response.{part['type']}.delta", delta=text, **logged)

    def _close(self, status: str = "completed") -> str:
        """End the open item, if one is."""
        item = self._output[-1] if self._output else {}
        if item.get("status") != "in_progress":
            return ""
        text = ""
        if item["type"] in _TEXTS:
            part = item["content"][0]
            logged = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            text += self._part_event(f"response.{part['type']}.done", text=part["text"], **logged)
            text += self._part_event("response.content_part.done", part=part)
        item["status"] = status
        return text + self._event("response.output_item.done", **self._place, item=item)

    @property
    def _place(self) -> dict[str, int]:
        return {"output_index": len(self._output) - 1}

    def _item_event(self, kind: str, **fields: Any) -> str:
        return self._event(kind, item_id=self._output[-1]["id"], **self._place, **fields)

    def _part_event(self, kind: str, **fields: Any) -> str:
        return self._item_event(kind, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> str:
        return event({"type": kind, "sequence_number": next(self._numbers)} | fields, kind)

    def _response(self, **fields: Any) -> dict[str, Any]:
        empty = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        return self._head | empty | {"output": self._output} | fields


class Responses(OpenAIInterface):
    """Reads requests and writes responses of `/v1/responses`; see `Interface`."""

    format = ResponseFormat

    def read(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read`."""
        common = read_common(fields, "stop", *SAMPLING)
        why = "rdchat stores no responses; send the whole conversation as `input`."
        fields.refuse(why, "previous_response_id", "conversation")
        fields.refuse("rdchat answers at once.", "background")
        fields.refuse("rdchat has no stored prompts; send the text.", "prompt")
        if fields.flag("store"):
            fields.ignored.append("store")
        reasoning, text = fields.part("reasoning") or Fields({}), fields.part("text") or Fields({})
        limit = reasoning.whole_number("max_tokens", 0, MAX_TOKENS)
        if limit is not None:
            common["thinking_tokens"] = limit
        tools = read_tools(fields)
        repeated = {name: fields.take(name, usual) for name, usual in _REPEATED.items()}
        for name in ("reasoning", "text"):
            repeated[name] = _REPEATED[name] | repeated[name]
        listed = [{"type": "function", "strict": bool(each.get("strict"))} | each["function"] for each in tools]
        return ReplyRequest(
            prompts=(Prompt(tuple(_read_conversation(fields))),),
            one_call=not fields.flag("parallel_tool_calls", default=True),
            top_log_probs=_read_log_probs(fields),
            effort=read_thinking(fields, read_effort(reasoning, "effort")),
            **read_answer(tools, repeated["tool_choice"], read_shape(text.part("format"))),
            **common,
            repeated=repeated | {"tools": listed},
            ignored=fields.unread(),
        )


def _read_log_probs(fields: Fields) -> int | None:
    top, included = fields.whole_number("top_logprobs", 0, MAX_LOG_PROBS), fields.items("include")
    fields.ignored += [f"include.{each}" for each in included if each != _LOG_PROBS]
    return top or 0 if top or _LOG_PROBS in included else None


def _read_conversation(fields: Fields) -> Iterator[ChatMessage]:
    """Yield the instructions, and the messages of `input`; neighbouring items of the assistant are one message."""
    if instructions := fields.text("instructions", ""):
        yield ChatMessage(Role.SYSTEM, instructions)
    given = fields.take("input")
    items = [] if isinstance(given, str) else fields.inners("input")
    if given is None or given == []:
        raise wrong("input", "`input` must be a text, or a list with at least one item.")
    if isinstance(given, str):
        yield ChatMessage(Role.USER, given)
    messages = (_read_item(item, fields, last=item is items[-1]) for item in items)
    for is_reply, group in groupby(filter(None, messages), lambda message: message.role is Role.ASSISTANT):
        neighbours = list(group)
        yield from _joined(neighbours, fields.ignored) if is_reply else neighbours


def _joined(reply: Sequence[ChatMessage], ignored: list[str]) -> Iterator[ChatMessage]:
    """Yield the items of a reply as one message; thoughts alone are none, and count as ignored."""
    content = "\n".join(each.content for each in reply if each.content)
    calls = tuple(call for each in reply for call in each.tool_calls)
    thought = "\n".join(each.thought for each in reply if each.thought)
    if content or calls:
        yield ChatMessage(Role.ASSISTANT, content, tool_calls=calls, thought=thought)
    elif thought:
        ignored.append("input.reasoning")


def _read_item(item: Fields, fields: Fields, *, last: bool) -> ChatMessage | None:
    """Return an item of `input` as a message; None for one of OpenAI's own tools, which counts as ignored."""
    kind = item.text("type", "message")
    for name in ("id", "status"):
        item.take(name)
    match kind:
        case "message":
            return read_message(item, last=last)
        # Calls of a client's own tools, such as Codex's patches and its shell, whatever their type is called.
        case _ if kind.endswith("_call") and item.take("call_id") is not None:
            text = json.dumps({"input": item.text("input")}) if item.take("input") is not None else None
            given = text or arguments_of(item.take("arguments") or item.take("action"))
            name = item.text("namespace", "") + item.text("name", kind.removesuffix("_call"))
            return ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall(name, given, item.text("call_id")),))
        case _ if kind.endswith("_call_output"):
            result = text_of(item.take("output", ""), item.name("output"), strict=False)
            return ChatMessage(Role.TOOL, result, tool_call_id=item.text("call_id", ""), name=item.text("name", ""))
        case "reasoning":
            parts = item.items("content") or item.items("summary")
            return ChatMessage(Role.ASSISTANT, "", thought=text_of(parts, item.name("content"), strict=False))
        case "item_reference":
            raise unsupported(item.name("type"), "rdchat stores no items; send the item.")
    fields.ignored.append(f"input.{kind}")
    return None


def _usage(choice: Choice) -> dict[str, Any]:
    """Return the counters of a response."""
    one, written = choice.last.statistics, len(choice.last.token_ids)
    return {
        "input_tokens": one.prompt_tokens,
        "input_tokens_details": {"cached_tokens": one.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": choice.thought_tokens},
        "total_tokens": one.prompt_tokens + written,
        "rdchat": drafting_usage([choice]),
    }
