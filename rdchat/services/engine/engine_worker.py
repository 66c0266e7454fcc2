"""Carries out requests on the engine thread; nothing else makes, uses or frees the engines."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial

from PySide6.QtCore import QObject, Qt, QThread, Signal, Slot

from rdchat import paths
from rdchat.errors import (
    DoesNotFitError,
    InvalidSettingError,
    ModelError,
    PromptTooLongError,
    RdchatError,
    ShapeRefusedError,
    TemplateRefusedError,
)
from rdchat.inference.api import (
    BenchPlan,
    ChatMessage,
    Engine,
    Engines,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    PrefillProgress,
    ReplyEnd,
    Statistics,
    StoppedError,
    TokenEvent,
    TokenIterator,
)
from rdchat.log import errors_logged
from rdchat.services.engine.engine_request import (
    FINAL,
    BenchEnd,
    EngineEvent,
    EngineRequest,
    Failure,
    FindDraftOptions,
    LimitPrefixCaches,
    LoadModel,
    Outbox,
    ReplyProgress,
    Unloaded,
    UnloadModel,
    WriteReply,
)

_LOG = logging.getLogger(__name__)
# Reading a reply's statistics takes time, so each event has those of some moments ago.
_STATISTICS_INTERVAL_S = 0.1
# Errors of a request that is wrong in itself, and what the others are called.
_REFUSALS = (InvalidSettingError, PromptTooLongError, ShapeRefusedError, TemplateRefusedError)
_FAILURES = {
    LoadModel: "The model did not load",
    UnloadModel: "The model was not unloaded",
    WriteReply: "The reply stopped",
    GenerationRequest: "The reply stopped",
    BenchPlan: "The benchmark stopped",
    FindDraftOptions: "The drafting modes are unknown",
    LimitPrefixCaches: "The memory for earlier chats is unknown",
}


class EngineWorker(QObject):
    """Takes requests from `inbox`, one each time that it is `woken`, and posts their events.

    Args:
        engine_factory: See `EngineClient`.
        keep_awake: See `EngineClient`.
        inbox: The requests; None closes the engines and ends the thread.
        outbox: Takes the events.

    Attributes:
        hidden: Whether nobody can see a window: macOS may slow the app down then (App Nap), so nothing is
            measured.

    Signals:
        posted: An event is in the outbox.
        woken: There is a request in the inbox, or background work to do.
        idle_worked: Some background work was done, and there is more.
        chore_requested: The engine has to do something if nothing else is to do.
    """

    posted = Signal()
    woken = Signal()
    idle_worked = Signal()
    chore_requested = Signal(object)

    def __init__(
        self,
        engine_factory: Callable[[], Engines],
        keep_awake: Callable[[], AbstractContextManager[None]],
        inbox: deque[EngineRequest | None],
        outbox: Outbox,
    ) -> None:
        super().__init__()
        self._engine_factory = engine_factory
        self._keep_awake = keep_awake
        self._inbox = inbox
        self._outbox = outbox
        # Made on the first request: a window is shown before MLX is imported.
        self._engines: Engines | None = None
        # Why they could not be made.
        self._problem = ""
        self.hidden = False
        self.chore_requested.connect(self._do_chore, Qt.ConnectionType.QueuedConnection)
        self.woken.connect(self.work, Qt.ConnectionType.QueuedConnection)

    @Slot()
    def work(self) -> None:
        """Carry out the next request; without one, let the engine do a slice of what can wait.

        The last event of a request ends it; one that was cancelled may have none (`_stopped`).
        """
        if self._inbox:
            request = self._inbox.popleft()
            if request is None:
                self._finish()
                return
            self._do(request)
            self.woken.emit()
        elif self._engines is not None:
            with errors_logged("Warming up or measuring while idle"), self._keep_awake():
                if self._engines.chosen.idle(hidden=self.hidden):
                    self.woken.emit()
                    self.idle_worked.emit()

    def _do(self, request: EngineRequest) -> None:
        """Carry out a request, and post its last event: its result, or why it failed or stopped."""
        last: EngineEvent | None
        try:
            last = self._carry_out(request)
        except StoppedError:
            last = _stopped(request)
        except RdchatError as error:
            last = Failure(
                error.message,
                error.hint,
                can_load_anyway=isinstance(error, DoesNotFitError),
                refused=isinstance(error, _REFUSALS),
                too_long=isinstance(error, PromptTooLongError),
            )
        except Exception:
            failure = _FAILURES[type(request.command)]
            _LOG.exception("%s unexpectedly", failure)
            last = Failure(f"{failure} because of a mistake in rdchat.", _unexpected_hint())
        if request.direct:
            last = _last_of_direct(request, last)
        if last is not None:
            self._post(request, last)

    def _carry_out(self, request: EngineRequest) -> EngineEvent:
        """Carry out a request and post its events, except for the last one, which is returned."""
        request.check_cancelled()
        engines = self._ready_engines()
        match request.command:
            case LoadModel(model, dtype, anyway):
                report = partial(self._report_load, request)
                if request.direct:
                    # The model from before is loaded until the engine begins.
                    report(LoadProgress("Loading the model", None))
                return engines.load(model, dtype, report, anyway)
            case UnloadModel():
                return Unloaded(engines.chosen.unload())
            case FindDraftOptions(settings, drafters, load):
                if load:
                    engines.chosen.load_drafters(settings, partial(self._report_load, request))
                return engines.chosen.draft_options(settings, drafters)
            case LimitPrefixCaches(limit_bytes):
                return engines.chosen.prefix_caches(limit_bytes)
            case WriteReply() | GenerationRequest() as reply:
                generation = reply.read(request.check_cancelled) if isinstance(reply, WriteReply) else reply
                request.begun = True
                with (
                    self._keep_awake(),
                    closing(engines.chosen.generate(generation, lambda: request.cancelled)) as iterator,
                ):
                    request.attach(iterator.cancel)
                    return self._post_tokens(request, iterator)
            case BenchPlan() as plan:
                with self._keep_awake(), closing(engines.chosen.benchmark(plan)) as runner:
                    request.attach(runner.cancel)
                    for event in runner:
                        self._post(request, event)
                return BenchEnd(request.cancelled)

    def _report_load(self, request: EngineRequest, progress: LoadProgress) -> None:
        """Post the progress of a load, or end it if it was cancelled."""
        request.check_cancelled()
        self._post(request, progress)

    def _post_tokens(self, request: EngineRequest, iterator: TokenIterator) -> ReplyEnd:
        """Write a reply and post its tokens; return its end."""
        statistics = Statistics()
        taken = -math.inf
        draft = None
        for event in iterator:
            if (changed := request.draft) is not None and changed is not draft:
                iterator.update(draft := changed)
            if isinstance(event, ReplyEnd):
                return event
            if isinstance(event, TokenEvent):
                if (now := time.monotonic()) - taken >= _STATISTICS_INTERVAL_S:
                    statistics = iterator.statistics
                    taken = now
                self._post(request, ReplyProgress(statistics, (event,)))
            else:
                self._post(request, event)
            if request.direct:
                self._let_others_go_first(iterator)
        raise AssertionError("the token iterator ended without a ReplyEnd")

    def _let_others_go_first(self, paused: TokenIterator) -> None:
        """Carry out what the person waits for between two tokens of a reply for the server."""
        while (first := next((each for each in tuple(self._inbox) if each and each.is_urgent), None)) is not None:
            self._inbox.remove(first)
            with paused.paused():
                self._do(first)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        """Count on the calling thread; see `Engine.count_tokens`."""
        if self._engines is None:
            raise ModelError("No model is loaded.")
        return self._engines.chosen.count_tokens(prompt)

    @Slot(object)
    def _do_chore(self, chore: Callable[[Engine], object]) -> None:
        """Let the engine rest, sleep or wake. A request that waits wakes it, and reports why it cannot be loaded."""
        if self._engines is not None and not self._inbox:
            with errors_logged("Giving memory back while idle, or loading the model again"):
                chore(self._engines.chosen)

    def _post(self, request: EngineRequest, event: EngineEvent) -> None:
        """Send an event to the main thread; those of a direct request are delivered here.

        The last event of a direct request is also sent: `EngineClient` has to know that the request has ended.
        """
        if request.direct:
            _call(request, event)
            request.ended = isinstance(event, FINAL)
            if not request.ended:
                return
        self._outbox.append((request, event))
        self.posted.emit()

    def _finish(self) -> None:
        """Close the engines and end the thread."""
        with errors_logged("Closing the engine"):
            if self._engines is not None:
                self._engines.close()
        QThread.currentThread().quit()

    def _ready_engines(self) -> Engines:
        """Return the engines, made on first use; raise RdchatError if they cannot be made."""
        if self._engines is None and not self._problem:
            try:
                self._engines = self._engine_factory()
            except Exception as error:
                _LOG.exception("The engine could not be started")
                self._problem = f"The engine could not be started: {error}"
        if self._engines is None:
            raise RdchatError(self._problem, _unexpected_hint())
        return self._engines


def _call(request: EngineRequest, event: EngineEvent) -> None:
    """Deliver an event of a direct request; a listener that fails ends its reply."""
    try:
        request.on_event(event)
    except Exception:
        _LOG.exception("The server did not take an event")
        request.cancel()


def _last_of_direct(request: EngineRequest, last: EngineEvent | None) -> EngineEvent:
    """Return the last event of a direct request; one that somebody else cancelled failed for that reason."""
    if last is None:
        return Failure(request.reason or "The request was stopped.", "")
    stopped = isinstance(last, ReplyEnd) and last.finish_reason is FinishReason.CANCELLED
    return Failure(request.reason, "Send the request again.") if stopped and request.reason else last


def _stopped(request: EngineRequest) -> ReplyEnd | BenchEnd | None:
    """Return the last event of a request that was cancelled before it began; only replies and benchmarks have one."""
    match request.command:
        case WriteReply(request_id=request_id) | GenerationRequest(request_id=request_id):
            return ReplyEnd(request_id, "", (), "", FinishReason.CANCELLED, Statistics())
        case BenchPlan():
            return BenchEnd(stopped=True)
    return None


def _unexpected_hint() -> str:
    return f"Try again. If it happens again, please report it with the log, {paths.log_path()}."


def take_merged(outbox: Outbox) -> tuple[EngineRequest, EngineEvent]:
    """Remove the oldest event, with all progress of its kind that follows directly, as one event.

    So a main thread that is late paints once, not a hundred times. Tokens of a reply are joined; of other progress the
    newest event has all, so that one is returned.
    """
    request, event = outbox.popleft()
    parts = [event]
    if isinstance(event, ReplyProgress | PrefillProgress | LoadProgress):
        while outbox and outbox[0][0] is request and type(outbox[0][1]) is type(event):
            parts.append(outbox.popleft()[1])
    replies = [each for each in parts if isinstance(each, ReplyProgress)]
    if len(replies) < 2:
        return request, parts[-1]
    tokens = tuple(token for each in replies for token in each.tokens)
    return request, ReplyProgress(replies[-1].statistics, tokens, replies[0].written_at)
