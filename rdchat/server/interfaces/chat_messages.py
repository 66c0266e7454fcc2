"""Reads OpenAI's messages, and the parts (texts, images, files) of the messages of all APIs.

Clients have many types of parts. A part with text inside is that text, whatever its type is called, so that no word of
a request is lost. Images must be in the request itself: nothing is fetched.

`strict` is true for the last message, and false for earlier ones and for results of tools. What cannot be read is an
error in the first case and a placeholder in the second, because an earlier message is sent again with each request and
would block the conversation for ever.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rdchat.inference.api import MAX_MESSAGE_IMAGES, ChatImage, ChatMessage, ImageCap, Role, ToolCall, parsed_json
from rdchat.server.interfaces.fields import (
    ApiError,
    Fields,
    check_length,
    object_of,
    unsupported,
    without_numbers,
    wrong,
)

_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL} | {role.value: role for role in Role}
# Types of parts that are images.
_IMAGE_TYPES = ("image", "image_url", "input_image")
# OpenAI's `detail` of an image, as a limit of its tokens.
_DETAILS = {"low": ImageCap.SMALL, "auto": ImageCap.MEDIUM, "high": ImageCap.FULL, "original": ImageCap.FULL}
# Models see the images in messages of these roles.
_SEEN = (Role.USER, Role.TOOL)
# Fields with the sources of a text, which are not words of it; see `notes_in`.
_NOTES = ("annotations", "citations")
# Fields that hold no text for the model.
_NO_TEXT = {
    "type", "id", "call_id", "tool_use_id", "role", "status", "index", "signature", "encrypted_content", "media_type",
    "cache_control", "logprobs", "detail", "encrypted_index", "file_id", *_NOTES,
}  # fmt: skip
# Fields of a file whose text is its bytes, or says where they are.
_BYTES = re.compile(r"image|audio|video|file|format|(?:file_)?(?:data|id|url)|image_url")
_BASE64 = ";base64,"
# The head of a data address, such as `data:image/png;base64,`, ends within so many characters.
_HEAD = 200
# Types of parts that are texts; the text may stand in a field with the name of the type.
_TEXTS = {"text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text", "summary"}
# Types of parts, and types of their `source`, that are files.
_MEDIA = re.compile(r"(?:input_)?(?:image|audio|video|file)(?:_url)?")
_FILES = ("base64", "url", "file")
# The parts that a tool's result may have, as the APIs document them: the fields of each type, and of the objects in
# them. Other JSON is the tool's own.
_ANY_PART = {"type", "cache_control"}
_IMAGE_FIELDS = {"image_url", "source", "data", "mimeType", "detail", "file_id"}
_RESULT_PARTS: dict[str, set[str]] = {
    "text": {"text", *_NOTES}, "input_text": {"text"}, "output_text": {"text", *_NOTES},
    "image": _IMAGE_FIELDS, "image_url": _IMAGE_FIELDS, "input_image": _IMAGE_FIELDS,
    "input_file": {"filename", "file_data", "file_id", "file_url", "detail"},
    "document": {"source", "title", "context", "citations"},
    "search_result": {"source", "title", "content", "citations"},
    "tool_reference": {"tool_name"},
}  # fmt: skip
_INNER_FIELDS = {
    "image_url": {"url", "detail"}, "citations": {"enabled"},
    "source": {"type", "media_type", "data", "url", "file_id", "content"},
}  # fmt: skip
# A data address as a text of its own in JSON.
_DATA_ADDRESS = re.compile(r'"data:([\w.+/-]{1,100}+)(?:;[\w=.-]{1,100}+)?;base64,(?:[\w+/=-]|\\[nr])*+"')


@dataclass(frozen=True, slots=True)
class SentImage(ChatImage):
    """An image as a client sent it; its path and its size are known once it is stored.

    Attributes:
        data: The file.
        cap: How many tokens it may take.
        kind: The type of its part.
        strict: Whether it is an error if it cannot be read; see the module.
    """

    data: bytes = field(default=b"", repr=False)
    cap: ImageCap = ImageCap.MEDIUM
    kind: str = ""
    strict: bool = True

    @property
    def field(self) -> str:
        """Its name among the fields without an effect, such as `messages.content.image_url`."""
        return f"{without_numbers(self.name)}.{self.kind}"


def image_of(part: Any, name: str, *, strict: bool) -> SentImage | None:
    """Return the image of a part of a message; None for another part.

    Args:
        part: The part.
        name: Its name in errors.
        strict: Whether an image that is not in the request is an error; otherwise the result is None.
    """
    kind = _kind_of(part)
    if kind not in _IMAGE_TYPES:
        return None
    try:
        return SentImage(Path(), "", 0, 0, name, _data_of(part, name), _cap_of(part, name), kind, strict)
    except ApiError:
        if strict:
            raise
    return None


def _kind_of(part: Any) -> str:
    """Return the type of a part; empty for what is no object."""
    if not isinstance(part, dict):
        return ""
    kind = str(part.get("type"))
    # Some clients send nothing but an `image_url`, whatever the type is called.
    is_image = part.keys() - {"type", "detail", "file_id"} == {"image_url"}
    return "image_url" if is_image and kind not in _IMAGE_TYPES else kind


def _data_of(part: Mapping[str, Any], name: str) -> bytes:
    """Return the bytes of an image, in OpenAI's forms or Anthropic's."""
    match part:
        case {"image_url": {"url": str(given)} | str(given)} | {"source": {"type": "url", "url": str(given)}}:
            head, _, text = given.partition(",")
            if not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
                why = "rdchat fetches nothing; send the image itself, as `data:image/png;base64,...`."
                raise unsupported(name, why)
        case {"source": {"data": str(text)}} | {"data": str(text)}:
            pass
        case _:
            raise unsupported(name, "send the image itself, in base64.")
    try:
        data = b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise wrong(name, "is not valid base64.") from error
    if not data:
        raise wrong(name, "is empty.")
    return data


def _cap_of(part: Mapping[str, Any], name: str) -> ImageCap:
    inner = part.get("image_url")
    given = (inner if isinstance(inner, dict) else part).get("detail") or "auto"
    cap = _DETAILS.get(str(given))
    if cap is None:
        raise wrong(f"{name}.detail", f"must be one of {', '.join(_DETAILS)}.")
    return cap


def message_of(role: Role, content: Any, name: str, *, strict: bool) -> ChatMessage:
    """Return a message whose content is a text, a part, or a list of parts; see `joined_parts`.

    Other JSON is an error if `strict`, and otherwise written out as a text; so is a tool's result without any part.
    """
    if isinstance(content, str):
        return ChatMessage(role, content)
    if role is Role.TOOL:
        listed = content if isinstance(content, list) else [content]
        if listed and not any(_is_result_part(each) or _kind_of(each) in _IMAGE_TYPES for each in listed):
            return ChatMessage(role, _json_text(content))
        content = listed
    elif isinstance(content, dict) and not content.keys().isdisjoint(("text", "image_url")):
        content = [content]
    if isinstance(content, list):
        check_length(content, name)
        return joined_parts(role, [(f"{name}[{at}]", part) for at, part in enumerate(content)], name, strict=strict)
    if strict:
        raise wrong(name, "must be a text, or a list of parts.")
    return ChatMessage(role, _json_text(content))


def _json_text(value: object) -> str:
    """Return JSON that is no part of a message, with the types of files in place of their bytes."""
    return _DATA_ADDRESS.sub(r'"[\1]"', json.dumps(value, ensure_ascii=False))


def _is_result_part(given: Any) -> bool:
    """Return whether JSON in a tool's result is a part of a message: of a documented type, without other fields."""
    fields = _RESULT_PARTS.get(_kind_of(given))
    return fields is not None and all(
        name in _ANY_PART or (name in fields and _is_documented(name, value)) for name, value in given.items()
    )


