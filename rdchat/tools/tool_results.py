"""Converts the result of a tool's call, as its server sent it, into the text and images that the app gets.

A result has parts: texts, images, resources and links. Each is read alone, and one that cannot be shown is named.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rdchat.files import BMP, GIF, JPEG, PNG, WEBP, as_text, format_of, json_or_none
from rdchat.tools.definitions import MAX_TEXT, cut_text

_MAX_IMAGES = 8
# Each part gives a character and a line break at least, so the text of more parts would be cut anyway.
_MAX_PARTS = 2 * MAX_TEXT
# Fields of a result in the protocol; others are content, as where a server speaks an older one.
_PROTOCOL_FIELDS = {"content", "structuredContent", "isError", "_meta", "resultType"}
# What a resource or a link says of itself.
_LABEL = ("name", "title", "uri", "description", "mimeType")
# Fields of each type of part in the protocol, and of an embedded resource; others are a server's own.
_COMMON = {"type", "annotations", "_meta"}
_FILE = {"data", "mimeType"}
_PART_FIELDS: dict[str, set[str]] = {
    "text": {"text"}, "image": _FILE, "audio": _FILE, "resource": {"resource"},
    "resource_link": {*_LABEL, "size", "icons"},
}  # fmt: skip
_RESOURCE_FIELDS = {*_LABEL, "text", "blob", "size", "icons"}
# A picture inside a text: base64 that begins as PNG, JPEG, GIF or WebP does, perhaps in lines. The text may be JSON
# within JSON, so that any number of backslashes stands before a `/`, and before the `n` or `r` of a line's end. The
# possessive `++` and `*+` never backtrack: remembering each way back takes forty times the memory of the text.
_PICTURE = re.compile(
    r"(?:data:image/[\w.+-]{1,40}+;base64,)?(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)(?:[A-Za-z0-9+/]|\\++/){40}"
    r"(?:[A-Za-z0-9+/]++|\\++/)*+(?:(?:\\++[nr]|\s)++[A-Za-z0-9+/]{40,}+)*+"
    r"(?:(?:\\++[nr]|\s)*+[A-Za-z0-9+/]{0,75}={1,2})?"
)
_IMAGE_FORMATS = {PNG, JPEG, GIF, WEBP, BMP}


def result_fields(result: Mapping[str, Any], masked: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the fields of `ToolResult` as JSON, with images in base64. Links are named, not fetched.

    Structured content and fields that the protocol does not have follow the texts, as JSON. Structured content is left
    out only where `_is_repeated`. A picture inside a text is replaced by a note.

    Args:
        result: The result as the server sent it.
        masked: Returns a text without the values of the server's secrets.
    """
    content = result.get("content")
    structured = result.get("structuredContent")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    images: list[str] = []
    texts = [_part_text(part, images) for part in parts[:_MAX_PARTS]]
    if structured is not None and not _is_repeated(structured, content, texts):
        texts.append(as_text(structured))
    text = masked(_PICTURE.sub("[image]", _with_own("\n".join(texts), result, _PROTOCOL_FIELDS)))
    return {"text": cut_text(text), "is_error": result.get("isError") is True, "images": images}


def _is_repeated(structured: object, content: object, texts: list[str]) -> bool:
    """Return whether structured content says again what a result's content says, and no more.

    It is one of the texts, read as JSON; or it wraps one of them or the whole content under a name that says nothing:
    `result`, which FastMCP writes, or `content`, as the protocol's own server of files does. No words are compared: a
    text may have all values of a record, and not say which is which.
    """
    values = [structured]
    match structured:
        case {"result": wrapped, **more} | {"content": wrapped, **more} if not more:
            values.append(wrapped)
    # A text that is no JSON reads as null.
    known = [content, *texts, *filter(lambda value: value is not None, map(json_or_none, texts))]
    return any(_are_same(value, each) for value in values for each in known)


def _are_same(value: object, other: object) -> bool:
    """Return whether two values are the same JSON; to Python alone, 1 is true."""
    return value == other and json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _part_text(part: Any, images: list[str]) -> str:
    """Return the text of a part, or what stands for it; an image is added to `images`.

    A part that cannot be shown is named by its type. One of no type of the protocol is written out.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _PART_FIELDS:
        return as_text(part)
    shown = f"[{kind}, which cannot be shown]"
    match part:
        case {"type": "resource", "resource": dict(resource)}:
            shown = _resource_text(resource, images)
        case {"type": "image", "data": str(data)} if _add_image(_decoded(data), images):
            shown = f"[image {len(images)}]"
        case {"type": "resource_link"}:
            shown = f"[a link, which was not followed: {_label(part)}]"
        case {"type": "text", "text": written} if written is not None:
            shown = as_text(written)
    return _with_own(shown, part, _COMMON | _PART_FIELDS[kind])


def _with_own(shown: str, fields: Mapping[str, Any], known: set[str]) -> str:
    """Return what is shown of some fields, and the JSON of those that are a server's own."""
    own = {name: value for name, value in fields.items() if name not in known}
    return "\n".join(filter(None, (shown, as_text(own) if own else "")))


def _resource_text(resource: Mapping[str, Any], images: list[str]) -> str:
    """Return an embedded resource's name and its text, or what stands for it.

    Its `text` counts, else its `blob`: as an image, or as a text in UTF-8.
    """
    label = _label(resource)
    blob = resource.get("blob")
    text = resource.get("text")
    data = _decoded(blob) if isinstance(blob, str) and text is None else b""
    if _add_image(data, images):
        text = f"[image {len(images)}]"
    # Whatever kind its server names: what is UTF-8 is a text, and nearly nothing else is.
    elif data and b"\0" not in data:
        with suppress(UnicodeDecodeError):
            text = data.decode("utf-8-sig")
    shown = f"[resource, which cannot be shown: {label}]" if text is None else f"[resource: {label}]\n{as_text(text)}"
    return _with_own(shown, resource, _COMMON | _RESOURCE_FIELDS)


def _label(fields: Mapping[str, Any]) -> str:
    """Return what a resource says of itself."""
    return ", ".join(str(fields[name]) for name in _LABEL if fields.get(name))


def _decoded(text: str) -> bytes:
    """Return the data of base64, which may stand in lines or in a data address; empty if it is not valid."""
    try:
        return base64.b64decode("".join(text.rpartition(",")[2].split()), validate=True)
    except ValueError:
        return b""


def _add_image(data: bytes, images: list[str]) -> bool:
    """Add an image that can be shown; return whether it is one."""
    if len(images) == _MAX_IMAGES or format_of(data) not in _IMAGE_FORMATS:
        return False
    images.append(base64.b64encode(data).decode())
    return True
