"""The engine and its one model as the main thread sees them: requests go to its thread, and events come back.

Events are delivered 30 times a second. After a time without requests the engine rests, and then unloads the model.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QThread, QTimer, Signal, Slot

from rdchat import host, machine
from rdchat.chat.settings import Settings
from rdchat.inference.api import (
    BenchPlan,
    ChatMessage,
    Dtype,
    Engines,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    SamplingDefaults,
)
from rdchat.services.engine.engine_request import (
    FINAL,
    Command,
    EngineEvent,
    EngineRequest,
    Failure,
    LoadModel,
    Outbox,
    Unloaded,
    UnloadModel,
    Writing,
)
from rdchat.services.engine.engine_worker import EngineWorker, take_merged

# The engine rests after so long without a request. Wiring memory again may take 55 to 77 ms (mlx-lm issue 1435).
_REST_AFTER_MS = 30 * 1000
_MINUTE_MS = 60 * 1000
# Where the person has chosen no time, the model is unloaded after this one on battery, or if memory is short: less than
# this share of it is free.
_USUAL_MINUTES = 15
_SHORT = 0.1
_LOG = logging.getLogger(__name__)
_DELIVERY_INTERVAL_S = 1 / 30
SWITCH_INTERVAL_S = 0.001
"""How long a thread may keep Python from the others while a window is open; Python's own is 0.005.