def _is_documented(name: str, value: Any) -> bool:
    """Return whether a field of a part of a tool's result has a value as an API documents it."""
    match value:
        case dict():
            inner = _INNER_FIELDS.get(name, set())
            return value.keys() <= inner and all(_is_documented(*each) for each in value.items())
        case list():
            return name in _NOTES or (name == "content" and all(map(_is_result_part, value)))
    is_known = name != "type" or value in (*_FILES, "text", "content")
    return is_known and isinstance(value, str | bool | None)


def joined_parts(role: Role, parts: Iterable[tuple[str, Any]], name: str, *, strict: bool) -> ChatMessage:
    """Return the message of some parts: their texts, and the images between them where models see its images.

    Args:
        role: The message's role.
        parts: Each with its name in errors.
        name: That of all, in errors.
        strict: See the module.
    """
    content = ""
    # What stands before the next text: a line feed behind another text, nothing at first and behind an image.
    gap = ""
    images = list[SentImage]()
    offsets = list[int]()
    is_result = role is Role.TOOL
    for part_name, part in parts:
        image = image_of(part, part_name, strict=strict) if role in _SEEN else None
        rest = part
        if image is not None:
            images.append(image)
            offsets.append(len(content))
            gap = ""
            # What else a tool says of its image.
            known = _ANY_PART | _IMAGE_FIELDS
            rest = {field: each for field, each in part.items() if field not in known} if is_result else {}
        if image is None or rest:
            content += gap + part_text(rest, part_name, strict=strict, is_result=is_result)
            gap = "\n"
    if strict and len(images) > MAX_MESSAGE_IMAGES:
        raise wrong(name, f"has {len(images)} images; a message may have {MAX_MESSAGE_IMAGES}.")
    # Images without offsets stand before the text.
    return ChatMessage(role, content, images=tuple(images), image_offsets=tuple(offsets) if any(offsets) else ())


