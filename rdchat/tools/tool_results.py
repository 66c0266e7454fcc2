"""Converts the result of a tool's call, as its server sent it, into the text and images that the app gets.

A result has parts: texts, images, resources and links. Each is read alone, and one that cannot be shown is named.
"""

import base64
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rdchat.files import BMP, GIF, JPEG, PNG, WEBP, as_text, format_of, json_or_none
from rdchat.tools.definitions import MAX_TEXT, cut_text

_MAX_IMAGES = 8
# Each part gives a character and a line break at least, so the text of more parts would be cut anyway.
_MAX_PARTS = 2 * MAX_TEXT
# Fields of a result in the present protocol; others are content where a server speaks an older one.
_PROTOCOL_FIELDS = {"content", "structuredContent", "isError", "_meta"}
# Structured content with more strings is not compared with the text: it takes long, and all servers wait.
_MAX_LOOKED_FOR = 1_000
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

    Structured content follows the texts, unless they have all of it: if it is only the content again, if one of the
    texts is the same as JSON, or if all its values are strings that stand in the texts. A result with neither is an
    older protocol's: its other fields are the structured content. A picture inside a text is replaced by a note.

    Args:
        result: The result as the server sent it.
        masked: Returns a text without the values of the server's secrets.
    """
    content = result.get("content")
    structured = result.get("structuredContent")
    parts = content if isinstance(content, list) else [content] if content else []
    images: list[str] = []
    texts = [_part_text(part, images) for part in parts[:_MAX_PARTS]]
    if not parts and structured is None:
        structured = {name: value for name, value in result.items() if name not in _PROTOCOL_FIELDS} or None
    text = "\n".join(texts)
    if structured is not None and structured not in ({"content": content}, *map(json_or_none, texts)):
        written = as_text(structured)
        # Where the comparison would take long, it is left out: a text over the limit is cut anyway, and there may be
        # too many strings. A string has two quotes.
        is_long = max(len(text), len(written)) > MAX_TEXT or written.count('"') > 2 * _MAX_LOOKED_FOR
        if is_long or not _is_in(structured, text):
            text = "\n".join([*texts, written])
    text = masked(_PICTURE.sub("[image]", text))
    return {"text": cut_text(text), "is_error": result.get("isError") is True, "images": images}


def _is_in(value: object, text: str) -> bool:
    """Return whether a JSON value is made of nothing but strings that stand in a text."""
    if isinstance(value, dict | list):
        return all(_is_in(each, text) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and value in text


def _part_text(part: Any, images: list[str]) -> str:
    """Return the text of a part, or what stands for it; an image is added to `images`.

    An image that cannot be added is named by its type, as are parts of an unknown type.
    """
    match part:
        case {"type": "resource", "resource": dict(resource)}:
            return _resource_text(resource, images)
        case {"type": "image", "data": str(data)} if _add_image(_decoded(data), images):
            return f"[image {len(images)}]"
        case {"type": "resource_link"}:
            return f"[a link, which was not followed: {_label(part)}]"
        case str(written) | {"text": written} if written is not None:
            return as_text(written)
        case {"type": str(kind)}:
            return f"[{kind}, which cannot be shown]"
    return "[a part that is not valid]"


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
    if text is None:
        return f"[resource, which cannot be shown: {label}]"
    return f"[resource: {label}]\n{as_text(text)}"


def _label(fields: Mapping[str, Any]) -> str:
    """Return what a resource says of itself."""
    names = ("name", "title", "uri", "description", "mimeType")
    return ", ".join(str(fields[name]) for name in names if fields.get(name))


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
