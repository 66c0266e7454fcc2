"""Anthropic's `/v1/messages`, and `/v1/messages/count_tokens`, which takes the same requests."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rdchat.inference.api import ChatMessage, FinishReason, PrefillProgress, Role, ToolCall
from rdchat.server.interfaces.chat_messages import (
    arguments_of,
    is_foreign,
    joined_parts,
    message_of,
    part_text,
    thought_of,
)
from rdchat.server.interfaces.client_tools import read_answer, read_anthropic_tools, read_shape
from rdchat.server.interfaces.fields import ApiError, Fields, check_length, object_of, unsupported, wrong
from rdchat.server.interfaces.interface import event, read_effort
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

_ROLES = ("user", "assistant", "system", "developer")
# Anthropic's types of thinking, as an effort.
_THINKING = {"": "", "enabled": "on", "adaptive": "on", "disabled": "none"}
# Claude Code puts this line, which changes with each request, before the system prompt: no KV cache would fit then.
_BILLING = "x-anthropic-billing-header"
# Clients send a thought back only with a signature; rdchat does not check it.
_SIGNATURE = "rdchat"
# Stands before the result of a call with an error.
_FAILED = "The call failed. "
_STOP_REASONS = {
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTEXT_FULL: "model_context_window_exceeded",
    FinishReason.STOP_STRING: "stop_sequence",
}


class MessageFormat:
    """Writes the one reply to a request.

    A reply is a list of content blocks: a thought, the answer, and one for each call. A stream opens and closes them
    one after another.
    """

    def __init__(self, request: ReplyRequest, model: str, reply_id: str) -> None:
        self._request = request
        self._model = model
        self._reply_id = reply_id
        self._begun = False
        # Type of the open block; empty for none.
        self._open_type = ""
        # Number of blocks so far.
        self._blocks = 0

    def complete(self, choices: Sequence[Choice]) -> dict[str, Any]:
        (choice,) = choices
        blocks: list[dict[str, Any]] = []
        if choice.thought:
            blocks.append({"type": "thinking", "thinking": choice.thought, "signature": _SIGNATURE})
        if choice.answer:
            blocks.append({"type": "text", "text": choice.answer})
        blocks += [
            {"type": "tool_use", "id": call_id, "name": call.name, "input": json.loads(call.arguments)}
            for call_id, call in choice.named_calls(self._reply_id)
        ]
        return self._message(_usage(choice)) | {"content": blocks} | self._stop(choice)

    def begin(self, prompt: PrefillProgress) -> str:
        """Return the events before all text, with the tokens of the prompt; nothing for later progress."""
        if self._begun:
            return ""
        self._begun = True
        message = self._message(_input_usage(prompt.total, prompt.cached) | {"output_tokens": 0})
        return event({"type": "message_start", "message": message}, "message_start")

    def delta(self, delta: Delta) -> str:
        """Return the events for more text."""
        text = ""
        if delta.thought:
            text += self._open_block("thinking", {"thinking": "", "signature": ""})
            text += self._block_delta({"type": "thinking_delta", "thinking": delta.thought})
        if delta.answer:
            text += self._open_block("text", {"text": ""})
            text += self._block_delta({"type": "text_delta", "text": delta.answer})
        return text

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, the tool calls, the counters and why the reply ended."""
        text = self.delta(tail)
        for call_id, call in choice.named_calls(self._reply_id):
            text += self._close_block() + self._open_block("tool_use", {"id": call_id, "name": call.name, "input": {}})
            text += self._block_delta({"type": "input_json_delta", "partial_json": call.arguments})
        last = {"type": "message_delta", "delta": self._stop(choice), "usage": _usage(choice)}
        return text + self._close_block() + event(last, "message_delta")

    def end(self, choices: Sequence[Choice]) -> str:  # noqa: ARG002  the counters are sent already
        """Return the last event."""
        return event({"type": "message_stop"}, "message_stop")

    def fail(self, error: ApiError) -> str:
        """Return the event for a failure."""
        return event(error.anthropic(), "error")

    def _open_block(self, kind: str, fields: dict[str, Any]) -> str:
        """Open a block, unless one of its type is open."""
        if self._open_type == kind:
            return ""
        closed = self._close_block()
        self._open_type = kind
        self._blocks += 1
        start = {"type": "content_block_start", "index": self._blocks - 1, "content_block": {"type": kind} | fields}
        return closed + event(start, "content_block_start")

    def _close_block(self) -> str:
        """Close the open block, if one is; a thought gets its signature before."""
        if not self._open_type:
            return ""
        signed = ""
        if self._open_type == "thinking":
            signed = self._block_delta({"type": "signature_delta", "signature": _SIGNATURE})
        self._open_type = ""
        return signed + event({"type": "content_block_stop", "index": self._blocks - 1}, "content_block_stop")

    def _block_delta(self, delta: dict[str, Any]) -> str:
        return event({"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}, "content_block_delta")

    def _message(self, usage: dict[str, Any]) -> dict[str, Any]:
        head = {"id": f"msg_{self._reply_id}", "type": "message", "role": "assistant", "model": self._model}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}

    def _stop(self, choice: Choice) -> dict[str, Any]:
        """Return why a reply ended, and its token ids if they are requested."""
        reason = _STOP_REASONS.get(choice.finish_reason, "tool_use" if choice.calls else "end_turn")
        sequence = choice.last.stop if reason == "stop_sequence" else None
        return {"stop_reason": reason, "stop_sequence": sequence} | self._request.ids_of(choice)


class Messages:
    """Reads requests and writes replies of `/v1/messages`.

    Args:
        counts: Whether requests ask for the tokens of their prompt alone, so that `max_tokens` may be missing.
    """

    ping = event({"type": "ping"}, "ping")
    format = MessageFormat

    def __init__(self, *, counts: bool = False) -> None:
        self._counts = counts

    def read_request(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read_request`."""
        common = read_common(fields, "stop_sequences", least_tokens=0)
        if fields.raw_value("max_tokens") is None and not self._counts:
            raise wrong("max_tokens", "is missing.")
        fields.refuse("rdchat has no containers, servers or context management.", "container", "mcp_servers")
        prompt = Prompt(tuple(_read_messages(fields)))
        output = fields.part("output_config")
        shape = read_shape(output.part("format"))
        tools = read_anthropic_tools(fields)
        chosen = fields.raw_value("tool_choice", "auto")
        one_call = isinstance(chosen, dict) and Fields(chosen, "tool_choice").flag("disable_parallel_tool_use")
        answer = read_answer(tools, chosen, shape)
        thinking = fields.part("thinking")
        # Empty without `thinking`. Then, and where it is on, an effort says how much to think.
        kind = thinking.read_text("type") if thinking.values else ""
        effort = read_effort(output, "effort")
        if kind not in _THINKING:
            raise unsupported("thinking.type", f"give {', '.join(filter(None, _THINKING))}.")
        if kind == "enabled":
            common["thinking_tokens"] = thinking.read_integer("budget_tokens", 0, MAX_TOKENS)
        return ReplyRequest(
            prompts=(prompt,),
            effort=read_thinking(fields, effort if effort and kind != "disabled" else _THINKING[kind]),
            show_thoughts=_THINKING[kind] == "on",
            one_call=one_call,
            **answer,
            **common,
            ignored=fields.unread(),
        )


def _read_messages(fields: Fields) -> Iterator[ChatMessage]:
    """Yield the system prompt and the messages; a message of the user with results of tools becomes several."""
    system_text = message_of(Role.SYSTEM, fields.raw_value("system", ""), "system", strict=True).content
    if system_text.startswith(f"{_BILLING}:"):
        fields.ignored.append(f"system.{_BILLING}")
        system_text = system_text.partition("\n")[2]
    if system_text:
        yield ChatMessage(Role.SYSTEM, system_text)
    listed = fields.items("messages")
    if not listed:
        raise wrong("messages", "must have at least one message.")
    for at, each in enumerate(listed):
        name = f"messages[{at}]"
        message = Fields(object_of(each, name), name)
        role = message.read_text("role")
        if role not in _ROLES:
            raise wrong(f"{name}.role", f"must be one of {', '.join(_ROLES)}.")
        content = message.raw_value("content", "")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            raise wrong(f"{name}.content", "must be a text, or a list of blocks.")
        check_length(blocks, f"{name}.content")
        # Not by `fields.inner`: unread fields of messages and blocks are not named to the client.
        inner = [Fields(object_of(block, name), f"{name}.content[{number}]") for number, block in enumerate(blocks)]
        if role == "assistant":
            yield _assistant_message(inner, fields.ignored)
        else:
            yield from _user_messages(inner, Role.USER if role == "user" else Role.SYSTEM, strict=at == len(listed) - 1)


def _user_messages(blocks: Sequence[Fields], role: Role, *, strict: bool) -> Iterator[ChatMessage]:
    """Yield a message for each result of a tool, then one for all other blocks; for `strict` see `chat_messages`."""
    parts = list[tuple[str, Any]]()
    for block in blocks:
        if block.read_text("type") == "tool_result":
            content = block.raw_value("content", "")
            result = message_of(Role.TOOL, content, block.field_name("content"), strict=False)
            if block.flag("is_error"):
                offsets = tuple(len(_FAILED) + at for at in result.image_offsets)
                result = replace(result, content=_FAILED + result.content, image_offsets=offsets)
            yield replace(result, tool_call_id=block.read_text("tool_use_id"))
        else:
            parts.append((block.field_name(""), block.values))
    if parts or not blocks:
        yield joined_parts(role, parts, "messages.content", strict=strict)


def _assistant_message(blocks: Sequence[Fields], ignored: list[str]) -> ChatMessage:
    """Return an assistant's message; blocks of Anthropic's own tools count as ignored."""
    texts = []
    calls = []
    thoughts = []
    for block in blocks:
        match kind := block.read_text("type", "text"):
            case "tool_use":
                calls.append(
                    ToolCall(block.read_text("name"), arguments_of(block.raw_value("input")), block.read_text("id", ""))
                )
            case "thinking":
                thoughts.append(thought_of(block.values))
            case _ if is_foreign(block.values):
                ignored.append(f"messages.content.{kind}")
            case _:
                texts.append(part_text(block.values, block.field_name(""), strict=False))
    return ChatMessage(Role.ASSISTANT, "\n".join(texts), tool_calls=tuple(calls), thought="\n".join(thoughts))


def _usage(choice: Choice) -> dict[str, Any]:
    """Return Anthropic's counters of a reply."""
    statistics = choice.last.statistics
    return _input_usage(statistics.prompt_tokens, statistics.cached_prompt_tokens) | {
        "output_tokens": len(choice.last.token_ids),
        "rdchat": drafting_usage([choice]),
    }


def _input_usage(tokens: int, cached: int) -> dict[str, Any]:
    """Return the counters of a prompt; in Anthropic's API `input_tokens` leaves out those from a KV cache."""
    return {"input_tokens": tokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
