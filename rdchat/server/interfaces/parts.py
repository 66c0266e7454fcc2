"""Texts and images inside the parts of a message. A part with text inside is that text, whatever its type is called."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdchat.server.interfaces.api_error import unsupported, wrong
from rdchat.server.interfaces.fields import check_length, object_of
from rdchat.server.interfaces.images import SentImage, check_number, image_of

_TITLE_CHARACTERS = 200
# Fields that hold no text for the model.
_NO_TEXT = {
    "type", "id", "call_id", "tool_use_id", "role", "status", "index", "signature", "encrypted_content", "media_type",
    "cache_control", "annotations", "logprobs", "detail",
}  # fmt: skip
_TEXTS = {"text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text", "summary"}
_MEDIA = re.compile(r"(?:input_)?(?:image|audio|video|file)(?:_url)?")


def text_of(content: Any, name: str, *, strict: bool) -> str:
    """Return the text of a field that is a text or a list of parts; see `part_text`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(name, f"`{name}` must be a text, or a list of parts.")
    check_length(content, name)
    return "\n".join(part_text(part, f"{name}[{at}]", strict=strict) for at, part in enumerate(content))


def content_of(content: Any, name: str, *, strict: bool) -> tuple[str, tuple[SentImage, ...], tuple[int, ...]]:
    """Return text, images and their offsets, as `in_order`, of a field that is a text or a list of parts."""
    if not isinstance(content, list):
        return text_of(content, name, strict=strict), (), ()
    check_length(content, name)
    return in_order([(f"{name}[{at}]", part) for at, part in enumerate(content)], name, strict=strict)


def in_order(
    parts: Sequence[tuple[str, Any]], name: str, *, strict: bool
) -> tuple[str, tuple[SentImage, ...], tuple[int, ...]]:
    """Return the text and the images of parts, and the offset of each image in the text; none if all stand before it.

    Args:
        parts: Each with its name in errors.
        name: That of all, in errors.
        strict: See `part_text`.
    """
    texts = list[str]()
    images = list[SentImage]()
    offsets = list[int]()
    length = 0
    gap = ""
    for part_name, part in parts:
        image = image_of(part, part_name, strict=strict)
        if image is None:
            texts.append(gap + part_text(part, part_name, strict=strict))
            length += len(texts[-1])
            gap = "\n"
        else:
            images.append(image)
            offsets.append(length)
            gap = ""
    check_number(len(images), name)
    return "".join(texts), tuple(images), tuple(offsets) if any(offsets) else ()


def part_text(given: Any, name: str, *, strict: bool) -> str:
    """Return the text of a part of a message.

    Args:
        given: The part, or a text in its place.
        name: Its name in errors.
        strict: Whether a file, or another part without text, is an error. In an old message and in a tool's result it
            is a placeholder such as `[document]`: it must not block all further turns.
    """
    if isinstance(given, str):
        return given
    part = object_of(given, name)
    kind = part.get("type", "text")
    if not isinstance(kind, str):
        raise wrong(f"{name}.type", f"`{name}.type` must be a text.")
    source = part.get("source")
    has_bytes = _MEDIA.fullmatch(kind) or (isinstance(source, dict) and source.get("type", "text") not in _TEXTS)
    # A title alone says what is not there.
    texts = [] if has_bytes else [*_texts({field: each for field, each in part.items() if field != "title"})]
    title = part.get("title") if isinstance(part.get("title"), str) else ""
    if texts:
        return "\n".join(filter(None, (title, *texts)))
    if kind in _TEXTS and any(isinstance(part.get(each), str | list) for each in ("text", kind)):
        return ""
    if kind == "text":
        raise wrong(f"{name}.text", f"`{name}.text` must be a text.")
    if strict:
        raise unsupported(f"{name}.type", f"rdchat reads texts and images only, and this is {kind[:50]!r}.")
    named = f": {title[:_TITLE_CHARACTERS]}" if title else ""
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:50]}{named}]"


def thought_of(content: Any) -> str:
    """Return the texts of thoughts, as clients send them back in lists and in objects of several forms."""
    return "\n".join(_texts(content))


def is_thought(part: Any) -> bool:
    """Return whether a part of an assistant's message is a thought."""
    return isinstance(part, dict) and part.get("type") in {"thinking", "reasoning"}


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, but for those of fields that hold none."""
    match value:
        case str() if value:
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case Mapping():
            for field, each in value.items():
                # Elsewhere `data` is bytes, as those of a picture or of an encrypted thought.
                if field not in _NO_TEXT and (field != "data" or value.get("type") == "text"):
                    yield from _texts(each)
