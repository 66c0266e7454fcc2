"""Carries out the requests of all clients at the engine, one at a time, and publishes their state for the window.

A request with images has two stages: its images are read from its body (`ReadImages`), which needs no turn at the
engine, and then the engine computes them and writes the replies. Between two images of one request the engine may write
a short reply to another client.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from rdchat.errors import InvalidSettingError, PromptTooLongError, RdchatError, one_line
from rdchat.inference.api import (
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    TokenEvent,
)
from rdchat.server.interfaces.fields import CONTEXT_FULL, ApiError
from rdchat.server.interfaces.reply_request import Part, ReplyParts, ReplyRequest
from rdchat.server.served_models import ServedModels, ServerEngine, Stop, no_model
from rdchat.server.server_settings import Phase, RequestFacts, ServerFacts, ServerSettings

_Event = GenerationEvent | ModelInfo | ApiError
# The last event of a reply, of a load, or of either when it failed.
_FINAL = (ReplyEnd, ModelInfo, ApiError)
_REPORT_INTERVAL_S = 0.1
# Longest wait that is suggested to a client.
_LONGEST_WAIT_S = 60
_STOPPED = "The person at the machine stopped this request."

ReadImages = Callable[[], ReplyRequest | None]
"""Reads the next image of a request on the calling thread; returns None, and the request once none is left."""


@dataclass(slots=True, eq=False)
class Job:
    """A request in the queue, and its result.

    Attributes:
        client: The client; its requests are answered one after another.
        request: What it asks for.
        facts: Its state, for the window.
        info: The model that answers; None until it is loaded, which is before the first part.
        parts: The parts of all replies, for `Answer`; an exception is the error of the request, and None its end.
        stopped: Whether it was stopped while it ran; its client has an error then, and gets nothing more.
        stop: Stops the engine's present work for it, a load or a reply; does nothing before the first.
        read_images: Reads its images; None if it has none, or they are read.
        images_read: Calls of `read_images`.
        is_seeing: Whether the engine computes one of its images that is not the last one.
        task: Carries it out; kept here because asyncio itself keeps no task alive.
    """

    client: str
    request: ReplyRequest
    facts: RequestFacts
    info: ModelInfo | None = None
    parts: asyncio.Queue[Part | Exception | None] = field(default_factory=asyncio.Queue)
    stopped: bool = False
    stop: Stop = lambda: None
    read_images: ReadImages | None = None
    images_read: int = 0
    is_seeing: bool = False
    task: asyncio.Task[None] | None = None
    # Of the present reply: the time of its first token, by `time.monotonic`, and its counts of tokens.
    _began: float = 0.0
    _tokens: int = 0
    _drafted: int = 0
    _accepted: int = 0

    def check_stopped(self) -> None:
        """Raise ApiError once it is stopped, which may happen at each `await`."""
        if self.stopped:
            raise ApiError(503, _STOPPED)

    def begin_reply(self) -> None:
        """Count from zero for the next reply; `facts.tokens` goes on over all replies."""
        self.facts = replace(self.facts, phase=Phase.READING, tokens_per_second=None, acceptance=None)
        self._began = 0.0
        self._tokens = 0
        self._drafted = 0
        self._accepted = 0

    def count(self, tokens: Sequence[TokenEvent]) -> None:
        """Count tokens of the present reply that were just written."""
        now = time.monotonic()
        self._began = self._began or now
        self._tokens += len(tokens)
        self._drafted += sum(token.round.drafted for token in tokens if token.round)
        self._accepted += sum(token.round.accepted for token in tokens if token.round)
        spent = now - self._began
        self.facts = replace(
            self.facts,
            phase=Phase.WRITING,
            tokens=self.facts.tokens + len(tokens),
            tokens_per_second=(self._tokens - 1) / spent if self._tokens > 1 and spent > 0 else None,
            acceptance=self._accepted / self._drafted if self._drafted else None,
        )


class RequestQueue:
    """The requests of all clients. Everything here runs on the server's event loop, so nothing needs a lock.

    The client whose last turn is the longest ago is next; each keeps the order of its requests. With `a1 a2 b1 c1`
    waiting behind a request of `a`, the order is `b1 c1 a1 a2`. While the engine computes several images of a request,
    each other client gets one turn for a request without images: its reply is written between two images.

    Args:
        settings: The server's settings.
        engine: The engine.
        on_change: Called with the facts when they have changed.

    Attributes:
        engine: The engine.
        models: Finds the model that answers for a name.
        facts: The facts that were published last; the address is empty until the server listens.
    """

    def __init__(
        self, settings: ServerSettings, engine: ServerEngine, on_change: Callable[[ServerFacts], object]
    ) -> None:
        self.engine = engine
        self.models = ServedModels(settings, engine)
        self.facts = ServerFacts("")
        self._settings = settings
        self._on_change = on_change
        self._waiting: list[Job] = []
        # The engine works for the last one; those before it wait between two of their images.
        self._running: list[Job] = []
        self._turns = 0
        # Number of each client's last turn; forgotten once no request is left.
        self._last_turns: dict[str, int] = {}
        self._submitted = 0
        self._answered = 0
        # Mean time of a request at the engine; the last request counts a quarter.
        self._mean_s = 1.0
        # Timer that reports the progress of a reply.
        self._report: asyncio.TimerHandle | None = None
        self._closed = False
        # The prompts to count, by client; that of the first is next. One is counted at a time: the process that counts
        # also makes the tokens of the next reply's prompt.
        self._to_count: dict[str, deque[tuple[GenerationRequest, asyncio.Future[int]]]] = {}
        self._counting_task: asyncio.Task[None] | None = None
        # One image is read at a time, on another thread.
        self._reading = asyncio.Lock()
        self._reading_task: asyncio.Task[None] | None = None

    def submit(
        self,
        client: str,
        path: str,
        user_agent: str,
        request: ReplyRequest,
        read_images: ReadImages | None = None,
    ) -> Job:
        """Queue a request, and return it; the parts of its replies come in `Job.parts`.

        Args:
            client: Names the client among others.
            path: For `RequestFacts`.
            user_agent: For `RequestFacts`.
            request: The request.
            read_images: Reads its images, in turns with those of other requests; its own turn at the engine comes
                after the last one. None if it has none.

        Raises:
            ApiError: If too many requests wait, or the server is closing.
        """
        if self._closed:
            raise _closing()
        if self._jobs() and len(self._waiting) >= self._settings.limits.queue_length:
            wait_s = min(max(1, round(len(self._waiting) * self._mean_s)), _LONGEST_WAIT_S)
            raise ApiError(429, "Too many requests wait for the model.", headers={"retry-after": str(wait_s)})
        self._submitted += 1
        facts = RequestFacts(
            self._submitted, path, one_line(user_agent)[:200], one_line(request.model)[:200], Phase.WAITING
        )
        job = Job(client, request, facts, read_images=read_images)
        self._waiting.append(job)
        if read_images is not None and self._reading_task is None:
            self._reading_task = asyncio.get_running_loop().create_task(self._read_waiting())
        self._begin_next()
        self._publish()
        return job

    async def read_images(self, read: ReadImages) -> ReplyRequest:
        """Read the images of a request that is not in the queue, in turns with those of others."""
        while (request := await self._read_image(read)) is None:
            pass
        return request

    async def _read_image(self, read: ReadImages) -> ReplyRequest | None:
        async with self._reading:
            return await asyncio.to_thread(read)

    async def _read_waiting(self) -> None:
        """Read the images of the waiting requests, one of each in the order of their turns."""
        while unread := [each for each in self._in_turn() if each.read_images]:
            job = min(unread, key=lambda each: each.images_read)
            assert job.read_images is not None
            job.images_read += 1
            try:
                request = await self._read_image(job.read_images)
            except Exception as error:
                self.stop_request(job, error)
                continue
            if request is not None:
                job.request = request
                job.read_images = None
                self._begin_next()
                self._publish()
        self._reading_task = None

    async def count_prompt(self, client: str, request: ReplyRequest, index: int, info: ModelInfo) -> int:
        """Return the number of tokens of a reply's prompt. Clients take turns; a call that is cancelled takes none.

        Args:
            client: Names the client among others.
            request: The request.
            index: Index of the reply among all replies to the request.
            info: The loaded model.

        Raises:
            ApiError: If it is far too long, or the model's chat template refuses it.
        """
        try:
            generation = request.request(index, info, self.engine.draft, self._settings.partition)
            loop = asyncio.get_running_loop()
            tokens: asyncio.Future[int] = loop.create_future()
            self._to_count.setdefault(client, deque()).append((generation, tokens))
            if self._counting_task is None:
                self._counting_task = loop.create_task(self._count_waiting())
            return await tokens
        except RdchatError as error:
            code = CONTEXT_FULL if isinstance(error, PromptTooLongError) else ""
            raise ApiError(400, str(error), code=code) from error

    async def _count_waiting(self) -> None:
        """Count the prompts that wait, one of each client in turn."""
        while self._to_count:
            client = next(iter(self._to_count))
            waiting = self._to_count.pop(client)
            request, tokens = waiting.popleft()
            if waiting:
                # Its next turn comes after those of all others.
                self._to_count[client] = waiting
            # One that was cancelled, before or meanwhile, takes no result.
            with suppress(asyncio.InvalidStateError):
                try:
                    if not tokens.done():
                        tokens.set_result(await asyncio.to_thread(self.engine.count_tokens, request))
                except Exception as error:
                    tokens.set_exception(error)
        self._counting_task = None

    def stop_request(self, job: Job, error: Exception) -> None:
        """End a request with an error. Its client gets the error at once, in place of the parts that were not sent.

        Where the engine works for it, the next request begins when the engine has stopped. For one that has ended at
        the engine, only what its client gets changes.
        """
        if job in self._waiting:
            self._waiting.remove(job)
            self._answered += 1
            self._begin_next()
            self._publish()
        elif job in self._running and not job.stopped:
            job.stopped = True
            job.stop()
        while not job.parts.empty():
            job.parts.get_nowait()
        job.parts.put_nowait(error)

    def cancel_request(self, request_id: int) -> None:
        """Stop a request for the person; see `Server.cancel_request`."""
        for job in self._jobs():
            if job.facts.request_id == request_id:
                self.stop_request(job, ApiError(503, _STOPPED))

    def close_queue(self) -> None:
        """Stop all requests, and take no more."""
        self._closed = True
        for job in self._jobs():
            self.stop_request(job, _closing())

    def _jobs(self) -> list[Job]:
        return [*self._waiting, *self._running]

    def _in_turn(self) -> Iterator[Job]:
        """Yield the waiting requests in the order of their turns, as if each began in turn; nothing is changed."""
        waiting = list(self._waiting)
        last_turns = dict(self._last_turns)
        for turn in range(self._turns + 1, self._turns + len(waiting) + 1):
            job = min(waiting, key=lambda each: last_turns.get(each.client, 0))
            waiting.remove(job)
            last_turns[job.client] = turn
            yield job

    def _next_ready(self) -> Job | None:
        """Return the next request that may begin; None where none may."""
        # Clients with an earlier request that may not begin: each client's requests keep their order.
        held_up = set[str]()
        for job in self._in_turn():
            if job.read_images is not None or not all(self._may_pause(each, job) for each in self._running):
                held_up.add(job.client)
            elif job.client not in held_up:
                return job
        return None

    def _may_pause(self, running: Job, job: Job) -> bool:
        """Return whether a request that runs may wait between two of its images until another one is answered.

        The other one must be of a client without a turn since this one began, have no images, and need no other model.
        """
        is_next = self._last_turns.get(job.client, 0) < self._last_turns[running.client]
        loads = self._settings.may_load_models and job.request.model != running.request.model
        return running.is_seeing and is_next and not job.request.images and not loads

    def _begin_next(self) -> None:
        """Begin the next request, if one may begin.

        Never two at once: after the first one no other may, until it ends or computes images.
        """
        if not self._jobs():
            self._last_turns.clear()
        job = self._next_ready()
        if job is None:
            return
        self._waiting.remove(job)
        self._turns += 1
        self._last_turns[job.client] = self._turns
        self._running.append(job)
        job.task = asyncio.get_running_loop().create_task(self._run(job))

    async def _run(self, job: Job) -> None:
        """Carry out a request, then begin the next one."""
        began = time.monotonic()
        try:
            await self._make_replies(job)
            job.parts.put_nowait(None)
        except Exception as error:
            if not job.stopped:
                job.parts.put_nowait(error)
        self._mean_s += (time.monotonic() - began - self._mean_s) / 4
        self._answered += 1
        self._running.remove(job)
        self._begin_next()
        self._publish()

    async def _make_replies(self, job: Job) -> None:
        """Load the model, unless it is loaded, and make all replies to a request, one after another."""
        request = job.request
        info = await self._ready_model(job)
        job.info = info
        for index in range(request.replies):
            try:
                generation = request.request(index, info, self.engine.draft, self._settings.partition)
            except InvalidSettingError as error:
                raise ApiError(400, str(error), "messages" if request.prompts[0].text is None else "prompt") from error
            reply = ReplyParts(index, request, generation.seed)
            job.begin_reply()
            async with aclosing(self._events(job, partial(self.engine.generate, generation))) as batches:
                async for batch in batches:
                    job.is_seeing = isinstance(batch[-1], PrefillProgress) and batch[-1].images > 1
                    if job.is_seeing:
                        # The engine answers another request now and then goes on with this one.
                        self._begin_next()
                    if job.stopped:
                        # Its client has the error already; what is left is to wait for the engine's last event.
                        continue
                    if tokens := [event for event in batch if isinstance(event, TokenEvent)]:
                        job.count(tokens)
                    self._publish_soon()
                    for part in reply.take_events([event for event in batch if isinstance(event, GenerationEvent)]):
                        job.parts.put_nowait(part)

    async def _ready_model(self, job: Job) -> ModelInfo:
        """Return the loaded model, after the one that the request names is loaded where it must be."""
        card = await self.models.card_to_load(job.request.model)
        if card is not None:
            job.facts = replace(job.facts, phase=Phase.LOADING)
            self._publish()
            async for _ in self._events(job, partial(self.engine.load, card)):
                pass
        if self.engine.model is None:
            raise no_model()
        return self.engine.model

    async def _events(
        self, job: Job, begin: Callable[[Callable[[_Event], object]], Stop]
    ) -> AsyncGenerator[list[_Event]]:
        """Begin a reply or a load at the engine, and yield its events up to the last one, as many as came together.

        Args:
            job: The request. Once it is stopped, the last event ends the iteration without an error.
            begin: Begins the work with a function that takes each event; returns what stops the work.

        Raises:
            ApiError: If the work failed, or was stopped elsewhere.
        """
        loop = asyncio.get_running_loop()
        events = asyncio.Queue[_Event]()

        def take(event: _Event) -> None:  # Runs on the engine thread
            with suppress(RuntimeError):
                # The server may have stopped, with its loop closed.
                loop.call_soon_threadsafe(events.put_nowait, event)

        job.check_stopped()
        job.stop = begin(take)
        try:
            while True:
                batch = [await events.get()]
                while not isinstance(batch[-1], _FINAL) and not events.empty():
                    batch.append(events.get_nowait())
                last = batch[-1]
                if job.stopped and isinstance(last, _FINAL):
                    return
                if isinstance(last, ReplyEnd) and last.finish_reason is FinishReason.CANCELLED:
                    last = ApiError(503, _STOPPED)
                if isinstance(last, ApiError):
                    if before := batch[:-1]:
                        yield before
                    raise last
                yield batch
                if isinstance(last, _FINAL):
                    return
        finally:
            job.stop()

    def _publish(self) -> None:
        """Make the facts and report them."""
        if self._report is not None:
            self._report.cancel()
            self._report = None
        running = self._running[-1].facts if self._running else None
        waiting = tuple(job.facts for job in (*self._running[:-1], *self._in_turn()))
        self.facts = ServerFacts(self.facts.address, running, waiting, self._answered)
        self._on_change(self.facts)

    def _publish_soon(self) -> None:
        """Publish the facts soon: many tokens come together."""
        if self._report is None:
            self._report = asyncio.get_running_loop().call_later(_REPORT_INTERVAL_S, self._publish)


def _closing() -> ApiError:
    return ApiError(503, "The server is closing.", headers={"retry-after": "5"})
