"""Results of calls as they go to the app: text, and images that are images."""

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import mcp_types as types

from rdchat.files.plain_data import json_or_none
from rdchat.tools.result_text import cut_text

_MAX_IMAGES = 8
# A picture as text: base64 that begins as PNG, JPEG, GIF or WebP does, perhaps in lines.
_PICTURE = re.compile(
    r"(?:data:image/[\w.+-]+;base64,)?(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)(?:[A-Za-z0-9+/]|\\+/){40,}"
    r"(?:(?:\\+[nr]|\s)+[A-Za-z0-9+/]{40,})*(?:(?:\\+[nr]|\s)*[A-Za-z0-9+/]{0,75}={1,2})?"
)
_IMAGE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP", re.DOTALL)


def result_fields(result: types.CallToolResult, masked: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the fields of `ToolResult` as JSON; images are in base64. Nothing that is only named is fetched.

    Structured content follows the texts, unless they have all of it. No picture stands in the text.

    Args:
        result: The result.
        masked: Returns a text without the values of the server's secrets.
    """
    images: list[str] = []
    texts = [_text(block, images) for block in result.content]
    structured = result.structured_content
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_unset=True) for block in result.content]
    if structured not in (None, {"content": blocks}, *map(json_or_none, texts)) and not _is_in(structured, texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    text = masked(_PICTURE.sub("[image]", "\n".join(texts)))
    return {"text": cut_text(text), "is_error": result.is_error, "images": images}


def _is_in(value: object, texts: Sequence[str]) -> bool:
    """Return whether a JSON value is made of nothing but strings that stand in texts."""
    if isinstance(value, dict | list):
        return all(_is_in(each, texts) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and any(value in text for text in texts)


def _text(block: types.ContentBlock, images: list[str]) -> str:
    """Return a block's text, or what stands for it; an image is added to `images`."""
    match block:
        case types.TextContent(text=text) | types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case types.ImageContent() if len(images) < _MAX_IMAGES and _is_image(block.data):
            images.append(block.data)
            return f"[image {len(images)}]"
        case types.ResourceLink():
            return f"[a link, which was not followed: {block.name} {block.uri}]"
    return f"[{block.type}, which cannot be shown]"


def _is_image(data: str) -> bool:
    try:
        return _IMAGE.match(base64.b64decode(data, validate=True)) is not None
    except ValueError:
        return False
