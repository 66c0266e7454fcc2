"""Answers requests: reads them, waits for their turn, and sends the reply at once or as a stream."""

import asyncio
import logging
import re
import secrets
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rdchat.errors import PromptTooLongError, RdchatError
from rdchat.inference.api.events import ModelInfo, PrefillProgress
from rdchat.server.desk import Desk
from rdchat.server.guard import Guard, cors_headers
from rdchat.server.interfaces.api_error import CONTEXT_FULL, ApiError
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.completions import Completions
from rdchat.server.interfaces.fields import Fields, parse_body
from rdchat.server.interfaces.interface import Interface, ReplyStream
from rdchat.server.interfaces.messages import Messages
from rdchat.server.interfaces.order import Choice, Delta, ReplyOrder
from rdchat.server.outlet import DisconnectedError, Outlet, inflated, read_body, until_disconnected
from rdchat.server.replies import Piece, make_replies

_LOG = logging.getLogger(__name__)
# Name of a field that may stand in a header.
_NAME = re.compile(r"[\w.$-]{1,100}", re.ASCII)
_MAX_NAMES = 20
_CODINGS = {"", "identity", "gzip", "x-gzip"}
_ANTHROPIC_PATH = "/v1/messages"


def build_app(desk: Desk, guard: Guard) -> ASGIApp:
    """Return the application."""
    replies: dict[str, Interface] = {
        "/v1/chat/completions": ChatCompletions(),
        "/v1/completions": Completions(),
        _ANTHROPIC_PATH: Messages(),
    }
    routes = [Route(path, _Replies(desk, guard, interface), methods=["POST"]) for path, interface in replies.items()]
    counts = _TokenCounts(desk, guard, Messages(counts=True))
    routes.append(Route(f"{_ANTHROPIC_PATH}/count_tokens", counts, methods=["POST"]))
    models = _Models(desk)
    routes += [Route(path, models, methods=["GET"]) for path in ("/v1/models", "/v1/models/{name:path}")]
    return _Front(Router(routes, redirect_slashes=False, default=_unknown), desk, guard)


class _Front:
    """Stands before all paths: checks who asks, and sends every error in the shape of the path."""

    def __init__(self, app: ASGIApp, desk: Desk, guard: Guard) -> None:
        self._app, self._desk, self._guard = app, desk, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        outlet = Outlet(scope, send, self._desk.settings.limits.send_seconds)
        path = scope["path"].removesuffix("/")
        # With an app in the scope, the router raises its errors.
        scope.update(outlet=outlet, app=self, path=path)
        headers = Headers(scope=scope)
        try:
            if scope["method"] == "OPTIONS" and cors_headers(headers):
                await outlet.start(204, "text/plain", self._guard.preflight(headers))
                await outlet.write("", more=False)
                return
            self._guard.check(headers)
            outlet.headers = cors_headers(headers)
            await self._app(scope, receive, send)
        except DisconnectedError:
            pass
        except ApiError as error:
            await _send_error(scope, outlet, error)
        except HTTPException as error:
            await _send_error(scope, outlet, ApiError(error.status_code, f"{error.detail}: {scope['path'][:200]}"))
        except Exception as error:
            # Its message might hold a client's text.
            place = "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("A request failed unexpectedly: %s\n%s", type(error).__name__, place)
            await _send_error(scope, outlet, ApiError(500, "Something unexpected went wrong in rdchat."))


