"""Results of calls as they go to the app: text, and images that are images."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import mcp_types as types

from rdchat.tools.definitions import cut_text

_MAX_IMAGES = 8
_IMAGE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP", re.DOTALL)


def result_fields(result: types.CallToolResult, masked: Callable[[str], str]) -> dict[str, Any]:
    """Return the fields of `ToolResult` as JSON; images are in base64. Nothing that is only named is fetched.

    Structured content is used where there is no text; most servers give both.

    Args:
        result: The result.
        masked: Returns a text without the values of the server's secrets.
    """
    images: list[str] = []
    texts = [_text(block, images) for block in result.content]
    if result.structured_content is not None and not any(
        isinstance(each, types.TextContent) for each in result.content
    ):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return {"text": cut_text(masked("\n".join(texts))), "is_error": result.is_error, "images": images}


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