The main thread draws while the engine thread builds graphs; ADR 0032 has the figures.
"""
_MODEL_CHANGED = "The model was changed in the window."
_PRECISION_CHANGED = "A benchmark in the window needs the model in another precision."
_CLOSING = "rdchat is closing."
_DEAD = Failure("The engine has stopped working.", "Quit rdchat and open it again; your chats are kept.")
_RECENT_MODELS = 8


class EngineClient(QObject):
    """Owns the app's one engine thread. Lives on the main thread; only `shutdown` waits.

    Args:
        engine_factory: Makes the engines; called on the engine thread, on the first request.
        keep_awake: Makes a context that keeps the machine awake; the engine thread enters it to write or to measure.

    Attributes:
        asleep: Whether the model was unloaded because nobody used it. The next request, or `wake`, loads it again.
    """

    thread_died = Signal(Failure)
    request_ended = Signal()
    request_accepted = Signal()
    asleep_changed = Signal()
    # See `EngineWorker`.
    idle_worked = Signal()

    # A request of any thread.
    _directly_submitted = Signal(object)

    def __init__(
        self,
        engine_factory: Callable[[], Engines],
        keep_awake: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__()
        self._inbox: deque[EngineRequest | None] = deque()
        self._outbox: Outbox = deque()
        # Events of the delivery that runs.
        self._due: Outbox = deque()
        # Requests without their last event, oldest first.
        self._open: list[EngineRequest] = []
        self._closing = False
        self._delivered_at = 0.0
        self._delivery = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._delivery.timeout.connect(self._deliver)
        self._worker = EngineWorker(engine_factory, keep_awake, self._inbox, self._outbox)
        self._thread = self._start_thread()
        self._directly_submitted.connect(self._queue)
        # Both count the time without a request.
        self._rest = QTimer(self, singleShot=True)
        self._rest.timeout.connect(lambda: self._worker.chore_requested.emit(lambda engine: engine.rest()))
        self._sleep = QTimer(self, singleShot=True)
        self._sleep.timeout.connect(self._fall_asleep)
        # Minutes until the model is unloaded; see `sleep_after`.
        self._minutes: int | None = None
        self.asleep = False

    def _start_thread(self) -> QThread:
        """Start the engine thread with the worker's event loop."""
        # It has no parent: a thread that hangs must not be destroyed with this object.
        thread = _EngineThread()
        thread.setObjectName("engine")
        # It parses foreign data, which may be nested to any depth.
        thread.setStackSize(host.THREAD_STACK_BYTES)
        self._worker.moveToThread(thread)
        queued = Qt.ConnectionType.QueuedConnection
        self._worker.posted.connect(self._schedule_delivery, queued)
        self._worker.idle_worked.connect(self.idle_worked, queued)
        thread.finished.connect(self._on_thread_finished, queued)
        thread.start()
        return thread

    def submit(
        self, command: Command, on_event: Callable[[EngineEvent], object], *, background: bool = False
    ) -> EngineRequest:
        """Carry out a command behind those submitted before; on the main thread.

        Loading or unloading a model cancels everything before it. A reply or a benchmark that a person waits for
        cancels those of the background, and pauses a direct reply: that goes on afterwards as if nothing had happened.

        Args:
            command: What to do.
            on_event: Called on the main thread with each event; one of the kinds `FINAL` is the last.
            background: Nobody waits for it.
        """
        request = EngineRequest(command, on_event, background)
        self._queue(request)
        return request

    def submit_direct(self, command: Command, on_event: Callable[[EngineEvent], object]) -> EngineRequest:
        """Carry out a command for the server. It differs from those of `submit`:

        - It may be submitted from any thread.
        - `on_event` is called on the engine thread at once, so it must be quick. Only if that thread takes no more
          requests, the `Failure` comes on the main thread.
        - A `FINAL` event comes also after `cancel`, for every kind of command.
        - Loading a model cancels nothing but the background.
        - A `Failure` ends a reply whose model is unloaded.
        - A reply that comes during another direct one pauses that, as a reply for a person does.
        """
        request = EngineRequest(command, on_event, direct=True)
        self._directly_submitted.emit(request)
        return request

    @Slot(object)
    def _queue(self, request: EngineRequest) -> None:
        """Put a request into the inbox, and cancel what it replaces; on the main thread."""
        command = request.command
        if isinstance(command, LoadModel | UnloadModel) and not request.direct:
            self._cancel(self._open, _MODEL_CHANGED)
        elif not request.background and isinstance(command, Writing | LoadModel):
            self._cancel([each for each in self._open if each.background])
            if isinstance(command, BenchPlan) and any(cell.dtype is not Dtype.AUTO for cell in command.all_cells):
                self._cancel([each for each in self._open if each.direct], _PRECISION_CHANGED)
        self._open.append(request)
        self.request_accepted.emit()
        self._stop_idle()
        self._set_asleep(False)
        if not self._closing and self._thread.isRunning():
            self._inbox.append(request)
            self._worker.woken.emit()
        else:
            self._fail(request)

    def set_hidden(self, hidden: bool) -> None:
        """Set whether nobody can see a window; only the writing of caches does not wait until it is seen."""
        self._worker.hidden = hidden
        if not hidden:
            self._worker.woken.emit()

    def sleep_after(self, minutes: int | None) -> None:
        """Unload the model after so many minutes without a request.

        0 is never. None is 15 minutes on battery or if memory is short, and otherwise never.
        """
        if minutes != self._minutes:
            self._minutes = minutes
            self._start_idle()

    def wake(self) -> None:
        """Load the model again if it is asleep: there will be a request soon."""
        if self.asleep:
            self._set_asleep(False)
            self._worker.chore_requested.emit(lambda engine: engine.wake())
            self._start_idle()

    def _start_idle(self) -> None:
        """Count the time without a request from now on."""
        if not (self._open or self._closing or self.asleep):
            minutes = _USUAL_MINUTES if self._minutes is None else self._minutes
            self._rest.start(_REST_AFTER_MS)
            self._sleep.start(minutes * _MINUTE_MS) if minutes else self._sleep.stop()

    def _stop_idle(self) -> None:
        self._rest.stop()
        self._sleep.stop()

    @Slot()
    def _fall_asleep(self) -> None:
        short = machine.available_bytes() < _SHORT * machine.total_bytes()
        if self._minutes is None and not (short or machine.on_battery()):
            self._sleep.start()
            return
        self._worker.chore_requested.emit(lambda engine: engine.sleep())
        self._set_asleep(True)

    def _set_asleep(self, asleep: bool) -> None:
        if asleep != self.asleep:
            self.asleep = asleep
            self.asleep_changed.emit()

    @property
    def measuring(self) -> bool:
        """Whether a benchmark runs or is about to: another request would wait for its end."""
        return any(isinstance(each.command, BenchPlan) for each in self._open)

    @property
    def writing(self) -> bool:
        """Whether a reply or a benchmark runs or waits, for the window or for the server: other work yields to it."""
        return any(isinstance(each.command, Writing) for each in self._open)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        """Count the tokens of a prompt on the calling thread, never the main one: it may take seconds.

        Raises what `Engine.count_tokens` raises.
        """
        return self._worker.count_tokens(prompt)

    def shutdown(self, timeout_s: float = 10.0) -> bool:
        """Stop what runs, free the model, end the thread and deliver its last events.

        Returns:
            False if the thread did not come back in time. It is not terminated: that would leave locks held and
            device memory wired. The process must then be left without destroying Qt's objects (`os._exit`).
        """
        if not self._closing:
            self._closing = True
            self._cancel(self._open, _CLOSING)
            self._inbox.append(None)
            self._worker.woken.emit()
        self._stop_idle()
        ended = self._thread.wait(round(timeout_s * 1000))
        if not ended:
            _LOG.error("The engine thread did not end within %.0f s", timeout_s)
        self._deliver()
        self._delivery.stop()
        return ended

    def _cancel(self, requests: Sequence[EngineRequest], reason: str = "") -> None:
        """Cancel requests, and forget those that have no more events after that."""
        for request in list(requests):
            request.cancel(reason)
            if not (request.direct or isinstance(request.command, Writing)):
                self._open.remove(request)

    def _fail(self, request: EngineRequest) -> None:
        """Deliver a failure for a request that the engine thread will not carry out."""
        self._outbox.append((request, _DEAD))
        self._schedule_delivery()

    @Slot()
    def _schedule_delivery(self) -> None:
        if not self._delivery.isActive():
            wait_s = self._delivered_at + _DELIVERY_INTERVAL_S - time.monotonic()
            self._delivery.start(max(0, math.ceil(wait_s * 1000)))

    @Slot()
    def _deliver(self) -> None:
        """Deliver what has come. One event is taken at a time, so that a callback that shuts down keeps the order.

        Of a direct request only the last event comes here, to close the request. The engine thread has delivered it
        then and set `ended`, unless it comes from `_fail`.
        """
        self._delivered_at = time.monotonic()
        # What the thread writes meanwhile waits for the next delivery.
        for _ in range(len(self._outbox)):
            self._due.append(self._outbox.popleft())
        while self._due:
            request, event = take_merged(self._due)
            if request not in self._open:
                # It was cancelled, or has had its last event.
                continue
            on_event = _ignore if request.ended else request.on_event
            if isinstance(event, FINAL):
                self._open.remove(request)
                # A callback may refer to the request: this leaves no cycle for the garbage collector.
                request.on_event = _ignore
            on_event(event)
            if isinstance(event, FINAL):
                self.request_ended.emit()
                self._start_idle()
        if self._outbox:
            self._schedule_delivery()

    @Slot()
    def _on_thread_finished(self) -> None:
        """Fail the requests that are left open by a thread that ended unexpectedly."""
        if self._closing:
            return
        _LOG.error("The engine thread ended by itself")
        for request in self._open:
            self._fail(request)
        self.thread_died.emit(_DEAD)


