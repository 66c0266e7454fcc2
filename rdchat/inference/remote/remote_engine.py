"""The engine for models that a remote server runs: their list, and requests in the form of OpenAI's chat completions.

`remote_reply` reads the replies. The tokenizer of such a model is on the server, so a text's number of tokens is only
estimated here: by the tokenizer of the model that was used here last, otherwise by the kinds of its characters. No MLX.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError, ModelError, PromptTooLongError
from rdchat.inference.api import (
    SAMPLING_NUMBERS,
    UNKNOWN_LENGTH,
    AnswerShape,
    BenchPlan,
    BenchRunner,
    ChatImage,
    ChatMessage,
    DraftOptions,
    DraftSettings,
    Dtype,
    GenerationRequest,
    ImageCap,
    LoadProgress,
    ModelInfo,
    OnProgress,
    PrefixCacheFacts,
    RemoteServer,
    Role,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
    TokenIterator,
    find_server,
    markers_among,
    no_model,
    remote_address,
    remote_model,
    without_images,
)
from rdchat.inference.remote.remote_reply import RemoteReply
from rdchat.inference.remote.server_connection import Connection
from rdchat.inference.remote.server_keys import key_of

# What is usually one token of ASCII text: a short word or a part of a longer one, one or two signs, a run of spaces
# or of line breaks.
# All repetitions are bounded, so the search takes no longer for hostile texts.
_PIECE = re.compile(r"[A-Z]?[a-z]{1,6}|[A-Z]{1,3}|[!-/:-@\[-`{-~]{1,2}|[ \t]{2,16}|\n{1,4}")
# Tokens of a digit: half of the tokenizers take each digit alone, the others three together.
_DIGIT = 0.65
# Tokens of a byte of other characters: between 0.17 (o200k's Chinese) and 0.8 (a small vocabulary's Korean).
_BYTE = 0.33
# The rest of a longer text counts as its beginning does.
_READ_CHARACTERS = 1_000_000
# Limits of a server's list.
_MAX_MODELS = 1000
_LONGEST_NAME = 300
# Tokens of a chat template around each message.
_MESSAGE_TOKENS = 4
# An image takes Gemma 256 tokens and Claude up to 1,600.
_IMAGE_TOKENS = 1000
# Fields with a model's context, as OpenRouter, vLLM and LM Studio name it.
_LENGTHS = ("context_length", "max_model_len", "max_context_length")
# OpenAI's `reasoning_effort`; the other choices have the same names there.
_EFFORTS = {ThinkingChoice.OFF: "none", ThinkingChoice.ON: "medium"}
# Some servers take a seed of 31 bits only.
_MAX_SEED = 2**31
# The longest side of an image in pixels, and OpenAI's name of it.
_DRAWN = {ImageCap.SMALL: (512, "low"), ImageCap.MEDIUM: (1024, "auto"), ImageCap.FULL: (2048, "high")}

Draw = Callable[[ChatImage, tuple[int, int]], bytes]
"""Returns an image as PNG without metadata, no larger than a width and a height."""


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has; it is seldom off by more than a factor of two."""
    read = text[:_READ_CHARACTERS]
    digits = sum(map(read.count, "0123456789"))
    other_bytes = len(read.encode("utf-8", "replace")) - len(read.encode("ascii", "ignore"))
    tokens = sum(1 for _ in _PIECE.finditer(read)) + _DIGIT * digits + _BYTE * other_bytes
    return round(tokens * len(text) / max(len(read), 1))


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model as its server lists it.

    Attributes:
        name: Its name at the server.
        context_length: `UNKNOWN_LENGTH` where the server does not say it.
        thinking: Its choices of thinking; all where the server does not say them.
        thinking_default: See `ModelInfo`.
        is_rdchat: Whether the server is rdchat's own.
        sees: Whether it may see images: the server does not say that it sees none.
    """

    name: str
    context_length: int
    thinking: tuple[ThinkingChoice, ...]
    thinking_default: ThinkingChoice | None
    is_rdchat: bool
    sees: bool


def list_models(server: RemoteServer, key: str) -> tuple[RemoteModel, ...]:
    """Return the models of a server, in its own order. It waits for the answer, at most half a minute.

    Raises:
        RdchatError: If there is no answer, or none of an OpenAI-compatible server.
    """
    answer = Connection(server, key).read_json("/v1/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ModelError(f"{server.host} does not list models as an OpenAI-compatible server.", "Check the address.")
    models = [_model(each) for each in listed[:_MAX_MODELS] if isinstance(each, dict)]
    return tuple(filter(None, models))


def _model(listed: dict[str, Any]) -> RemoteModel | None:
    """Return a model of a server's list; None where its name is of no use."""
    name = listed.get("id")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        return None
    lengths = [value for label in _LENGTHS if type(value := listed.get(label)) is int and 0 < value < UNKNOWN_LENGTH]
    thinking = listed.get("thinking")
    known = [each for each in ThinkingChoice if each in thinking] if isinstance(thinking, list) else [*ThinkingChoice]
    default = next((each for each in known if each == listed.get("thinking_default")), None)
    return RemoteModel(
        name, (lengths or [UNKNOWN_LENGTH])[0], tuple(known), default, listed.get("owned_by") == "rdchat", _sees(listed)
    )


def _sees(listed: dict[str, Any]) -> bool:
    """Return False where a server says that a model sees no images, as OpenRouter or as Mistral and LM Studio do."""
    match listed:
        case {"architecture": {"input_modalities": list(kinds)}}:
            return "image" in kinds
        case {"capabilities": {"vision": bool(sees)}}:
            return sees
    return True


