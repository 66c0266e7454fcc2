"""Takes requests to the engine, one at a time, and keeps the facts about them."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from rdchat.errors import one_line
from rdchat.inference.api.events import FinishReason, GenerationEvent, ModelInfo, ReplyEnd, TokenEvent
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import GenerationRequest
from rdchat.server.facts import Phase, RequestFacts, ServerFacts
from rdchat.server.fair_queue import FairQueue, QueueFullError
from rdchat.server.gate import Cancellable, EngineFailure, EngineGate
from rdchat.server.interfaces.api_error import CONTEXT_FULL, ApiError
from rdchat.server.settings import ServerSettings

_Event = GenerationEvent | ModelInfo | EngineFailure
_Take = Callable[[_Event], object]
_FINAL = (ReplyEnd, ModelInfo, EngineFailure)
_REPORT_INTERVAL_S = 0.1
# How long a list of the installed models is used.
_MODELS_SECONDS = 10.0
# Longest wait that a client is asked for.
_LONGEST_WAIT_S = 60
_STOPPED = "The person at the machine stopped this request."


@dataclass(slots=True, eq=False)
class Ticket:
    """One request: its facts, and what of it runs at the engine.

    Attributes:
        stopped: The error that its client gets, if the reply was stopped here.
        events: Events of what runs at the engine.
        _began: When the reply's first token came.
        _tokens: Tokens of the reply so far.
    """

    facts: RequestFacts
    stopped: ApiError | None = None
    running: Cancellable | None = None
    events: asyncio.Queue[_Event] = field(default_factory=asyncio.Queue)
    _began: float = 0.0
    _tokens: int = 0
    _drafted: int = 0
    _accepted: int = 0

    def begin(self) -> None:
        """Begin another reply."""
        self.facts = replace(self.facts, phase=Phase.READING, tokens_per_second=None, acceptance=None)
        self._began, self._tokens, self._drafted, self._accepted = 0.0, 0, 0, 0

    def count(self, tokens: Sequence[TokenEvent]) -> None:
        """Count tokens that were just written."""
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


class Desk:
    """The requests of all clients. Everything here runs on the server's event loop.

    Args:
        settings: The server's.
        gate: The engine.
        on_change: Called with the facts when they have changed.

    Attributes:
        address: The server's; empty until it listens.
        facts: As they were told last.
    """

    def __init__(self, settings: ServerSettings, gate: EngineGate, on_change: Callable[[ServerFacts], object]) -> None:
        self.settings, self.gate = settings, gate
        self.address, self.facts = "", ServerFacts("")
        self._on_change = on_change
        self._queue = FairQueue[Ticket](settings.queue_length)
        self._running: Ticket | None = None
        self._tickets: dict[int, Ticket] = {}
        self._count = self._answered = 0
        # Mean time of a request at the engine.
        self._mean_s = 1.0
        # Timer that reports the progress of a reply.
        self._later: asyncio.TimerHandle | None = None
        self._closed = False
        # When the installed models were last listed, and the list.
        self._found: tuple[float, tuple[ModelCard, ...]] = (float("-inf"), ())
        # One count of tokens at a time: the next reply waits for it.
        self._counting = asyncio.Lock()
        # One search for models serves all who ask at once, because it starts a process.
        self._finding = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, client: str, path: str, user_agent: str, model: str) -> AsyncIterator[Ticket]:
        """Wait for the turn of a request, which lasts as long as the context.

        Args:
            client: Requests of the same client come after each other.
            path: Of the request.
            user_agent: What the client calls itself.
            model: The model that it names.

        Raises:
            ApiError: If too many requests wait, or the person stops this one.
        """
        if self._closed:
            raise _closing()
        self._count += 1
        named = one_line(user_agent)[:200], one_line(model)[:200]
        ticket = Ticket(RequestFacts(self._count, path, *named, Phase.WAITING, time.monotonic()))
        self._tickets[self._count] = ticket
        try:
            await self._enter(client, ticket)
            began = time.monotonic()
            try:
                yield ticket
            finally:
                self._mean_s += (time.monotonic() - began - self._mean_s) / 4
                self._running = None
                self._queue.leave()
        finally:
            self._answered += 1
            del self._tickets[ticket.facts.request_id]
            self._tell()

    async def _enter(self, client: str, ticket: Ticket) -> None:
        try:
            turn = self._queue.join(client, ticket)
        except QueueFullError as error:
            wait_s = min(max(1, round(len(self._queue) * self._mean_s)), _LONGEST_WAIT_S)
            raise ApiError(429, "Too many requests wait for the model.", retry_s=wait_s) from error
        self._tell()
        try:
            await turn
        except BaseException:
            self._queue.give_up(client, turn)
            raise
        self._running = ticket
        self._tell()

    async def models(self) -> tuple[ModelCard, ...]:
        """Return the installed models that can be loaded."""
        async with self._finding:
            when, cards = self._found
            if time.monotonic() - when > _MODELS_SECONDS:
                cards = tuple(await asyncio.to_thread(self.gate.installed))
                self._found = time.monotonic(), cards
            return cards

    async def count_tokens(self, request: GenerationRequest) -> int:
        """Return the number of tokens of a request's prompt; see `EngineGate.count_tokens`."""
        async with self._counting:
            return await asyncio.to_thread(self.gate.count_tokens, request)

    async def card(self, name: str) -> ModelCard | None:
        """Return the installed model that a client names; None for the loaded one, also in place of an unknown one.

        Raises:
            ApiError: If there is none of that name and none is loaded in its place, or it may not be loaded.
        """
        info = self.gate.model
        if info is not None and name in ("", info.name):
            return None
        if not name:
            raise ApiError(503, "No model is loaded.", retry_s=5)
        card = next((each for each in await self.models() if each.name == name), None)
        if card is None and info is not None and self.settings.substitutes_models:
            return None
        if card is None:
            words = f"There is no model named {one_line(name)[:200]!r} here. /v1/models lists the names."
            raise ApiError(404, words, "model", "model_not_found")
        if info is not None and card.path == info.path:
            return None
        if not self.settings.may_load_models:
            loaded = f"{info.name} is" if info else "no model is"
            raise ApiError(
                404, f"{name} is not loaded: {loaded}. The server may not load models.", "model", "model_not_found"
            )
        return card

    def substituted(self, name: str, model: str) -> bool:
        """Tell whether a model answers for another one, which is not installed."""
        return name not in ("", model, *(card.name for card in self._found[1]))

    async def ready_model(self, ticket: Ticket, name: str) -> ModelInfo:
        """Load the model that a client names, unless it is loaded; return its facts."""
        card = await self.card(name)
        if card is not None:
            ticket.facts = replace(ticket.facts, phase=Phase.LOADING)
            self._tell()
            async with aclosing(self._events(ticket, partial(self.gate.load, card))) as batches:
                async for _ in batches:
                    pass
        info = self.gate.model
        if info is None:
            raise ApiError(503, "No model is loaded.", retry_s=5)
        return info

    async def reply(self, ticket: Ticket, request: GenerationRequest) -> AsyncGenerator[list[GenerationEvent]]:
        """Make a reply; yield its events as they come, perhaps several at once; the last one is a `ReplyEnd`.

        Close the iterator to stop the reply: that waits until the engine has stopped.
        """
        ticket.begin()
        async with aclosing(self._events(ticket, partial(self.gate.generate, request))) as batches:
            async for batch in batches:
                if tokens := [event for event in batch if isinstance(event, TokenEvent)]:
                    ticket.count(tokens)
                self._report_progress()
                yield [event for event in batch if isinstance(event, GenerationEvent)]

    async def _events(self, ticket: Ticket, begin: Callable[[_Take], Cancellable]) -> AsyncGenerator[list[_Event]]:
        """Begin something at the engine and yield its events; its failure is raised."""
        loop = asyncio.get_running_loop()
        events = ticket.events = asyncio.Queue[_Event]()

        def take(event: _Event) -> None:  # Runs on the engine thread
            with suppress(RuntimeError):  # the server has stopped, and its loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        if ticket.stopped:
            raise ticket.stopped
        ticket.running = running = begin(take)
        ended = False
        try:
            while not ended:
                batch = [await events.get()]
                while not isinstance(batch[-1], _FINAL) and not events.empty():
                    batch.append(events.get_nowait())
                ended = isinstance(batch[-1], _FINAL)
                error = _error_of(batch[-1], ticket.stopped)
                if rest := batch[:-1] if error else batch:
                    yield rest
                if error:
                    raise error
        finally:
            if not ended:
                running.cancel()
                while not isinstance(await events.get(), _FINAL):
                    pass
            ticket.running = None

    def cancel(self, request_id: int) -> None:
        """Stop a request; see `Server.cancel`."""
        if ticket := self._tickets.get(request_id):
            self._stop(ticket, ApiError(503, _STOPPED))

    def close(self) -> None:
        """Stop all requests, and take no more."""
        self._closed = True
        for ticket in list(self._tickets.values()):
            self._stop(ticket, _closing())
            ticket.events.put_nowait(EngineFailure(""))  # the engine may be busy, and its last event come late

    def _stop(self, ticket: Ticket, error: ApiError) -> None:
        ticket.stopped = error
        if not self._queue.fail(ticket, error) and ticket.running is not None:
            ticket.running.cancel()

    def _tell(self) -> None:
        """Give the facts to who watches."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        running = self._running.facts if self._running else None
        waiting = tuple(ticket.facts for ticket in self._queue)
        self.facts = ServerFacts(self.address, running, waiting, self._answered)
        self._on_change(self.facts)

    def _report_progress(self) -> None:
        """Give the facts soon: many tokens come together."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(_REPORT_INTERVAL_S, self._tell)


def _error_of(event: _Event, stopped: ApiError | None) -> ApiError | None:
    """Return the error with which an event ends a request; None for other events.

    Args:
        event: The event.
        stopped: What the client of a request that was stopped here is told.
    """
    if isinstance(event, ReplyEnd) and event.finish_reason is FinishReason.CANCELLED:
        return stopped or ApiError(503, _STOPPED)
    if not isinstance(event, EngineFailure):
        return None
    status = 400 if event.refused else 500
    code = CONTEXT_FULL if event.too_long else ""
    return stopped or ApiError(status, f"{event.message} {event.hint}".strip(), code=code)


def _closing() -> ApiError:
    return ApiError(503, "The server is closing.", retry_s=5)