def part_text(given: Any, name: str, *, strict: bool, is_result: bool = False) -> str:
    """Return the text of a part of a message.

    In this order: a text is itself. JSON that is no part is written out. A part gives the texts inside it. A part of a
    text type may be empty. What is left is a file, or a part without text.

    Args:
        given: The part, or a text in its place.
        name: Its name in errors.
        strict: Whether a file, or another part without text, is an error; see the module. Otherwise it is a
            placeholder such as `[document]`, and JSON that is no part is itself.
        is_result: Whether it is of a tool's result, where only what an API documents is a part.
    """
    if isinstance(given, str):
        return given
    # Strictly, everything is read as a part, and `object_of` refuses what is no object.
    is_part = isinstance(given, dict) and not given.keys().isdisjoint(("type", "text"))
    if is_result:
        is_part = _is_result_part(given)
    if not strict and not is_part:
        return _json_text(given)
    part = object_of(given, name)
    kind = part.get("type", "text")
    if not isinstance(kind, str):
        raise wrong(f"{name}.type", "must be a text.")
    texts = [*_texts(part)]
    # A part with nothing but a title lacks its text.
    if texts and texts != [part.get("title")] and not (strict and _is_file(part)):
        return "\n".join(texts)
    if kind in _TEXTS and any(isinstance(part.get(each), str | list) for each in ("text", kind)):
        # An empty text is there.
        return ""
    if strict and kind == "text":
        raise wrong(f"{name}.text", "must be a text.")
    if strict:
        raise unsupported(f"{name}.type", f"rdchat reads texts and images only, and this is {kind[:50]!r}.")
    return "\n".join([_placeholder(kind), *texts])


def _placeholder(kind: str) -> str:
    """Return the text for a file of a type: `[image]` for `image_url` and for `input_image`."""
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:50]}]"


def _is_file(part: Mapping[str, Any]) -> bool:
    source = part.get("source")
    is_source = isinstance(source, dict) and source.get("type") in _FILES
    return is_source or _MEDIA.fullmatch(str(part.get("type"))) is not None


def notes_in(value: Any, name: str) -> Iterator[str]:
    """Yield the names of the fields with citations in messages: the model does not get them.

    Arguments and inputs of calls are a tool's own data, so they are not searched.
    """
    for each in value if isinstance(value, list) else ():
        yield from notes_in(each, name)
    for key, each in value.items() if isinstance(value, dict) else ():
        if key in _NOTES and each and "type" in value:
            yield f"{name}.{key}"
        elif key not in ("arguments", "input"):
            yield from notes_in(each, f"{name}.{key}")


def is_foreign(part: Any) -> bool:
    """Return whether a part of an assistant's message is of a tool that ran elsewhere, or is an encrypted thought."""
    kind = str(part.get("type")) if isinstance(part, dict) else ""
    return kind == "redacted_thinking" or kind.startswith("server_") or kind.endswith(("_use", "_call", "_result"))


