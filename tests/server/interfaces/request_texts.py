"""The texts of a request that a client must not lose."""

import re
from collections.abc import Iterator
from typing import Any

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
