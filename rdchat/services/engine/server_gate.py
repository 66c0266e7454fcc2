"""The engine as the HTTP server sees it: the same thread and the same model as the window's."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.server.gate import EngineFailure
from rdchat.services.engine.engine_events import EngineEvent, Failure, ReplyProgress
from rdchat.services.engine.engine_request import EngineRequest, LoadModel
from rdchat.services.engine.model_slot import ModelSlot


class ServerGate(QObject):
    """Implements `EngineGate`. Made on the main thread; its public methods may be called from any.

    Args:
        slot: The one model.
        find_models: Finds the models on this machine.
        draft: Returns how the person wants replies to be drafted; called on the server's thread.
        parent: The Qt parent.
    """

    _load_began = Signal(str)  # a model that the server loads
    _load_went_on = Signal(object)  # an event of it

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
        self._load_began.connect(self._follow)
        self._load_went_on.connect(self._follow)
        slot.loaded.connect(self._on_slot_changed)
        for changed in (slot.load_started, slot.unload_started, slot.failed):
            changed.connect(self._on_slot_changed)

    @property
    def model(self) -> ModelInfo | None:
        """See `EngineGate`."""
        return self._info

    @property
    def draft(self) -> DraftSettings:
        """See `EngineGate`."""
        return self._draft()

    def installed(self) -> Sequence[ModelCard]:
        """See `EngineGate`."""
        return tuple(card for card in self._find_models() if card.can_be_loaded)

    def generate(
        self, request: GenerationRequest, on_event: Callable[[GenerationEvent | EngineFailure], object]
    ) -> EngineRequest:
        """See `EngineGate`."""

        def take(event: EngineEvent) -> None:
            match event:
                case ReplyProgress(tokens=tokens):
                    for token in tokens:
                        on_event(token)
                case PrefillProgress() | ReplyEnd():
                    on_event(event)
                case Failure():
                    on_event(_failure(event))

        return self._slot.engine.submit(request, take, direct=True)

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | EngineFailure], object]) -> EngineRequest:
        """See `EngineGate`. The window shows the load as one of its own."""
        self._info = None
        self._load_began.emit(model.model)

        def take(event: EngineEvent) -> None:
            if isinstance(event, ModelInfo):
                self._info = event
            self._load_went_on.emit(event)
            if isinstance(event, ModelInfo):
                on_end(event)
            elif isinstance(event, Failure):
                on_end(_failure(event))

        return self._slot.engine.submit(LoadModel(model.model or None, self._slot.dtype), take, direct=True)

    @Slot(str)
    @Slot(object)
    def _follow(self, news: str | EngineEvent) -> None:
        """Tell the slot of a load of the server, on the main thread: it lags behind `_info`."""
        self._following = True
        if isinstance(news, str):
            self._slot.begin(news or None)
        else:
            self._slot.take(news)
        self._following = False

    @Slot()
    def _on_slot_changed(self) -> None:
        if not self._following:
            self._info = self._slot.info


def _failure(failure: Failure) -> EngineFailure:
    return EngineFailure(failure.message, failure.hint, failure.refused)
