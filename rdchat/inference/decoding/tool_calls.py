"""Finds the tool calls in a reply, with the parser that mlx-lm has for the model's chat template."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from rdchat.inference.api.messages import ToolCall

_LOG = logging.getLogger(__name__)

Parse = Callable[[str, list[dict[str, Any]]], Any]
"""Makes a call or a list of calls of the text between two markers and the request's tools, or raises anything."""

Spans = tuple[tuple[int, int], ...]
"""Ranges of a text, in order; ends excluded."""


def find_tool_calls(
    text: str, markers: tuple[str, str], parse: Parse, tools: str, *, answers: Spans, ended: bool
) -> tuple[tuple[ToolCall, ...], Spans]:
    """Return the calls in a reply, and the ranges of its text without them.

    With the markers `<c>` and `</c>`, `So:<c>{"name": "f", "arguments": {}}</c>` is the call `f` and the range of
    `So:`. A call in a thought, one that was cut off, and one that the parser or JSON refuses stay text. Blanks between
    calls are left out.

    Args:
        text: The complete reply.
        markers: See `ModelInfo.tool_markers`.
        parse: mlx-lm's parser.
        tools: JSON list of the request's tools.
        answers: Ranges outside thoughts.
        ended: Whether the model ended the reply itself. Then a call without an end marker is parsed too.
    """
    calls, spans, done = list[ToolCall](), list[tuple[int, int]](), 0
    known = json.loads(tools)
    for start, inside, after in _call_ranges(text, markers, ended):
        if start < done or not any(first <= start < last for first, last in answers):
            continue
        parsed = _parsed(text[start + len(markers[0]) : inside], parse, known)
        if parsed:
            calls += parsed
            spans.append((done, start))
            done = after
    if not calls:
        return (), ((0, len(text)),)
    return tuple(calls), tuple((first, last) for first, last in (*spans, (done, len(text))) if text[first:last].strip())


def _call_ranges(text: str, markers: tuple[str, str], ended: bool) -> Iterator[tuple[int, int, int]]:
    """Yield where each call may begin, where its end marker begins, and where that ends."""
    opening, closing = markers
    start = text.find(opening)
    while start >= 0:
        inside = start + len(opening)
        end = text.find(closing, inside) if closing else -1
        if end >= 0:
            yield start, end, end + len(closing)
        elif ended:
            yield start, len(text), len(text)
        start = text.find(opening, inside)


def _parsed(text: str, parse: Parse, tools: list[dict[str, Any]]) -> list[ToolCall]:
    """Return the calls in a text between two markers; empty where it cannot be parsed."""
    try:
        data = parse(text, tools)
        return [_call(each) for each in (data if isinstance(data, list) else [data])]
    except Exception as error:
        # A model may write anything; its text does not belong in the log.
        _LOG.info("A tool call stays text: %s", type(error).__name__)
    return []


def _call(data: dict[str, Any]) -> ToolCall:
    name, arguments = data["name"], data["arguments"]
    if not isinstance(name, str) or not name:
        raise ValueError("no name")
    as_json = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    return ToolCall(name, as_json, str(data.get("id") or ""))