def thought_of(content: Any) -> str:
    """Return the texts of thoughts, as clients send them back in lists and in objects of several forms."""
    return "\n".join(_texts(content))


def is_thought(part: Any) -> bool:
    """Return whether a part of an assistant's message is a thought."""
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")


def _texts(value: Any, in_file: bool = False) -> Iterator[str]:
    """Yield the texts in a JSON value, at any depth, and a placeholder for each file; bytes and ids are left out."""
    match value:
        case str() if value:
            yield value
        case list():
            for each in value:
                yield from _texts(each, in_file)
        case Mapping():
            if _is_file(value):
                in_file = True
                yield _placeholder(str(value.get("type")))
            # A title stands before its text.
            for field, each in ({"title": None} | dict(value)).items():
                if _holds_text(field, each, str(value.get("type")), in_file):
                    yield from _texts(each, in_file)


def _holds_text(field: str, value: Any, kind: str, in_file: bool) -> bool:
    """Return whether a field of an object of a type may hold text, at any depth.

    Fields that never have text are left out; so are texts that are the data of a file, or say where it is.
    """
    if field == "data":
        # Of any other type it is bytes: a picture, or an encrypted thought.
        return kind == "text"
    if field in _NO_TEXT:
        return False
    if field in _TEXTS or not isinstance(value, str):
        return True
    is_address = value.startswith("data:") and _BASE64 in value[:_HEAD]
    return not is_address and not (in_file and _BYTES.fullmatch(field))


def read_messages(fields: Fields) -> tuple[ChatMessage, ...]:
    """Read `messages`."""
    listed = fields.inners("messages")
    if not listed:
        raise wrong("messages", "must have at least one message.")
    return tuple(read_message(each, last=each is listed[-1]) for each in listed)


def read_message(fields: Fields, *, last: bool) -> ChatMessage:
    """Read a message; the parts of the `last` one are read strictly, unless it is a tool's result."""
    role = _ROLES.get(fields.read_text("role"))
    if role is None:
        raise wrong(fields.field_name("role"), f"must be one of {', '.join(_ROLES)}.")
    given = fields.raw_value("content", "")
    thoughts = list[object]()
    if role is Role.ASSISTANT and isinstance(given, list):
        thoughts = [part for part in given if is_thought(part)]
        fields.ignored += [f"content.{part['type']}" for part in given if is_foreign(part)]
        given = [part for part in given if not is_thought(part) and not is_foreign(part)]
    strict = last and role is not Role.TOOL
    message = message_of(role, given, fields.field_name("content"), strict=strict)
    if role is Role.ASSISTANT:
        calls = tuple(map(_read_call, fields.inners("tool_calls")))
        # OpenAI's older form of a call.
        former = fields.part("function_call")
        if former.values:
            calls = (*calls, ToolCall(former.read_text("name"), arguments_of(former.raw_value("arguments"))))
        # Clients send one thought under several names, and perhaps once more as a part of the content.
        names = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
        thought = next(filter(None, (thought_of(fields.raw_value(name)) for name in names)), "")
        in_parts = thought_of(thoughts)
        if in_parts not in thought:
            thought = f"{in_parts}\n{thought}".rstrip("\n")
        return replace(message, tool_calls=calls, thought=thought)
    if role is Role.TOOL:
        return replace(message, tool_call_id=fields.read_text("tool_call_id", ""), name=fields.read_text("name", ""))
    return message


def _read_call(fields: Fields) -> ToolCall:
    fields.raw_value("type")  # `function` or `custom`
    custom = fields.part("custom")
    if custom.values:
        name = custom.read_text("name")
        arguments = json.dumps({"input": custom.read_text("input", "")})
    else:
        function = fields.part("function")
        name = function.read_text("name")
        arguments = arguments_of(function.raw_value("arguments"))
    return ToolCall(name, arguments, fields.read_text("id", ""))


def arguments_of(given: object) -> str:
    """Return the arguments of an earlier call as a JSON object; arguments that were cut off stand in it as a text."""
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    if isinstance(parsed_json(text), dict):
        return text
    return json.dumps({"unfinished": text}) if text.strip() else "{}"
