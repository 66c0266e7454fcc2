"""Requests in the forms of many clients, written by hand, and the texts that must not be lost of them."""

import re
from collections.abc import Iterator
from typing import Any

_PDF = "data:application/pdf;base64,SECRETAA"
_PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": "what"}}}
_CITATION = {
    "type": "web_search_result_location", "cited_text": "cited", "title": "page", "url": "https://example.com",
    "encrypted_index": "SECRETAA",
}  # fmt: skip
_DOCUMENTS: list[Any] = [
    {"type": "document", "title": "title", "context": "context", "source": {
        "type": "content", "content": [{"type": "text", "text": "inner"}, {"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "SECRETAA"}}]}},
    {"type": "document", "title": "title", "source": {"type": "content", "content": "inner"}},
    {"type": "document", "title": "title", "source": {"type": "text", "media_type": "text/plain", "data": "inner"}},
    {"type": "document", "title": "title", "context": "context", "citations": {"enabled": True}, "source": {
        "type": "base64", "media_type": "application/pdf", "data": "SECRETAA"}},
    {"type": "document", "source": {"type": "file", "file_id": "SECRETAA"}},
    {"type": "document", "source": {"type": "something_new", "words": ["inner"]}},
    {"type": "search_result", "source": "place", "title": "title", "content": [{"type": "text", "text": "inner"}],
     "citations": {"enabled": True}},
]  # fmt: skip

_CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "name": "ann", "content": [
            {"type": "text", "text": "data:image/png;base64,is this right?"},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": _PDF}},
            {"type": "input_audio", "input_audio": {"data": "SECRETAA", "format": "wav"}}, {"image_url": {"url": _PNG}},
            {"file": {"filename": "b.pdf", "file_data": _PDF}}, {"image_url": "https://example.com/x"},
            {"type": "image", "image": "SECRETAA"}, {"type": "something_new", "words": "new"}, *_DOCUMENTS]},
        {"role": "assistant", "annotations": [{"type": "url_citation", "url_citation": {"title": "page"}}], "content": [
            {"type": "text", "text": "answer", "annotations": [{"type": "url_citation", "title": "page"}]},
            {"type": "thinking", "thinking": "thought", "signature": "SECRETAA"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": "given"}}],
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": {"found": ["result"], "count": 2}},
        {"role": "tool", "tool_call_id": "c1", "content": [
            {"key": "result", "url": "place", "id": 7}, 5, "word", {"type": "text", "text": "t"}]},
        {"role": "tool", "tool_call_id": "c1", "content": {"type": "error", "status": "failed", "id": 5}},
        {"role": "tool", "tool_call_id": "c1", "content": {"screen": _PDF, "more": "result"}},
        {"role": "tool", "tool_call_id": "c1", "content": 5},
        {"role": "user", "content": "last"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "looks", "parameters": _SCHEMA}},
        {"type": "function", "function": {"name": "odd", "description": "odd", "parameters": ["what"]}},
        {"type": "function", "function": "odd"},
        {"type": "function", "function": {"name": 5, "description": "odd"}},
    ],
}  # fmt: skip
_MESSAGES: dict[str, Any] = {
    "max_tokens": 9,
    "system": [{"type": "text", "text": "be brief"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "question"}, {
            "type": "container_upload", "file_id": "SECRETAA"}, *_DOCUMENTS]},
        {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "SECRETAA"},
            {"type": "mcp_tool_use", "id": "m", "name": "map", "server_name": "maps", "input": {"a": "given"}},
            {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "result"}]},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "given"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{
                "type": "web_search_result", "title": "page", "encrypted_content": "SECRETAA"}]},
            {"type": "text", "text": "answer", "citations": [_CITATION]},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": "given"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [
                {"type": "link", "url": "place"}, {"type": "text", "text": "result"}, *_DOCUMENTS]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": {"found": "result"}}]},
        {"role": "user", "content": "last"},
    ],
    "tools": [
        {"name": "look", "description": "looks", "input_schema": _SCHEMA},
        {"name": "odd", "description": "odd", "input_schema": "what"},
        {"description": "odd", "input_schema": _SCHEMA},
    ],
}  # fmt: skip
_RESPONSES: dict[str, Any] = {
    "instructions": "be brief",
    "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "question"},
            {"type": "input_file", "filename": "a.pdf", "file_data": _PDF}]},
        {"type": "reasoning", "encrypted_content": "SECRETAA",
         "summary": [{"type": "summary_text", "text": "thought"}]},
        {"type": "mcp_call", "id": "m", "name": "map", "server_label": "maps", "arguments": "{}", "output": "result"},
        {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "given"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "answer", "annotations": [
            {"type": "url_citation", "title": "page", "url": "https://example.com"}]}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": {"found": {"deep": ["result"]}}},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": 5},
        {"type": "function_call", "call_id": "c3", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c3", "output": [{"key": "result"}, *_DOCUMENTS]},
        {"type": "computer_call", "call_id": "c4", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c4", "output": {"type": "computer_screenshot", "image_url": _PNG}},
        {"role": "user", "content": "last"},
    ],
    "tools": [
        {"type": "function", "name": "look", "description": "looks", "parameters": _SCHEMA},
        {"type": "namespace", "name": "more", "description": "about", "tools": [
            {"type": "function", "name": "see", "description": "sees", "parameters": _SCHEMA},
            {"type": "function", "name": "odd", "description": "odd", "parameters": "what"}]},
        {"type": "function", "name": "odd", "description": "odd", "parameters": [1]},
        {"type": "custom", "description": "odd"},
    ],
}  # fmt: skip
REQUESTS = {"chat": _CHAT, "messages": _MESSAGES, "responses": _RESPONSES}
SECRET = "SECRETAA"
"""Stands where no word does: in bytes, in addresses and in what is sealed."""
IMAGES = {"chat": 1, "messages": 0, "responses": 1}
"""Number of images that the model may see."""


# Texts that are words of the protocol, ids or bytes.
_NO_TEXT = {
    "type", "role", "id", "call_id", "tool_use_id", "tool_call_id", "signature", "media_type", "model", "status",
    "mode", "syntax", "data", "url", "encrypted_content", "encrypted_index", "file_id", "file_data", "image_url",
    "image", "format",
}  # fmt: skip


def texts_of(value: Any, names: frozenset[str] = frozenset(), path: str = "") -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the texts of a body, each with the names by which a client may be told that it is left out."""
    match value:
        case str():
            yield from ((text, names | {path}) for text in re.findall(r"text-\d+-", value))
        case list():
            for each in value:
                yield from texts_of(each, names, path)
        case dict():
            own = names | {path} | {f"{path}.{value[key]}" for key in ("type", "name") if key in value}
            # A function is named as its tool.
            own |= {name.replace(".function.", ".") for name in own}
            for key, each in value.items():
                yield from ((text, own | {path}) for text in re.findall(r"text-\d+-", key))
                if key not in _NO_TEXT or not isinstance(each, str) or (key == "data" and value.get("type") == "text"):
                    yield from texts_of(each, own, f"{path}.{key}".lstrip("."))
