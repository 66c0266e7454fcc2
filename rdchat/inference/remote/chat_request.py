"""Writes requests for OpenAI's chat completions."""

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from rdchat.errors import ModelError
from rdchat.inference.api import (
    SAMPLING_NUMBERS,
    AnswerShape,
    ChatImage,
    ChatMessage,
    GenerationRequest,
    ImageCap,
    Role,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
)

_EFFORTS = {ThinkingChoice.OFF: "none", ThinkingChoice.ON: "medium"}
_MAX_SEED = 2**31
# The longest side of an image in pixels, and OpenAI's name of it.
_DRAWN = {ImageCap.SMALL: (512, "low"), ImageCap.MEDIUM: (1024, "auto"), ImageCap.FULL: (2048, "high")}

Draw = Callable[[ChatImage, tuple[int, int]], bytes]
"""Returns an image as PNG without metadata, no larger than a width and a height."""


def chat_request(request: GenerationRequest, model: str, draw: Draw, *, is_rdchat: bool) -> dict[str, Any]:
    """Return the body of a streamed request.

    Args:
        request: The request. Its drafting is the server's business.
        model: Name of the model at the server.
        draw: Draws the images.
        is_rdchat: Whether the server is rdchat's own, which takes 64-bit seeds and returns token ids.

    Raises:
        ModelError: If a server cannot be asked for this.
    """
    if request.text is not None or request.top_log_probs is not None:
        raise ModelError("A remote model only answers chats, without log-probabilities.", "Choose a local model.")
    sampling = request.sampling
    neutral = SamplingParams()
    # Some are not in OpenAI's API, so they are sent only where they change something.
    values = {name: getattr(sampling, name) for name in SAMPLING_NUMBERS}
    changed: dict[str, Any] = {name: value for name, value in values.items() if value != getattr(neutral, name)}
    last = request.messages[-1] if request.continue_last else None
    body = changed | {
        "model": model, "messages": [
            {**_message(each, is_continued=each is last), **_parts(each, request.image_cap, draw)}
            for each in request.messages
        ],
        "stream": True, "stream_options": {"include_usage": True}, "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature, "top_p": sampling.top_p,
        "seed": request.seed if is_rdchat else request.seed % _MAX_SEED,
    }  # fmt: skip
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if request.thinking is not None:
        body["reasoning_effort"] = _EFFORTS.get(request.thinking, request.thinking.value)
    if request.thinking_tokens is not None:
        body["thinking_token_budget"] = request.thinking_tokens
    if request.tools:
        body["tools"] = json.loads(request.tools)
    if request.shape is not None:
        body["response_format"] = _format(request.shape)
    if is_rdchat:
        body["return_token_ids"] = True
    elif request.continue_last:
        # As vLLM and llama.cpp name it; rdchat always continues a reply that ends the messages.
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _parts(message: ChatMessage, cap: ImageCap, draw: Draw) -> dict[str, Any]:
    """Return the content of a message with images as a field; their files, and what is in them beside, stay here."""
    side, detail = _DRAWN[cap]
    parts = list[Any]()
    for (start, end), image in zip_longest(message.text_ranges, message.images):
        if start < end:
            parts.append({"type": "text", "text": message.content[start:end]})
        if image is not None:
            url = f"data:image/png;base64,{b64encode(draw(image, (side, side))).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url, "detail": detail}})
    return {"content": parts} if message.images else {}


def _message(message: ChatMessage, *, is_continued: bool) -> dict[str, Any]:
    """Return a message without the thoughts in its text: a server knows its own markers only."""
    content = message.content
    if message.answer is not None:
        if is_continued and not message.answer and content.strip():
            raise ModelError("A remote model cannot continue a thought that was cut off.", "Regenerate the reply.")
        content = "".join(content[start:end] for start, end in message.answer).lstrip()
    written: dict[str, Any] = {"role": message.role.value, "content": content}
    if message.tool_calls:
        written["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL:
        written["tool_call_id"] = message.tool_call_id
    return written


def _format(shape: AnswerShape) -> dict[str, Any]:
    if shape.kind is ShapeKind.JSON:
        return {"type": "json_object"}
    if shape.kind is ShapeKind.SCHEMA:
        schema = {"name": "answer", "schema": json.loads(shape.source), "strict": True}
        return {"type": "json_schema", "json_schema": schema}
    # These two are rdchat's own.
    return {"type": shape.kind.value, shape.kind.value: shape.source}
