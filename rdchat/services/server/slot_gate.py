"""The engine behind the server: the app's one engine thread and its one model."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject

from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.server.gate import Cancellable, EngineFailure
from rdchat.services.background.background_work import MainThread
from rdchat.services.engine.engine_events import EngineEvent, Failure, ReplyProgress
from rdchat.services.engine.engine_request import EngineRequest, LoadModel
from rdchat.services.engine.model_slot import ModelSlot

_STOPPED = EngineFailure("rdchat's server was stopped.", "Start it again in rdchat's settings.")


class SlotGate:
    """Implements `EngineGate`. Made and closed on the main thread; the server calls the rest from its own threads.

    Args:
        slot: The model, shared with the window.
        installed: Finds the models on this machine.
        draft: Returns how the person wants replies to be drafted.
        parent: The Qt parent of what brings events to the main thread.
    """

    def __init__(
        self,
        slot: ModelSlot,
        installed: Callable[[], Sequence[ModelCard]],
        draft: Callable[[], DraftSettings],
        parent: QObject | None = None,
    ) -> None:
        self._slot, self._installed, self._draft = slot, installed, draft
        self._main = MainThread(parent)
        self._guard = threading.Lock()
        self._closed = False
        self._open: dict[_Listener, Cancellable] = {}  # requests without their last event

    @property
    def model(self) -> ModelInfo | None:
        """See `EngineGate`."""
        return self._slot.info

    @property
    def draft(self) -> DraftSettings:
        """See `EngineGate`."""
        return replace(self._draft(), trace=False, profile=False)

    def installed(self) -> Sequence[ModelCard]:
        """See `EngineGate`."""
        return [card for card in self._installed() if card.can_be_loaded]

    def generate(
        self, request: GenerationRequest, on_event: Callable[[GenerationEvent | EngineFailure], object]
    ) -> Cancellable:
        """See `EngineGate`."""

        def take(event: EngineEvent) -> None:
            match event:
                case ReplyProgress(tokens=tokens):
                    for token in tokens:
                        listener.pass_on(token)
                case PrefillProgress():
                    listener.pass_on(event)
                case ReplyEnd():
                    self._end(listener, event)
                case Failure():
                    self._end(listener, _failure(event))

        listener = _Listener(on_event)
        return self._begin(listener, lambda: self._slot.engine.submit(request, take, direct=True))

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | EngineFailure], object]) -> Cancellable:
        """See `EngineGate`. `on_end` is called on the main thread, once the window shows the model.

        A load is not cancelled with its request: another would have to follow, since the model from before is gone.
        """
        listener = _Listener(on_end)
        load = _Load()

        def follow(event: EngineEvent) -> None:
            with self._guard:
                request = load.request
            if request is not None:
                self._slot.follow(request, event)
            if isinstance(event, ModelInfo | Failure):
                self._end(listener, event if isinstance(event, ModelInfo) else _failure(event))

        def submit() -> Cancellable:
            command = LoadModel(model.model or None, self._slot.dtype)
            load.request = self._slot.engine.submit(command, self._main.bring(follow), direct=True)
            return load

        return self._begin(listener, submit)

    def close(self) -> None:
        """End all requests with a failure, and refuse others: the engine thread need not answer any more."""
        with self._guard:
            self._closed = True
            open_, self._open = self._open, {}
        for listener, request in open_.items():
            request.cancel()
            listener.pass_on(_STOPPED, last=True)

    def _begin(self, listener: "_Listener", submit: Callable[[], Cancellable]) -> Cancellable:
        with self._guard:
            if not self._closed:
                request = self._open[listener] = submit()
                return request
        listener.pass_on(_STOPPED, last=True)
        return _Load()

    def _end(self, listener: "_Listener", event: object) -> None:
        with self._guard:
            self._open.pop(listener, None)
        listener.pass_on(event, last=True)


class _Load:
    """A load, which goes on."""

    request: EngineRequest | None = None

    def cancel(self) -> None:
        """See `Cancellable`."""


class _Listener:
    """Passes the events of a request on, until the last one."""

    def __init__(self, on_event: Callable[..., object]) -> None:
        self._guard = threading.Lock()
        self._on_event: Callable[..., object] | None = on_event

    def pass_on(self, event: object, *, last: bool = False) -> None:
        """Pass an event on from any thread; those behind the last one are dropped."""
        with self._guard:
            on_event = self._on_event
            if last:
                self._on_event = None
            if on_event is not None:
                on_event(event)


def _failure(failure: Failure) -> EngineFailure:
    return EngineFailure(failure.message, failure.hint, failure.refused)
