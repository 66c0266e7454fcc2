"""The tools that the laws of calls offer."""

from typing import Any

_TYPES: dict[str, Any] = {
    "path": {"type": "string"}, "content": {"type": "string"},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "count": {"type": "integer"}, "share": {"type": "number"}, "deep": {"type": "object"},
    "items": {"type": "array"}, "flag": {"type": "boolean"},
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": _TYPES}}}
    for name in ("write_file", "notes.write-file", "look")
]
