"""Carries out requests on the engine thread: it alone makes, drives and frees the engine."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

from PySide6.QtCore import QObject, Qt, QThread, Signal, Slot

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError, RdchatError
from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.events import FinishReason, LoadProgress, ReplyEnd, TokenEvent
from rdchat.inference.api.protocol import Engine, StoppedError, TokenIterator
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, GenerationRequest
from rdchat.services.engine.engine_events import BenchEnd, EngineEvent, Failure, ReplyProgress, Unloaded
from rdchat.services.engine.engine_request import EngineRequest, FindDraftOptions, LoadModel, Outbox, UnloadModel

_LOG = logging.getLogger(__name__)
_STATISTICS_INTERVAL_S = 0.1
_WHAT_FAILED = {
    LoadModel: "The model did not load",
    UnloadModel: "The model was not unloaded",
    GenerationRequest: "The reply broke off",
    BenchPlan: "The benchmark broke off",
    FindDraftOptions: "The draft options are not known",
}


class EngineWorker(QObject):
    """Takes requests from `inbox`, one each time `work` is called, and posts their events.

    Args:
        engine_factory: See `EngineClient`.
        keep_awake: See `EngineClient`.
        inbox: The requests; None closes the engine and ends the thread.
        outbox: Takes the events.
    """

    posted = Signal()  # the outbox is no longer empty
    _idle_wanted = Signal()

    def __init__(
        self,
        engine_factory: Callable[[], Engine],
        keep_awake: Callable[[], AbstractContextManager[None]],
        inbox: deque[EngineRequest | None],
        outbox: Outbox,
    ) -> None:
        super().__init__()
        self._engine_factory, self._keep_awake = engine_factory, keep_awake
        self._inbox, self._outbox = inbox, outbox
        self._made: Engine | RdchatError | None = None
        self._idle_wanted.connect(self._idle, Qt.ConnectionType.QueuedConnection)  # behind requests that wait

    @Slot()
    def work(self) -> None:
        """Carry out the next request; its last event ends it, unless it is a load that was cancelled."""
        request = self._inbox.popleft()
        if request is None:
            self._finish()
            return
        last: EngineEvent
        try:
            last = self._carry_out(request)
        except _LoadCancelledError:
            return
        except RdchatError as error:
            last = Failure(error.message, error.hint, isinstance(error, DoesNotFitError))
        except Exception:
            what = _WHAT_FAILED[type(request.command)]
            _LOG.exception("%s unexpectedly", what)
            last = Failure(f"{what}: rdchat made a mistake.", _unexpected_hint())
        self._post(request, last)
        self._idle_wanted.emit()

    def _carry_out(self, request: EngineRequest) -> EngineEvent:
        """Do what a request says and post its events but the last one, which is returned."""
        match request.command:
            case LoadModel() as load:
                return self._engine_for(request).load(
                    load.model, load.dtype, lambda progress: self._report_load(request, progress), load.anyway
                )
            case UnloadModel():
                return Unloaded(self._engine_for(request).unload())
            case FindDraftOptions(settings, drafters):
                return self._engine().draft_options(settings, drafters)
            case GenerationRequest() as generation:
                with self._keep_awake():
                    return self._write(request, generation)
            case BenchPlan() as plan:
                with self._keep_awake():
                    return self._measure(request, plan)

    def _engine_for(self, load: EngineRequest) -> Engine:
        if load.cancelled:
            raise _LoadCancelledError
        return self._engine()

    def _report_load(self, request: EngineRequest, progress: LoadProgress) -> None:
        if request.cancelled:
            raise _LoadCancelledError
        self._post(request, progress)

    def _write(self, request: EngineRequest, generation: GenerationRequest) -> ReplyEnd:
        try:
            if request.cancelled:
                raise StoppedError
            iterator = self._engine().generate(generation, lambda: request.cancelled)
        except StoppedError:
            return ReplyEnd(generation.request_id, "", (), "", FinishReason.CANCELLED, Statistics())
        with closing(iterator):
            request.attach(iterator)
            return self._post_tokens(request, iterator)

    def _post_tokens(self, request: EngineRequest, iterator: TokenIterator) -> ReplyEnd:
        statistics, taken = Statistics(), -_STATISTICS_INTERVAL_S
        for event in iterator:
            if (settings := request.take_draft()) is not None:
                iterator.update(settings)
            if isinstance(event, ReplyEnd):
                return event
            if not isinstance(event, TokenEvent):
                self._post(request, event)
                continue
            if (now := time.monotonic()) - taken >= _STATISTICS_INTERVAL_S:
                statistics, taken = iterator.statistics, now
            self._post(request, ReplyProgress(event.text, statistics, (event,)))
        raise AssertionError("the token iterator ended without a ReplyEnd")

    def _measure(self, request: EngineRequest, plan: BenchPlan) -> BenchEnd:
        if not request.cancelled:
            with closing(self._engine().benchmark(plan)) as runner:
                request.attach(runner)
                for event in runner:
                    self._post(request, event)
        return BenchEnd(request.cancelled)

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Count on the calling thread; see `Engine.count_tokens`."""
        made = self._made
        if made is None or isinstance(made, RdchatError):
            raise ModelError("No model is loaded.")
        return made.count_tokens(messages)

    @Slot()
    def _idle(self) -> None:
        """Let the engine do a slice of what can wait, unless there is something to do."""
        if isinstance(self._made, RdchatError) or self._made is None or self._inbox:
            return
        try:
            if self._made.idle():
                self._idle_wanted.emit()
        except Exception:
            _LOG.exception("Warming up or measuring while idle failed")

    def _post(self, request: EngineRequest, event: EngineEvent) -> None:
        if self._outbox.put(request, event):
            self.posted.emit()

    def _finish(self) -> None:
        """Close the engine and end the thread."""
        try:
            if self._made is not None and not isinstance(self._made, RdchatError):
                self._made.close()
        except Exception:
            _LOG.exception("Closing the engine failed")
        finally:
            QThread.currentThread().quit()

    def _engine(self) -> Engine:
        """Return the engine, made on first use: a window is on the screen before MLX is imported here."""
        if self._made is None:
            try:
                self._made = self._engine_factory()
            except Exception as error:
                _LOG.exception("The engine could not be started")
                self._made = RdchatError(f"The engine could not be started: {error}", _unexpected_hint())
        if isinstance(self._made, RdchatError):
            raise RdchatError(self._made.message, self._made.hint)
        return self._made


class _LoadCancelledError(Exception):
    """Ends a load that nobody waits for any more."""


def _unexpected_hint() -> str:
    return f"Try again. If it happens again, please report it with the log, {paths.log_path()}."
