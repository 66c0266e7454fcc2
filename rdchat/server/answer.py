"""Sends the answer to a request for replies."""

import asyncio
import re
import secrets
import time
from functools import cached_property
from urllib.parse import quote

from rdchat.inference.api.events import PrefillProgress
from rdchat.server.interfaces.api_error import CONTEXT_FULL, ApiError
from rdchat.server.interfaces.interface import Interface, ReplyFormat
from rdchat.server.interfaces.reply_request import Choice, Delta, ReplyRequest
from rdchat.server.reply_parts import Part
from rdchat.server.request_queue import Job, RequestQueue
from rdchat.server.response import Response
from rdchat.server.served_models import ServedModels

# Name of a field that may stand in a header.
_NAME = re.compile(r"[\w.$-]{1,100}", re.ASCII)
_MAX_NAMES = 20


class Answer:
    """The replies to one request, sent at once or while they are written.

    However slowly a client reads, the request's turn at the engine ends with its last reply.

    Args:
        queue: Has the request.
        interface: Its interface.
        job: The request.
        response: Takes the replies.
        silent_seconds: Silence of a stream, after which a ping follows within half as long.
    """

    def __init__(
        self, queue: RequestQueue, interface: Interface, job: Job, response: Response, silent_seconds: float
    ) -> None:
        self._queue, self._interface, self._job, self._response = queue, interface, job, response
        self._silent_seconds = silent_seconds
        self._request, self._reply_id = job.request, secrets.token_hex(12)
        self._choices: list[Choice] = []

    async def send(self) -> None:
        """Send the replies. An error behind the beginning of a stream is sent as an event.

        Raises:
            ApiError: If there is no answer, and nothing was sent.
            DisconnectedError: If the client has left, or does not read.
        """
        try:
            while (part := await self._next_part()) is not None:
                if isinstance(part, tuple):
                    self._choices.append(part[0])
                if self._request.stream:
                    await self._send_part(part)
        except ApiError as error:
            if not self._response.started:
                raise
            await self._response.write(self._interface.stream_error(error), more=False)
            return
        if self._request.stream:
            await self._response.write(self._format.end(self._choices), more=False)
        else:
            await self._response.json(200, self._format.complete(self._choices), self._headers)

    async def _next_part(self) -> Part | None:
        """Return what came; an empty `Delta` after a while without anything, and None at the end."""
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
        assert self._job.info is not None, "it is known before the first part comes"
        return self._interface.format(self._request, self._job.info.name, self._reply_id)

    @property
    def _headers(self) -> dict[str, str]:
        ids = {"x-request-id": self._reply_id, "request-id": self._reply_id}
        return ids | headers_for(self._request, self._queue.models)

    async def _send_part(self, part: Part) -> None:
        """Send a part of a streamed reply, or a ping after a silence.

        The response begins with the first progress of the prompt or the first ping, so that earlier errors have a
        status.
        """
        text = self._text_of(part)
        begins = not self._response.started and isinstance(part, PrefillProgress)
        silent_s = time.monotonic() - self._response.written_at
        if not text and not begins and silent_s >= self._silent_seconds:
            if not self._response.started:
                await self._check_lengths()
            text = self._interface.ping
        if (text or begins) and not self._response.started:
            await self._response.start(200, "text/event-stream; charset=utf-8", self._headers)
        if text:
            await self._response.write(text)

    def _text_of(self, part: Part) -> str:
        if isinstance(part, tuple):
            return self._format.finish(*part)
        if isinstance(part, PrefillProgress):
            return self._format.begin(part)
        return self._format.delta(part) if part.thought or part.answer else ""

    async def _check_lengths(self) -> None:
        """Raise ApiError for a prompt that is too long for the loaded model: once a stream has begun, no error has a
        status.
        """
        info = self._queue.engine.model
        if info is None or await self._queue.models.card(self._request.model) is not None:
            return
        for index in range(0, self._request.replies, self._request.choices):
            tokens = await self._queue.count_tokens(self._request, index, info)
            if tokens >= info.context_length:
                text = f"The prompt has {tokens:,} tokens; together with the reply, the model takes"
                raise ApiError(400, f"{text} {info.context_length:,}.", code=CONTEXT_FULL)


def headers_for(request: ReplyRequest, models: ServedModels) -> dict[str, str]:
    """Return the headers that name what has no effect or no grammar, and the model in place of an unknown one."""
    headers = {}
    unenforced = request.shape.left_out if request.shape else ()
    for label, names in (("ignored", request.ignored), ("unenforced", unenforced)):
        if listed := [name for name in names if _NAME.fullmatch(name)][:_MAX_NAMES]:
            headers[f"x-rdchat-{label}"] = ", ".join(listed)
    if substitute := models.substitute(request.model):
        headers["x-rdchat-model-substituted"] = quote(substitute)
    return headers