class RemoteEngine:
    """Implements `api.events.Engine` with one model of a remote server.

    The server drafts and keeps caches as it likes, so many of the methods have nothing to do here.

    Args:
        servers: Returns the servers that the person added.
        draw: See `chat_request`.
        count: Counts the tokens of a text, by the tokenizer of a model here; 0 where it does not.
    """

    def __init__(
        self,
        servers: Callable[[], Sequence[RemoteServer]],
        draw: Draw,
        count: Callable[[str], int],
    ) -> None:
        self._servers = servers
        self._draw = draw
        self._count = count
        self._loaded: tuple[Connection, RemoteModel, ModelInfo] | None = None

    def load(
        self,
        model: str | None,
        dtype: Dtype,  # noqa: ARG002  the server has its own
        on_progress: OnProgress,
        anyway: bool = False,  # noqa: ARG002  it takes no memory here
    ) -> ModelInfo:
        self._loaded = None
        named = remote_model(model)
        assert named is not None
        server = find_server(self._servers(), named[0])
        on_progress(LoadProgress(f"Connecting to {server.name}", None))
        connection = Connection(server, key_of(server))
        result = next((each for each in list_models(server, connection.key) if each.name == named[1]), None)
        if result is None:
            raise ModelError(f"{server.name} has no model {named[1]} now.", "Choose another one from the menu.")
        info = _info(server, result)
        self._loaded = connection, result, info
        return info

    def unload(self) -> int:
        self._loaded = None
        return 0

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:  # noqa: ARG002  a reply that was stopped is cancelled at once
        connection, model, _ = self._model()
        if not model.sees:
            request = replace(request, messages=tuple(without_images(request.messages)))
        body = chat_request(request, model.name, self._draw, is_rdchat=model.is_rdchat)
        return RemoteReply(connection, request, body, is_rdchat=model.is_rdchat)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:  # noqa: ARG002
        return DraftOptions(self._model()[2].path, ())

    def load_drafters(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        """Do nothing: the server drafts."""

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        return PrefixCacheFacts(0, 0, limit_bytes or 0)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        """Return an estimate: nothing is sent to a server before the person sends it.

        Since it may be far off, it refuses a chat only from four times the model's context on.
        """
        _, model, _ = self._model()
        context = model.context_length
        if context == UNKNOWN_LENGTH:
            raise ModelError("The server does not say how long a chat can be.")
        messages, tools = (prompt.messages, prompt.tools) if isinstance(prompt, GenerationRequest) else (prompt, "")
        texts = [tools, *(each.content for each in messages)]
        tokens = sum((self._count(text) or estimated_tokens(text)) + _MESSAGE_TOKENS for text in texts)
        if model.sees:
            tokens += sum(_IMAGE_TOKENS * len(each.images) for each in messages)
        if tokens > 4 * context:
            raise PromptTooLongError(f"This chat has about {tokens:,} tokens; the model takes {context:,}.")
        return tokens

    def idle(self, *, hidden: bool = False) -> bool:  # noqa: ARG002
        return False

    def rest(self) -> None:
        """Do nothing: no memory is held."""

    sleep = rest
    wake = rest
    close = rest

    def benchmark(self, plan: BenchPlan) -> BenchRunner:  # noqa: ARG002
        raise InvalidSettingError("A remote model cannot be measured from here.", "Measure it on its own computer.")

    def _model(self) -> tuple[Connection, RemoteModel, ModelInfo]:
        if (loaded := self._loaded) is None:
            raise no_model()
        return loaded


def _info(server: RemoteServer, model: RemoteModel) -> ModelInfo:
    """Return what the app knows of a model; sizes are 0, because the server does not say them."""
    path = Path(remote_address(server.name, model.name))
    sizes = (0, 0, 0, 0.0)
    return ModelInfo(
        model.name, path, "", "", server.address, model.context_length, *sizes,
        thinking=model.thinking, thinking_default=model.thinking_default, trained_for_tools=True, server=server.name,
        sees=model.sees,
        # Calls come in a field of their own, so the markers are a character that no text has.
        tool_markers=("\0", "\0"),
        # rdchat's server sends thoughts in a field of their own; what looks like a marker in its text is text. The
        # empty beginning is that of every marker: each of them counts only as a control token, and none comes.
        token_markers=markers_among([""]) if model.is_rdchat else frozenset(),
    )  # fmt: skip


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
    # Values that are not in OpenAI's API may be refused, so they are sent only where they change something.
    changed: dict[str, Any] = {
        name: value for name in SAMPLING_NUMBERS if (value := getattr(sampling, name)) != getattr(neutral, name)
    }
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
    """Return the field `content` of a message with images; empty for others.

    Its parts are the text before the first image, this image, the text between it and the next one, and so on.
    An image is drawn anew, so that what a file has besides the picture, such as a place, is not sent.
    """
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
    """Return a message for the server, without the thoughts in its text: the server knows other markers of thoughts.

    `answer` has the ranges of the text that are the answer; it is None where all of the text is.

    Raises:
        ModelError: If the message is to be continued and has nothing but a thought.
    """
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
    """Return a shape as `response_format`."""
    if shape.kind is ShapeKind.JSON:
        return {"type": "json_object"}
    if shape.kind is ShapeKind.SCHEMA:
        schema = {"name": "answer", "schema": json.loads(shape.source), "strict": True}
        return {"type": "json_schema", "json_schema": schema}
    # These two are rdchat's own.
    return {"type": shape.kind.value, shape.kind.value: shape.source}
