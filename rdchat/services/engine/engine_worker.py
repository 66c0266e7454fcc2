"""What runs on the engine thread: it alone makes, drives and frees the engine."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

from PySide6.QtCore import QObject, Qt, QThread, Signal, Slot

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError, RdchatError
from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.events import FinishReason, LoadProgress, ModelInfo, ReplyEnd, TokenEvent
from rdchat.inference.api.protocol import Engine, StoppedError, TokenIterator
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest
from rdchat.services.engine.engine_events import (
    BenchEnd,
    BenchUpdate,
    EngineEvent,
    Failure,
    LoadEvent,
    LoadRequest,
    ReplyProgress,
    Unloaded,
)
from rdchat.services.engine.open_requests import OpenRequests
from rdchat.services.engine.outbox import Outbox

_LOG = logging.getLogger(__name__)
_STATISTICS_INTERVAL_S = 0.1


class EngineWorker(QObject):
    """Carries out one request after the other. Its slots are reached by queued signals only."""

    posted = Signal()  # the outbox is no longer empty
    _idle_wanted = Signal()

    def __init__(
        self,
        engine_factory: Callable[[], Engine],
        keep_awake: Callable[[], AbstractContextManager[None]],
        requests: OpenRequests,
        outbox: Outbox,
    ) -> None:
        super().__init__()
        self._engine_factory = engine_factory
        self._keep_awake = keep_awake
        self._requests = requests
        self._outbox = outbox
        self._made: Engine | RdchatError | None = None
        self._idle_wanted.connect(self._idle, Qt.ConnectionType.QueuedConnection)  # behind requests that wait

    @Slot(object)
    def load(self, request: LoadRequest) -> None:
        """Replace the loaded model, unless a newer load was asked for meanwhile."""

        def report(progress: LoadProgress) -> None:
            if not self._requests.is_latest_load(request.load_id):
                raise _LoadSupersededError
            self._post(LoadEvent(request.load_id, progress))

        outcome: ModelInfo | Failure
        try:
            if not self._requests.is_latest_load(request.load_id):
                return
            outcome = self._engine().load(request.model, request.dtype, report, request.anyway)
        except _LoadSupersededError:
            return
        except RdchatError as error:
            outcome = Failure(None, error.message, error.hint, isinstance(error, DoesNotFitError))
        except Exception:
            _LOG.exception("Loading a model failed unexpectedly")
            outcome = Failure(None, "The model did not load: rdchat made a mistake.", _unexpected_hint())
        self._post(LoadEvent(request.load_id, outcome))
        self._idle_wanted.emit()

    @Slot(int)
    def unload(self, load_id: int) -> None:
        """Free the model, unless one was asked for meanwhile."""
        outcome: Unloaded | Failure
        try:
            if not self._requests.is_latest_load(load_id):
                return
            outcome = Unloaded(self._engine().unload())
        except RdchatError as error:
            outcome = Failure(None, error.message, error.hint)
        except Exception:
            _LOG.exception("Unloading a model failed unexpectedly")
            outcome = Failure(None, "The model was not unloaded: rdchat made a mistake.", _unexpected_hint())
        self._post(LoadEvent(load_id, outcome))

    @Slot(object)
    def generate(self, request: GenerationRequest) -> None:
        """Write one reply; exactly one `ReplyEnd` or `Failure` ends it."""
        self._carry_out(request.request_id, lambda: self._write(request), "The reply broke off")

    @Slot(int, object)
    def benchmark(self, request_id: int, plan: BenchPlan) -> None:
        """Run a benchmark; exactly one `BenchEnd` or `Failure` ends it."""
        self._carry_out(request_id, lambda: self._measure(request_id, plan), "The benchmark broke off")

    @Slot(object, object)
    def tell_options(self, settings: DraftSettings, drafters: Sequence[str]) -> None:
        """Post what the loaded model can be drafted with, and which drafters fit it; without a model, nothing."""
        try:
            self._post(self._engine().draft_options(settings, drafters))
        except RdchatError as error:
            _LOG.info("No draft options: %s", error)

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Count on the calling thread; see `Engine.count_tokens`."""
        made = self._made
        if made is None or isinstance(made, RdchatError):
            raise ModelError("No model is loaded.")
        return made.count_tokens(messages)

    def _carry_out(self, request_id: int, work: Callable[[], EngineEvent], broke_off: str) -> None:
        try:
            with self._keep_awake():
                last = work()
        except RdchatError as error:
            last = Failure(request_id, error.message, error.hint)
        except Exception:
            _LOG.exception("Request %d failed unexpectedly", request_id)
            last = Failure(request_id, f"{broke_off}: rdchat made a mistake.", _unexpected_hint())
        self._requests.remove(request_id)
        self._post(last)
        self._idle_wanted.emit()

    @Slot()
    def _idle(self) -> None:
        """Let the engine do a slice of what can wait, unless there is something to do."""
        if isinstance(self._made, RdchatError) or self._made is None or self._requests.ids():
            return
        try:
            if self._made.idle():
                self._idle_wanted.emit()
        except Exception:
            _LOG.exception("Warming up or measuring while idle failed")

    @Slot()
    def finish(self) -> None:
        """Close the engine and end the thread."""
        try:
            if isinstance(self._made, RdchatError) or self._made is None:
                return
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

    def _write(self, request: GenerationRequest) -> EngineEvent:
        """Post a reply's events but the last one, which is returned."""
        request_id = request.request_id
        try:
            iterator = self._begin(request)
        except StoppedError:
            return ReplyEnd(request_id, "", (), "", FinishReason.CANCELLED, Statistics())
        with closing(iterator):
            self._requests.attach(request_id, iterator)
            return self._relay(request_id, iterator)

    def _begin(self, request: GenerationRequest) -> TokenIterator:
        def stopped() -> bool:
            return self._requests.is_stopped(request.request_id)

        if stopped():
            raise StoppedError
        return self._engine().generate(request, stopped)

    def _measure(self, request_id: int, plan: BenchPlan) -> BenchEnd:
        if self._requests.is_stopped(request_id):
            return BenchEnd(request_id, stopped=True)
        with closing(self._engine().benchmark(plan)) as runner:
            self._requests.attach(request_id, runner)
            for event in runner:
                self._post(BenchUpdate(request_id, event))
        return BenchEnd(request_id, self._requests.is_stopped(request_id))

    def _relay(self, request_id: int, iterator: TokenIterator) -> ReplyEnd:
        statistics, taken = Statistics(), -_STATISTICS_INTERVAL_S
        for event in iterator:
            if (settings := self._requests.take_update(request_id)) is not None:
                iterator.update(settings)
            if isinstance(event, ReplyEnd):
                return event
            if not isinstance(event, TokenEvent):
                self._post(event)
                continue
            if (now := time.monotonic()) - taken >= _STATISTICS_INTERVAL_S:
                statistics, taken = iterator.statistics, now
            self._post(ReplyProgress(request_id, event.text, statistics, (event,)))
        raise AssertionError("the token iterator ended without a ReplyEnd")

    def _post(self, event: EngineEvent) -> None:
        if self._outbox.put(event):
            self.posted.emit()


class _LoadSupersededError(Exception):
    """Ends a load that nobody waits for any more."""


def _unexpected_hint() -> str:
    return f"Try again. If it happens again, please report it with the log, {paths.log_path()}."
