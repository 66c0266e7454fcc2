"""JSON-RPC messages of servers of tools. Only what rdchat reads of a message is judged."""

from contextlib import suppress
from typing import Any

import mcp_types as types
from pydantic_core import from_json

from rdchat.files.plain_data import as_text

_MARK = b"\xef\xbb\xbf"
_MAX_MESSAGES = 1_000
# Each takes some hundred bytes of memory, however short it is.
_MAX_NESTED = 1_000_000


def parse_messages(text: bytes) -> list[types.JSONRPCMessage]:
    """Return the messages in a line or a body, which may be a list; empty if it is no JSON, has none, or too much.

    rdchat reads no error's code, so a server's own error has 0: other codes are those of the SDK.
    """
    if text.count(b"{") + text.count(b"[") > _MAX_NESTED:
        return []
    with suppress(ValueError):
        data = from_json(text.removeprefix(_MARK))
        parts = data if isinstance(data, list) else [data]
        if len(parts) > _MAX_MESSAGES:
            return []
        found = [_message(part) for part in parts if isinstance(part, dict)]
        return [message for message in found if message is not None]
    return []


def _message(data: dict[str, Any]) -> types.JSONRPCMessage | None:
    number = data["id"] if type(data.get("id")) in {int, str} else None
    if isinstance(method := data.get("method"), str):
        if number is None:
            return types.JSONRPCNotification(jsonrpc="2.0", method=method)
        return types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method)
    if error := data.get("error"):
        fields = error if isinstance(error, dict) else {"data": error}
        return error_answer(number, error_text(fields.get("message"), fields.get("data")))
    if number is None:
        return None
    if "result" not in data:
        return error_answer(number, "")
    result = data["result"]
    fields = result if isinstance(result, dict) else {"structuredContent": result}
    return types.JSONRPCResponse(jsonrpc="2.0", id=number, result=fields)


def error_answer(number: int | str | None, text: str) -> types.JSONRPCError:
    """Return an error as the answer to a request; without a text, the answer is not valid."""
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=0, message=text))


def error_text(*parts: object) -> str:
    """Return what an error says, in its message and in its data."""
    return ": ".join(dict.fromkeys(as_text(part) for part in parts if part))
