"""The HTTP requests of clients: `Endpoints` reads and queues them, and `Answer` sends the replies.

All of it runs on the server's event loop. A request has one or more prompts, and each gets `choices` replies. They are
numbered prompt by prompt: with 3 choices, replies 0 to 2 are those to the first prompt. Replies are sent together at
the end, or as a stream of server-sent events.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from rdchat.inference.api import ModelInfo, PrefillProgress
from rdchat.server.guard import Guard, cors_headers
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions, Completions
from rdchat.server.interfaces.fields import CONTEXT_FULL, ApiError, Fields, parse_body
from rdchat.server.interfaces.interface import Interface, ReplyFormat
from rdchat.server.interfaces.reply_request import Choice, Delta, Part, ReplyRequest
from rdchat.server.interfaces.responses import Responses
from rdchat.server.request_queue import Job, RequestQueue
from rdchat.server.response import DisconnectedError, Response, read_body
from rdchat.server.sent_images import SentImages
from rdchat.server.served_models import ServedModels
from rdchat.server.server_settings import Limits

_LOG = logging.getLogger(__name__)
_ANTHROPIC_PATH = "/v1/messages"
_COUNT_PATH = f"{_ANTHROPIC_PATH}/count_tokens"
_MODELS_PATH = "/v1/models"
_INTERFACES: Mapping[str, Callable[[], Interface]] = {
    "/v1/chat/completions": ChatCompletions,
    "/v1/completions": Completions,
    "/v1/responses": Responses,
    _ANTHROPIC_PATH: Messages,
    _COUNT_PATH: partial(Messages, counts=True),
}

# Names of fields that may stand in a header, and how many of them do.
_NAME = re.compile(r"[\w.$-]{1,100}", re.ASCII)
_MAX_NAMES = 20


class Endpoints:
    """The ASGI application: checks the client, and sends every error in the form of the path's API.

    Args:
        queue: Takes the requests to the engine.
        guard: Checks the headers.
        limits: Limits of requests.
    """

    def __init__(self, queue: RequestQueue, guard: Guard, limits: Limits) -> None:
        self._queue = queue
        self._guard = guard
        self._limits = limits
        # Each server has its own: they keep items of replies for the clients with its key.
        self._interfaces = {path: make() for path, make in _INTERFACES.items()}
        self._images = SentImages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        path = scope["path"].removesuffix("/")
        headers = Headers(scope=scope)
        response = Response(scope, send, self._limits.send_seconds)
        try:
            # uvicorn limits headers that come in several packets, but not those of one.
            sizes = (len(name) + len(value) for name, value in headers.raw)
            if len(scope["raw_path"]) + len(scope["query_string"]) + sum(sizes) > self._limits.header_bytes:
                raise ApiError(431, f"The headers are longer than {self._limits.header_bytes // 2**10} kB.")
            if scope["method"] == "OPTIONS" and cors_headers(headers):
                await response.send_head(204, "text/plain", self._guard.preflight(headers))
                await response.send_part("", more=False)
                return
            self._guard.check_request(headers)
            response.headers = cors_headers(headers)
            await self._answer(path, headers, scope, receive, response)
        except DisconnectedError:
            pass
        except ApiError as error:
            await _send_error(path, response, error)
        except Exception:
            _LOG.exception("A request failed unexpectedly")
            await _send_error(path, response, ApiError(500, "Something unexpected went wrong in rdchat."))

    async def _answer(self, path: str, headers: Headers, scope: Scope, receive: Receive, response: Response) -> None:
        """Send the models, the number of a prompt's tokens, or the replies; raise ApiError or DisconnectedError."""
        is_models = path == _MODELS_PATH or path.startswith(f"{_MODELS_PATH}/")
        if not is_models and path not in self._interfaces:
            raise ApiError(404, f"There is nothing at {path[:200]}.")
        allowed = "GET, HEAD" if is_models else "POST"
        if scope["method"] not in allowed.split(", "):
            raise ApiError(405, f"Method Not Allowed: {path[:200]}", headers={"allow": allowed})
        if is_models:
            await self._send_models(path.removeprefix(_MODELS_PATH).removeprefix("/"), response)
            return
        interface = self._interfaces[path]
        request = interface.read_request(Fields(parse_body(await self._body(headers, receive))))
        if request.replies > self._limits.choices:
            raise ApiError(400, f"One request may have at most {self._limits.choices} replies.", "n")
        is_loaded = await self._queue.models.card_to_load(request.model) is None
        info = self._queue.engine.model
        # A model that sees no images gets a placeholder for each, so they are not read.
        is_blind = is_loaded and info is not None and not info.sees
        reader = self._images.reader(request) if request.images and not is_blind else nullcontext()
        host = scope["client"][0] if scope.get("client") else ""
        agent = headers.get("user-agent", "")
        client = f"{host} {agent}"
        async with reader as read_images:
            if path == _COUNT_PATH:
                tokens = await _while_connected(self._count(client, request, read_images), receive)
                loaded = self._queue.engine.model
                await response.json(200, {"input_tokens": tokens}, headers_for(request, self._queue.models, loaded))
                return
            job = self._queue.submit(client, path, agent, request, read_images)
            watch = asyncio.ensure_future(_wait_for_disconnect(receive))
            watch.add_done_callback(lambda _: self._queue.stop_request(job, DisconnectedError()))
            try:
                await Answer(self._queue, interface, job, response, self._limits.silent_seconds).send()
            finally:
                watch.cancel()
                # Before the images' folder goes; a request that has ended stays as it is.
                self._queue.stop_request(job, DisconnectedError())

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body of a request; raise ApiError where it is packed, too long or too slow."""
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise ApiError(415, "Send the body as it is, without `Content-Encoding`.")
        max_bytes = self._limits.body_bytes
        try:
            body = await asyncio.wait_for(read_body(receive, max_bytes), self._limits.body_seconds)
        except TimeoutError as error:
            raise ApiError(408, "The body did not come in time.") from error
        if body is None:
            raise ApiError(413, f"The body is longer than {max_bytes // 2**20} MB.")
        return body

    async def _count(
        self, client: str, request: ReplyRequest, read_images: Callable[[], ReplyRequest | None] | None
    ) -> int:
        """Return the number of tokens of a prompt, whose images are read before; it has no turn at the engine."""
        if read_images is not None:
            request = await self._queue.read_images(read_images)
        info = self._queue.engine.model
        if info is None or await self._queue.models.card_to_load(request.model) is not None:
            raise ApiError(503, "The model is not loaded, so its tokens cannot be counted.")
        return await self._queue.count_prompt(client, request, 0, info)

    async def _send_models(self, name: str, response: Response) -> None:
        """Send the models that a client may name, or the named one, for OpenAI's and Anthropic's clients alike."""
        listed = [_model(*each, self._queue.engine.model) for each in (await self._queue.models.listed()).items()]
        first, last = (listed[0]["id"], listed[-1]["id"]) if listed else (None, None)
        body: Any = {"object": "list", "data": listed, "has_more": False, "first_id": first, "last_id": last}
        if name:
            body = next((each for each in listed if each["id"] == name), None)
            if body is None:
                raise ApiError(404, f"There is no model named {name[:200]!r} here.", "model", "model_not_found")
        await response.json(200, body, {})


async def _while_connected[T](work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of some work; it ends with DisconnectedError when the client leaves."""
    doing = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({doing, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise DisconnectedError
        return doing.result()
    finally:
        watch.cancel()
        doing.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _model(name: str, changed: float, loaded: ModelInfo | None) -> dict[str, Any]:
    """Return a model of the list, with OpenAI's fields and Anthropic's; `changed` is in seconds since 1970."""
    moment = datetime.fromtimestamp(int(changed), UTC)
    fields = {"id": name, "object": "model", "created": int(changed), "owned_by": "rdchat"}
    if loaded is not None and loaded.name == name:
        inputs = ["text", "image"] if loaded.sees else ["text"]
        fields |= {
            "context_length": loaded.context_length,
            "thinking": list(loaded.thinking),
            "thinking_default": loaded.thinking_default,
            # What it sees, as OpenRouter names it, then as Mistral, LM Studio and Anthropic do.
            "architecture": {"input_modalities": inputs, "output_modalities": ["text"]},
            "capabilities": {"vision": loaded.sees, "image_input": {"supported": loaded.sees}},
        }
    return fields | {"type": "model", "display_name": name, "created_at": moment.isoformat().replace("+00:00", "Z")}


async def _send_error(path: str, response: Response, error: ApiError) -> None:
    """Send an error, unless a reply has begun: the client then sees that it ends too early."""
    if response.started:
        response.abort()
        return
    body = error.anthropic() if path.startswith(_ANTHROPIC_PATH) else error.openai()
    # The body of a request with one of these errors is not read, so the connection cannot take another request.
    closed = {"connection": "close"} if error.status in {401, 403, 408, 413, 415} else {}
    with suppress(DisconnectedError):
        await response.json(error.status, body, error.headers | closed)


class Answer:
    """Sends the replies to one request, together or while they are written.

    The parts wait in the job's queue, so a client that reads slowly does not hold up the engine.

    Args:
        queue: The queue with the request.
        interface: The API of the request.
        job: The request.
        response: Takes the replies.
        silent_seconds: After so long without data, a stream gets a ping within half of that time.
    """

    def __init__(
        self, queue: RequestQueue, interface: Interface, job: Job, response: Response, silent_seconds: float
    ) -> None:
        self._queue = queue
        self._interface = interface
        self._job = job
        self._response = response
        self._silent_seconds = silent_seconds
        self._reply_id = secrets.token_hex(12)
        # The replies that have ended, in the order of their ends.
        self._choices: list[Choice] = []

    async def send(self) -> None:
        """Send the replies. Once a stream has begun, an error is sent as an event.

        Raises:
            ApiError: If the request failed before anything was sent.
            DisconnectedError: If the client has left, or does not read.
        """
        try:
            while (part := await self._next_part()) is not None:
                # A reply that has ended; its last text is still sent below.
                if isinstance(part, tuple):
                    self._choices.append(part[0])
                if self._request.stream:
                    await self._send_part(part)
        except ApiError as error:
            if not self._response.started:
                raise
            await self._response.send_part(self._format.fail(error), more=False)
            return
        if self._request.stream:
            await self._response.send_part(self._format.end(self._choices), more=False)
        else:
            await self._response.json(200, self._format.complete(self._choices), self._headers)

    @property
    def _request(self) -> ReplyRequest:
        return self._job.request

    async def _next_part(self) -> Part | None:
        """Return the next part of any reply; an empty `Delta` after a silence, and None after all replies."""
        try:
            part = await asyncio.wait_for(self._job.parts.get(), self._silent_seconds / 2)
        except TimeoutError:
            return Delta(0)
        if isinstance(part, Exception):
            try:
                raise part
            finally:
                # The error holds this frame, and would be a cycle with it; the app collects cycles seldom.
                del part
        return part

    @cached_property
    def _format(self) -> ReplyFormat:
        """Writes the replies in the form of the request's API."""
        # The model is known before the first part comes, but not always before a failure.
        if (info := self._job.info) is None:
            return self._interface.format(self._request, self._request.model, self._reply_id)
        return self._interface.format(self._request.filled(info), info.name, self._reply_id)

    @property
    def _headers(self) -> dict[str, str]:
        ids = {"x-request-id": self._reply_id, "request-id": self._reply_id}
        info = self._job.info or self._queue.engine.model
        return ids | headers_for(self._request, self._queue.models, info)

    async def _send_part(self, part: Part) -> None:
        """Send a part of a streamed reply, or a ping after a silence.

        The response begins with the first progress of the prompt (`begins`), the first text or the first ping: until
        then, an error can be sent with its HTTP status. Progress has a text in some APIs only; in the others it sends
        the head alone. A ping is sent only where the part has nothing else to send.
        """
        text = self._text_of(part)
        begins = not self._response.started and isinstance(part, PrefillProgress)
        silent_s = time.monotonic() - self._response.written_at
        if not text and not begins and silent_s >= self._silent_seconds:
            if not self._response.started:
                await self._check_lengths()
            text = self._interface.ping
        if (text or begins) and not self._response.started:
            await self._response.send_head(200, "text/event-stream; charset=utf-8", self._headers)
        if text:
            await self._response.send_part(text)

    def _text_of(self, part: Part) -> str:
        """Return the events for a part; empty where the API has none for it."""
        if isinstance(part, tuple):
            choice, tail = part
            return self._format.finish(choice, tail)
        if isinstance(part, PrefillProgress):
            return self._format.begin(part)
        return self._format.delta(part) if part.thought or part.answer else ""

    async def _check_lengths(self) -> None:
        """Raise ApiError for a prompt that is too long for the loaded model.

        It is called before a ping begins a stream, because later errors have no HTTP status. Where the model is not
        loaded, or an image not read, the prompt cannot be counted yet.
        """
        info = self._queue.engine.model
        is_read = self._job.read_images is None
        if info is None or not is_read or await self._queue.models.card_to_load(self._request.model) is not None:
            return
        # All replies to one prompt share it, so one of each is enough.
        for first_reply in range(0, self._request.replies, self._request.choices):
            tokens = await self._queue.count_prompt(self._job.client, self._request, first_reply, info)
            if tokens >= info.context_length:
                text = f"The prompt has {tokens:,} tokens; together with the reply, the model takes"
                raise ApiError(400, f"{text} {info.context_length:,}.", code=CONTEXT_FULL)


def headers_for(request: ReplyRequest, models: ServedModels, info: ModelInfo | None) -> dict[str, str]:
    """Return the headers that name what a request asked for and does not get.

    These are fields without an effect, parts of a schema that no grammar enforces, and a model that is not installed,
    with the name of the one that answers in its place.

    Args:
        request: The request.
        models: The models.
        info: The model that answers, as far as it is known.
    """
    headers = {}
    unenforced = request.shape.left_out if request.shape else ()
    for label, names in (("ignored", request.without_effect(info)), ("unenforced", unenforced)):
        listed = [name for name in names if _NAME.fullmatch(name)][:_MAX_NAMES]
        if more := len(names) - len(listed):
            listed.append(f"and {more} more")
        if listed:
            headers[f"x-rdchat-{label}"] = ", ".join(listed)
    if substitute := models.substitute(request.model):
        headers["x-rdchat-model-substituted"] = quote(substitute)
    return headers
