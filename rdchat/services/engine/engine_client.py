"""The engine as the main thread sees it: requests go in as calls, events come out as signals."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from PySide6.QtCore import QObject, Qt, QThread, QTimer, Signal, Slot

from rdchat import host
from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.events import DraftOptions, LoadProgress, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.protocol import Engine
from rdchat.inference.api.requests import ChatMessage, DraftSettings, Dtype, GenerationRequest
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
from rdchat.services.engine.engine_worker import EngineWorker
from rdchat.services.engine.open_requests import OpenRequests
from rdchat.services.engine.outbox import Outbox

_LOG = logging.getLogger(__name__)
_DELIVERY_INTERVAL_S = 1 / 30


class EngineClient(QObject):
    """Owns the one engine thread of the app's life. Lives on the main thread; nothing here waits but `shutdown`.

    Args:
        engine_factory: Makes the engine; called on the engine thread, on the first request.
        keep_awake: Makes a context that holds off sleep; entered there while a reply is written.
        parent: The Qt parent.
    """

    load_progressed = Signal(LoadProgress)
    model_loaded = Signal(ModelInfo)
    model_failed = Signal(Failure)
    model_unloaded = Signal(Unloaded)
    prefill_progressed = Signal(PrefillProgress)
    reply_progressed = Signal(ReplyProgress)
    reply_finished = Signal(ReplyEnd)
    reply_failed = Signal(Failure)
    aside_progressed = Signal(object)  # ReplyProgress or PrefillProgress
    aside_ended = Signal(int, object)  # request id; its ReplyEnd or Failure
    options_told = Signal(DraftOptions)
    bench_progressed = Signal(BenchUpdate)
    bench_finished = Signal(BenchEnd)

    _load_requested = Signal(object)
    _unload_requested = Signal(int)
    _generation_requested = Signal(object)
    _options_requested = Signal(object, object)
    _benchmark_requested = Signal(int, object)
    _finish_requested = Signal()

    def __init__(
        self,
        engine_factory: Callable[[], Engine],
        keep_awake: Callable[[], AbstractContextManager[None]],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._requests = OpenRequests()
        self._outbox = Outbox()
        self._closing = False
        self._load_id = 0
        self._last_request_id = 0
        self._benchmarks: set[int] = set()  # under way, or waiting for it
        self._asides: set[int] = set()  # likewise
        self._delivered_at = 0.0
        self._delivery = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._delivery.timeout.connect(self._deliver)
        self._worker = EngineWorker(engine_factory, keep_awake, self._requests, self._outbox)
        self._thread = self._start_thread()

    def _start_thread(self) -> QThread:
        thread = _EngineThread()  # no parent: a thread that hangs must not be destroyed with this object
        thread.setObjectName("engine")
        thread.setStackSize(host.THREAD_STACK_BYTES)  # it loads and parses what strangers nested as deep as they liked
        self._worker.moveToThread(thread)
        queued = Qt.ConnectionType.QueuedConnection
        self._load_requested.connect(self._worker.load, queued)
        self._unload_requested.connect(self._worker.unload, queued)
        self._generation_requested.connect(self._worker.generate, queued)
        self._options_requested.connect(self._worker.tell_options, queued)
        self._benchmark_requested.connect(self._worker.benchmark, queued)
        self._finish_requested.connect(self._worker.finish, queued)
        self._worker.posted.connect(self._schedule_delivery, queued)
        thread.finished.connect(self._on_thread_finished, queued)
        thread.start()
        return thread

    def load_model(self, model: str | None, dtype: Dtype, anyway: bool = False) -> None:
        """Load a model in place of the present one; replies under way are stopped, an earlier load is given up.

        With `anyway` it is loaded also where it seems too large for the memory.
        """
        self._requests.stop_all()
        self._load_id = self._requests.begin_load()
        if self._is_alive():
            self._load_requested.emit(LoadRequest(self._load_id, model, dtype, anyway))
        else:
            self._post(LoadEvent(self._load_id, _dead(None)))

    def unload_model(self) -> None:
        """Free the model; replies under way are stopped, a load is given up."""
        self._requests.stop_all()
        self._load_id = self._requests.begin_load()
        if self._is_alive():
            self._unload_requested.emit(self._load_id)
        else:
            self._post(LoadEvent(self._load_id, _dead(None)))

    @property
    def measuring(self) -> bool:
        """Whether a benchmark runs or is about to: what is asked for now would wait for its end."""
        return bool(self._benchmarks)

    def new_request_id(self) -> int:
        """Return an id that no request had before."""
        self._last_request_id += 1
        return self._last_request_id

    def generate(self, request: GenerationRequest) -> None:
        """Write a reply, after those asked for before; what is written aside gives way to it."""
        self.stop_asides()
        self._generate(request)

    def generate_aside(self, request: GenerationRequest) -> None:
        """Write something that nobody waits for; any other request stops it. Only signals of its own tell of it."""
        self._asides.add(request.request_id)
        self._generate(request)

    def stop_asides(self) -> None:
        """Stop what nobody waits for."""
        for request_id in self._asides:
            self._requests.stop(request_id)

    def _generate(self, request: GenerationRequest) -> None:
        if self._is_alive():
            self._requests.add(request.request_id)
            self._generation_requested.emit(request)
        else:
            self._post(_dead(request.request_id))

    def update_draft(self, request_id: int, settings: DraftSettings) -> None:
        """Draft a running reply by other settings from its next round on; see `TokenIterator.update`."""
        self._requests.update(request_id, settings)

    def ask_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> None:
        """Ask what the loaded model can be drafted with, and which of some drafters fit it.

        `options_told` answers where a model is loaded.
        """
        if self._is_alive():
            self._options_requested.emit(settings, tuple(drafters))

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Count the tokens of a conversation on the calling thread, never the main one: it may take seconds.

        Raises what `Engine.count_tokens` raises.
        """
        return self._worker.count_tokens(messages)

    def benchmark(self, request_id: int, plan: BenchPlan) -> None:
        """Run a benchmark after what was asked for before; `bench_finished` or `reply_failed` ends it."""
        self.stop_asides()
        self._benchmarks.add(request_id)
        if self._is_alive():
            self._requests.add(request_id)
            self._benchmark_requested.emit(request_id, plan)
        else:
            self._post(_dead(request_id))

    def stop(self, request_id: int) -> None:
        """Stop a reply or a benchmark wherever it stands; a reply ends with `reply_finished` as cancelled."""
        self._requests.stop(request_id)

    def shutdown(self, timeout_s: float = 10.0) -> bool:
        """Stop what runs, free the model, end the thread and deliver its last events.

        Returns:
            False if the thread did not come back in time. It is not terminated: that would leave locks held and
            device memory wired. The process must then be left without destroying Qt's objects (`os._exit`).
        """
        if not self._closing:
            self._closing = True
            self._requests.stop_all()
            self._requests.begin_load()
            self._finish_requested.emit()
        ended = self._thread.wait(round(timeout_s * 1000))
        if not ended:
            _LOG.error("The engine thread did not end within %.0f s", timeout_s)
        self._deliver()
        self._delivery.stop()
        return ended

    def _is_alive(self) -> bool:
        return not self._closing and self._thread.isRunning()

    def _post(self, event: EngineEvent) -> None:
        self._outbox.put(event)
        self._schedule_delivery()

    @Slot()
    def _schedule_delivery(self) -> None:
        if not self._delivery.isActive():
            wait_s = self._delivered_at + _DELIVERY_INTERVAL_S - time.monotonic()
            self._delivery.start(max(0, math.ceil(wait_s * 1000)))

    @Slot()
    def _deliver(self) -> None:
        """Emit what has come. One event is taken at a time, so that a slot that shuts down keeps the order."""
        self._delivered_at = time.monotonic()
        for _ in range(len(self._outbox)):
            if (event := self._outbox.take()) is not None:
                self._emit(event)
        if len(self._outbox):
            self._schedule_delivery()

    def _emit(self, event: EngineEvent) -> None:
        if isinstance(event, ReplyProgress | PrefillProgress | ReplyEnd | Failure) and event.request_id in self._asides:
            self._emit_aside(event)
            return
        match event:
            case ReplyProgress():
                self.reply_progressed.emit(event)
            case PrefillProgress():
                self.prefill_progressed.emit(event)
            case ReplyEnd():
                self.reply_finished.emit(event)
            case Failure():
                self._benchmarks -= {event.request_id}
                self.reply_failed.emit(event)
            case DraftOptions():
                self.options_told.emit(event)
            case BenchUpdate():
                self.bench_progressed.emit(event)
            case BenchEnd():
                self._benchmarks -= {event.request_id}
                self.bench_finished.emit(event)
            case LoadEvent() if event.load_id == self._load_id:
                self._emit_load(event.event)

    def _emit_aside(self, event: ReplyProgress | PrefillProgress | ReplyEnd | Failure) -> None:
        if isinstance(event, ReplyEnd | Failure) and event.request_id is not None:
            self._asides -= {event.request_id}
            self.aside_ended.emit(event.request_id, event)
        else:
            self.aside_progressed.emit(event)

    def _emit_load(self, event: LoadProgress | ModelInfo | Unloaded | Failure) -> None:
        match event:
            case LoadProgress():
                self.load_progressed.emit(event)
            case Unloaded():
                self.model_unloaded.emit(event)
            case ModelInfo():
                self.model_loaded.emit(event)
            case Failure():
                self.model_failed.emit(event)

    @Slot()
    def _on_thread_finished(self) -> None:
        """Fail what a thread left open that ended without being asked to."""
        if self._closing:
            return
        _LOG.error("The engine thread ended by itself")
        for request_id in self._requests.ids():
            self._requests.remove(request_id)
            self._post(_dead(request_id))
        self._post(LoadEvent(self._load_id, _dead(None)))


class _EngineThread(QThread):
    def run(self) -> None:
        """Run the event loop inside a Python frame.

        Without one, Python makes a thread state for every slot and drops it afterwards, and with it whatever was kept
        in a `threading.local` or a context variable.
        """
        self.exec()


def _dead(request_id: int | None) -> Failure:
    return Failure(request_id, "The engine has stopped working.", "Quit rdchat and open it again; your chats are kept.")
