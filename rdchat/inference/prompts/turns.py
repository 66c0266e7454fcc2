"""The messages of a conversation as chat templates take them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from rdchat.inference.api.messages import ChatMessage, Role, ToolCall, join_neighbours

THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message in which chat templates look for its thought."""

Mark = Callable[[str, Sequence[int]], str]
"""Marks words in a text that look like control tokens, except those at some offsets, as plain text."""


def texts_of(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """Yield all texts of messages that a template may write."""
    for message in messages:
        yield from (message.content, message.name, message.tool_call_id, message.thought)
        for call in message.tool_calls:
            yield from (call.name, call.arguments, call.call_id)


def turn_of(message: ChatMessage, mark: Mark, *, as_text: bool = False) -> dict[str, Any]:
    """Return a message for a template.

    Args:
        message: The message.
        mark: Applied to all its texts.
        as_text: Whether the arguments of calls are JSON text: most templates take objects, as in mlx-lm's server, and
            DeepSeek's takes text.
    """
    turn: dict[str, Any] = {"role": message.role.value, "content": mark(message.content, message.own_control)}
    if message.tool_calls:
        turn["tool_calls"] = [marked(_call(call, as_text), mark) for call in message.tool_calls]
    named = {"name": message.name, "tool_call_id": message.tool_call_id} | dict.fromkeys(
        THOUGHT_FIELDS, message.thought
    )
    return turn | {key: mark(value, ()) for key, value in named.items() if value}


def _call(call: ToolCall, as_text: bool) -> dict[str, Any]:
    arguments = call.arguments if as_text else json.loads(call.arguments)
    return {"type": "function", "id": call.call_id, "function": {"name": call.name, "arguments": arguments}}


def marked(value: Any, mark: Mark) -> Any:
    """Return a JSON value with `mark` applied to all its texts."""
    match value:
        case str():
            return mark(value, ())
        case list():
            return [marked(each, mark) for each in value]
        case dict():
            return {mark(key, ()): marked(each, mark) for key, each in value.items()}
    return value


def answers_only(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Remove thoughts; where a message had nothing else, join its neighbours, as templates expect."""
    answers = [message if message.answer is None else _answer(message, message.answer) for message in messages]
    return join_neighbours(each for each in answers if _has_text(each))


def _has_text(message: ChatMessage) -> bool:
    return bool(message.content.strip() or message.tool_calls) or message.role is Role.TOOL


def _answer(message: ChatMessage, spans: Sequence[tuple[int, int]]) -> ChatMessage:
    """Return the message with only the text at `spans`, without leading blanks."""
    text = "".join(message.content[start:end] for start, end in spans)
    blank = len(text) - len(text.lstrip())
    starts = accumulate((end - start for start, end in spans), initial=-blank)
    own = tuple(
        at + offset - start
        for at, (start, end) in zip(starts, spans, strict=False)
        for offset in message.own_control
        if start <= offset < end
    )
    return replace(message, content=text[blank:], own_control=own, answer=None)