async def _unknown(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise ApiError(404, f"There is nothing at {scope['path'][:200]}.")


async def _send_error(scope: Scope, outlet: Outlet, error: ApiError) -> None:
    """Send an error, unless a reply has begun: the client then sees that it ends too early."""
    if outlet.started:
        scope["state"]["abort"]()
        return
    is_anthropic = scope["path"].startswith(_ANTHROPIC_PATH)
    body = error.anthropic() if is_anthropic else error.openai()
    # The body of such a request is not read.
    closed = {"connection": "close"} if error.status in {401, 403, 408, 413, 415} else {}
    try:
        await outlet.json(error.status, body, error.headers | closed)
    except DisconnectedError:
        return


class _Models:
    """`GET /v1/models`, for the clients of both interfaces."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._since = desk, time.time()

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        listed = await self._listed()
        name = scope["path_params"].get("name")
        body: Any = {"object": "list", "data": listed, "has_more": False, "first_id": None, "last_id": None}
        if listed:
            body |= {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
        if name is not None:
            body = next((each for each in listed if each["id"] == name), None)
            if body is None:
                raise ApiError(404, f"There is no model named {name[:200]!r} here.", "model", "model_not_found")
        await scope["outlet"].json(200, body, {})

    async def _listed(self) -> list[dict[str, Any]]:
        """Return the models that a client may name, the loaded one first."""
        info = self._desk.gate.model
        made = {info.name: self._since} if info else {}
        if self._desk.settings.may_load_models:
            made |= {card.name: card.changed or self._since for card in await self._desk.models()}
        return [_model(name, changed) for name, changed in made.items()]


def _model(name: str, changed: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(int(changed), UTC)
    openai = {"id": name, "object": "model", "created": int(changed), "owned_by": "rdchat"}
    return openai | {"type": "model", "display_name": name, "created_at": moment.isoformat().replace("+00:00", "Z")}


class _Replies:
    """A path that answers with replies of the model."""

    def __init__(self, desk: Desk, guard: Guard, interface: Interface) -> None:
        self._desk, self._guard, self._interface = desk, guard, interface

    async def __call__(self, scope: Scope, receive: Receive, _send: Send) -> None:
        order = await self._read(scope, receive)
        await _while_connected(receive, self._answer(scope, order))

    async def _read(self, scope: Scope, receive: Receive) -> ReplyOrder:
        limits = self._desk.settings.limits
        coding = ", ".join(Headers(scope=scope).getlist("content-encoding")).strip().lower()
        if coding not in _CODINGS:
            raise ApiError(415, "Send the body as it is, or with `Content-Encoding: gzip`.")
        try:
            body = await asyncio.wait_for(read_body(receive, limits.body_bytes), limits.body_seconds)
        except TimeoutError as error:
            raise ApiError(408, "The body did not come in time.") from error
        try:
            if body is not None and "gzip" in coding:
                body = inflated(body, limits.body_bytes)
        except ValueError as error:
            raise ApiError(400, "The body is not whole gzip data.") from error
        if body is None:
            raise ApiError(413, f"The body is longer than {limits.body_bytes // 2**20} MB.")
        order = self._interface.read(Fields(parse_body(body)))
        if len(order.prompts) * order.choices > limits.choices:
            raise ApiError(400, f"One request may have at most {limits.choices} replies.", "n")
        await self._desk.card(order.model)
        return order

    async def _answer(self, scope: Scope, order: ReplyOrder) -> None:
        """Make the replies, and send them beside it: however slowly a client reads, its turn ends with the last one."""
        made: asyncio.Queue[ModelInfo | Piece | None] = asyncio.Queue()
        making = asyncio.ensure_future(self._make(scope, order, made))
        making.add_done_callback(lambda _: made.put_nowait(None))
        tick_s = self._desk.settings.limits.silent_seconds / 2
        try:
            await self._send_replies(scope["outlet"], order, _taken(made, making, tick_s))
        finally:
            making.cancel()
            await asyncio.wait({making})

    async def _make(self, scope: Scope, order: ReplyOrder, made: asyncio.Queue[ModelInfo | Piece | None]) -> None:
        """Put the model that answers into a queue, then its replies."""
        agent = Headers(scope=scope).get("user-agent", "")
        host = scope["client"][0] if scope.get("client") else ""
        async with self._desk.turn(f"{host} {agent}", scope["path"], agent, order.model) as ticket:
            info = await self._desk.ready_model(ticket, order.model)
            made.put_nowait(info)
            pieces = make_replies(self._desk, ticket, order, info, self._guard.partition)
            async with aclosing(pieces):
                async for piece in pieces:
                    made.put_nowait(piece)

    async def _send_replies(self, outlet: Outlet, order: ReplyOrder, pieces: AsyncGenerator[ModelInfo | Piece]) -> None:
        reply_id = secrets.token_hex(12)
        headers = {"x-request-id": reply_id, "request-id": reply_id} | self._headers(order)
        stream: ReplyStream | None = None
        choices: list[Choice] = []
        model = ""
        try:
            async for piece in pieces:
                if isinstance(piece, ModelInfo):
                    model, headers = piece.name, headers | self._headers(order)
                    stream = self._interface.stream(order, model, reply_id) if order.stream else None
                    continue
                if isinstance(piece, tuple):
                    choices.append(piece[0])
                if order.stream:
                    await self._send_piece(outlet, order, stream, headers, piece)
        except ApiError as error:
            if not outlet.started:
                raise
            await outlet.write(self._interface.stream_error(error), more=False)
            return
        if stream is not None:
            await outlet.write(stream.end(choices), more=False)
        else:
            await outlet.json(200, self._interface.whole(order, model, choices, reply_id), headers)

    async def _send_piece(
        self, outlet: Outlet, order: ReplyOrder, stream: ReplyStream | None, headers: dict[str, str], piece: Piece
    ) -> None:
        """Send a piece of a streamed reply, or a ping after a silence.

        The response begins with the first progress of the prompt or the first ping, so that earlier errors have a
        status.
        """
        text = _text_of(stream, piece) if stream is not None else ""
        begins = not outlet.started and isinstance(piece, PrefillProgress)
        silent_s = time.monotonic() - outlet.written
        if not text and not begins and silent_s >= self._desk.settings.limits.silent_seconds:
            if not outlet.started:
                await self._check_lengths(order)
            text = self._interface.ping
        if (text or begins) and not outlet.started:
            await outlet.start(200, "text/event-stream; charset=utf-8", headers)
        if text:
            await outlet.write(text)

    async def _check_lengths(self, order: ReplyOrder) -> None:
        """Raise ApiError for a prompt that is too long for the loaded model: once a stream has begun, no error has a
        status.
        """
        info = self._desk.gate.model
        if info is None or await self._desk.card(order.model) is not None:
            return
        for index in range(len(order.prompts)):
            tokens = await self._count_tokens(order, index * order.choices, info)
            if tokens >= info.context_length:
                words = f"The prompt has {tokens:,} tokens; together with the reply, the model takes"
                raise ApiError(400, f"{words} {info.context_length:,}.", code=CONTEXT_FULL)

    async def _count_tokens(self, order: ReplyOrder, index: int, info: ModelInfo) -> int:
        try:
            request = order.request(index, info, self._desk.gate.draft, self._guard.partition)
            return await self._desk.count_tokens(request)
        except PromptTooLongError as error:
            raise ApiError(400, str(error), code=CONTEXT_FULL) from error
        except RdchatError as error:
            raise ApiError(400, str(error)) from error

    def _headers(self, order: ReplyOrder) -> dict[str, str]:
        """Return the headers that name what has no effect or no grammar, and the model in place of an unknown one."""
        headers = {}
        for what, names in (("ignored", order.ignored), ("unenforced", order.shape.left_out if order.shape else ())):
            if shown := [name for name in names if _NAME.fullmatch(name)][:_MAX_NAMES]:
                headers[f"x-rdchat-{what}"] = ", ".join(shown)
        info = self._desk.gate.model
        if info is not None and self._desk.substituted(order.model, info.name):
            headers["x-rdchat-model-substituted"] = quote(info.name)
        return headers


class _TokenCounts(_Replies):
    """The path that counts the tokens of a prompt. It waits for no reply."""

    async def _answer(self, scope: Scope, order: ReplyOrder) -> None:
        info = self._desk.gate.model
        if info is None or await self._desk.card(order.model) is not None:
            raise ApiError(503, "The model is not loaded, so its tokens cannot be counted.")
        tokens = await self._count_tokens(order, 0, info)
        await scope["outlet"].json(200, {"input_tokens": tokens}, self._headers(order))


async def _taken(
    made: asyncio.Queue[ModelInfo | Piece | None], making: asyncio.Future[None], seconds: float
) -> AsyncGenerator[ModelInfo | Piece]:
    """Yield what is put into a queue, until the making has ended; its error is raised then.

    After some seconds without anything, an empty `Delta` is yielded.
    """
    piece: ModelInfo | Piece | None = Delta(0)
    while piece is not None:
        yield piece
        try:
            piece = await asyncio.wait_for(made.get(), seconds)
        except TimeoutError:
            piece = Delta(0)
    making.result()


def _text_of(stream: ReplyStream, piece: Piece) -> str:
    """Return what a client gets for a piece of a streamed reply."""
    if isinstance(piece, tuple):
        return stream.finish(*piece)
    if isinstance(piece, PrefillProgress):
        return stream.begin(piece)
    return stream.delta(piece) if piece.thought or piece.answer else ""


async def _while_connected(receive: Receive, answer: Awaitable[None]) -> None:
    """Answer a request, or stop as soon as the client has left."""
    work = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(until_disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
            raise DisconnectedError
        work.result()
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