class _EngineThread(QThread):
    def run(self) -> None:
        """Run the event loop inside a Python frame.

        Without one, Python makes a thread state for every slot and drops it afterwards, and with it whatever was kept
        in a `threading.local` or a context variable.
        """
        self.exec()


def _ignore(_event: EngineEvent) -> None:
    """Do nothing with an event."""


class ModelSlot(QObject):
    """The app's one model: loads and unloads it, and has its state. Lives on the main thread.

    The window loads models with `load_model`. The server for other programs sends its loads to the engine itself, and
    passes their events to `follow`, so that the window shows that model as its own.

    Attributes:
        chosen: The model that was requested last; None is the default one.
        dtype: The precision that was requested last.
        loading: A model is being loaded, or none was requested yet.
        info: The loaded model.
        failure: Why no model is loaded.
    """

    load_started = Signal()
    load_progressed = Signal(LoadProgress)
    loaded = Signal(ModelInfo)
    failed = Signal(Failure)
    unload_started = Signal()
    # Bytes of memory that were freed; an object, as they may exceed 32 bits.
    unloaded = Signal(object)

    def __init__(self, engine: EngineClient, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.engine = engine
        self.chosen = settings.model
        self.dtype = settings.dtype
        self.loading = True
        self.info: ModelInfo | None = None
        self.failure: Failure | None = None
        # The server's load that the present state comes from; None where the window loaded the model.
        self._followed: EngineRequest | None = None
        # Model and precision to load again if the present load fails; None for none.
        self._before: tuple[str | None, Dtype] | None = None
        engine.thread_died.connect(self._on_event)

    @property
    def name(self) -> str | None:
        """The loaded model's name."""
        return self.info.name if self.info else None

    @property
    def sampling(self) -> SamplingDefaults:
        """The loaded model's sampling where the person chose none."""
        return self.info.sampling if self.info else SamplingDefaults()

    def load_model(
        self, model: str | None, dtype: Dtype | None = None, anyway: bool = False, *, tries: bool = False
    ) -> None:
        """Load a model, None for the default one, in the precision chosen last if none is named.

        Args:
            model: The model.
            dtype: The precision.
            anyway: Whether it is loaded also where it seems too large for the memory.
            tries: Whether the model from before is loaded again if this one fails.
        """
        self._followed = None
        self._before = (self.chosen, self.dtype) if tries and self.info else None
        self._begin_load(model, dtype or self.dtype)
        self.engine.submit(LoadModel(model, self.dtype, anyway), self._on_event)

    def follow(self, request: EngineRequest, event: EngineEvent) -> None:
        """Take an event of a load that the server requested for another program.

        With the first event the state becomes that of this load. If the load fails, the model from before is loaded
        again.
        """
        if request is not self._followed:
            # The person chose another model, which cancelled the load, or the load failed before it began.
            if request.reason or isinstance(event, Failure):
                return
            assert isinstance(request.command, LoadModel)
            self._followed = request
            self._before = (self.chosen, self.dtype) if self.info else None
            self._begin_load(request.command.model, request.command.dtype)
        if isinstance(event, Failure) and self._before is not None:
            self.load_model(*self._before)
        else:
            self._on_event(event)

    def _begin_load(self, model: str | None, dtype: Dtype) -> None:
        """Note that a load begins; there is no model until it ends."""
        self.chosen = model
        self.dtype = dtype
        self.loading = True
        self.info = None
        self.failure = None
        self.load_started.emit()

    def unload_model(self) -> None:
        """Free the loaded model, or give up one that is being loaded; it is loaded again when the app starts."""
        self._followed = None
        self.loading = False
        self.info = None
        self.failure = None
        self.unload_started.emit()
        self.engine.submit(UnloadModel(), self._on_event)

    def retry(self, dtype: Dtype | None = None) -> None:
        """Load the model that was chosen last, perhaps in another precision."""
        self.load_model(self.chosen, dtype)

    def load_anyway(self) -> None:
        """Load the model that was chosen last, although it seems too large for the memory."""
        self.load_model(self.chosen, anyway=True)

    def remembered_in(self, settings: Settings) -> Settings:
        """Return the settings with the model to start with and, if it loaded, with it as the latest one.

        A model that another program loaded is not remembered.
        """
        if self._followed is not None:
            return settings
        model = self.chosen
        recent = settings.recent_models
        if model is not None and self.info is not None:
            recent = (model, *(name for name in recent if name != model))[:_RECENT_MODELS]
        return replace(settings, model=model, dtype=self.dtype, recent_models=recent)

    def _on_event(self, event: EngineEvent) -> None:
        match event:
            case LoadProgress():
                self.load_progressed.emit(event)
            case ModelInfo():
                self.loading = False
                self.info = event
                self.loaded.emit(event)
            case Unloaded():
                self.unloaded.emit(event.freed_bytes)
            case Failure():
                self.loading = False
                self.info = None
                self.failure = event
                self.failed.emit(event)
                if self._before is not None:
                    self.load_model(*self._before)
