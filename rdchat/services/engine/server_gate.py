"""The engine as the HTTP server sees it: the same thread and the same model as the window's."""

import threading
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.server.gate import Cancellable, EngineFailure
from rdchat.services.engine.engine_events import EngineEvent, Failure, ReplyProgress
from rdchat.services.engine.engine_request import EngineRequest, LoadModel
from rdchat.services.engine.model_slot import ModelSlot

_CLOSED = EngineFailure("rdchat's server was stopped.", "Try again when it runs.", closing=True)


class ServerGate(QObject):
    """Implements `EngineGate`. Made on the main thread; its public methods may be called from any.

    Args:
        slot: The one model.
        find_models: Finds the models on this machine.
        draft: Returns how the person wants replies to be drafted; called on the server's thread.
        parent: The Qt parent.
    """

    _load_went_on = Signal(object, object)  # a load of the server, and an event of it

    def __init__(
        self,
        slot: ModelSlot,
        find_models: Callable[[], Sequence[ModelCard]],
        draft: Callable[[], DraftSettings] = DraftSettings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._slot, self._find_models, self._draft = slot, find_models, draft
        self._info = slot.info
        self._following = False  # whether the slot is being told of a load of the server
        self._guard = threading.Lock()
        self._open: dict[_Listener, Cancellable] = {}  # requests without their last event
        self._closed = False
        self._load_went_on.connect(self._follow)
        for changed in (slot.loaded, slot.load_started, slot.unload_started, slot.failed):
            changed.connect(self._on_slot_changed)

    @property
    def model(self) -> ModelInfo | None:
        return self._info

    @property
    def draft(self) -> DraftSettings:
        return self._draft()

    def installed(self) -> Sequence[ModelCard]:
        return tuple(card for card in self._find_models() if card.can_be_loaded)

    def count_tokens(self, request: GenerationRequest) -> int:
        return self._slot.engine.count_tokens(request)

    def generate(
        self, request: GenerationRequest, on_event: Callable[[GenerationEvent | EngineFailure], object]
    ) -> Cancellable:
        listener = _Listener(on_event)

        def take(event: EngineEvent) -> None:
            match event:
                case ReplyProgress(tokens=tokens):
                    for token in tokens:
                        listener.pass_on(token)
                case PrefillProgress():
                    listener.pass_on(event)
                case ReplyEnd() | Failure():
                    self._end(listener, event)

        return self._begin(listener, lambda: self._slot.engine.submit(request, take, direct=True))

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | EngineFailure], object]) -> Cancellable:
        """See `EngineGate`. The window shows the load as one of its own."""
        listener, load = _Listener(on_end), _Load()

        def take(event: EngineEvent) -> None:
            self._info = event if isinstance(event, ModelInfo) else None
            self._load_went_on.emit(load, event)
            if isinstance(event, ModelInfo | Failure):
                self._end(listener, event)

        def submit() -> EngineRequest:
            command = LoadModel(model.model or None, self._slot.dtype)
            load.request = self._slot.engine.submit(command, take, direct=True)
            return load.request

        return self._begin(listener, submit)

    def close(self) -> None:
        """End all requests with a failure, and refuse others; the engine thread may be busy with something else."""
        with self._guard:
            self._closed = True
            open_, self._open = self._open, {}
        for listener, request in open_.items():
            request.cancel()
            listener.pass_on(_CLOSED, last=True)

    def _begin(self, listener: "_Listener", submit: Callable[[], Cancellable]) -> Cancellable:
        with self._guard:
            if not self._closed:
                request = self._open[listener] = submit()
                return request
        listener.pass_on(_CLOSED, last=True)
        return listener

    def _end(self, listener: "_Listener", event: EngineEvent) -> None:
        with self._guard:
            self._open.pop(listener, None)
        if isinstance(event, Failure):
            listener.pass_on(EngineFailure(event.message, event.hint, event.refused, event.too_long), last=True)
        else:
            listener.pass_on(event, last=True)

    @Slot(object, object)
    def _follow(self, load: "_Load", event: EngineEvent) -> None:
        """Tell the slot of a load of the server, on the main thread: it lags behind `_info`."""
        with self._guard:  # the request is there once it is submitted
            request = load.request
        assert request is not None
        self._following = True
        self._slot.follow(request, event)
        self._following = False
        if isinstance(event, ModelInfo | Failure):
            self._info = self._slot.info

    @Slot()
    def _on_slot_changed(self) -> None:
        if not self._following:
            self._info = self._slot.info


class _Load:
    """A load of the server."""

    request: EngineRequest | None = None


class _Listener:
    """Passes the events of a request on, until the last one."""

    def __init__(self, on_event: Callable[..., object]) -> None:
        self._guard = threading.Lock()
        self._on_event: Callable[..., object] | None = on_event

    def cancel(self) -> None:
        """See `Cancellable`: a request that was refused has ended."""

    def pass_on(self, event: object, *, last: bool = False) -> None:
        """Pass an event on, from any thread; those behind the last one are dropped."""
        with self._guard:
            on_event = self._on_event
            if last:
                self._on_event = None
            if on_event is not None:
                on_event(event)
