"""The engine as the HTTP server sees it: the same thread and the same model as the window's."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.server.interfaces.fields import CONTEXT_FULL, ApiError
from rdchat.server.served_models import Stop
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure, LoadModel, ReplyProgress


class SharedEngine(QObject):
    """Implements `ServerEngine`. It is made on the main thread; its public methods may be called from any thread.

    Args:
        slot: The app's one model.
        find_models: Finds the models on this machine.
        draft: Returns how the person wants replies to be drafted; called on the server's thread.
        parent: The Qt parent.
    """

    # The submitted request, and an event of it.
    _load_progressed = Signal(object, object)

    def __init__(
        self,
        slot: ModelSlot,
        find_models: Callable[[], Sequence[ModelCard]],
        draft: Callable[[], DraftSettings] = DraftSettings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._slot = slot
        self.find_models = find_models
        self._draft = draft
        self._info = slot.info
        # Whether the slot takes an event of a load for the server.
        self._following = False
        self._load_progressed.connect(self._follow)
        for changed in (slot.loaded, slot.load_started, slot.unload_started, slot.failed):
            changed.connect(self._on_slot_changed)

    @property
    def model(self) -> ModelInfo | None:
        # What other programs send must not go on to another computer.
        return None if self._info is None or self._info.server else self._info

    @property
    def draft(self) -> DraftSettings:
        return self._draft()

    def installed(self) -> Sequence[ModelCard]:
        return tuple(card for card in self.find_models() if card.can_be_loaded)

    def count_tokens(self, request: GenerationRequest) -> int:
        return self._slot.engine.count_tokens(request)

    def generate(self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object]) -> Stop:
        def take(event: EngineEvent) -> None:
            match event:
                case ReplyProgress(tokens=tokens):
                    for token in tokens:
                        on_event(token)
                case PrefillProgress() | ReplyEnd():
                    on_event(event)
                case Failure():
                    on_event(_error_of(event))

        return self._slot.engine.submit(request, take, direct=True).cancel

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | ApiError], object]) -> Stop:
        """See `ServerEngine`. The window shows the load as one of its own."""
        submitted: Future[EngineRequest] = Future()

        def take(event: EngineEvent) -> None:
            self._info = event if isinstance(event, ModelInfo) else None
            self._load_progressed.emit(submitted, event)
            if isinstance(event, ModelInfo):
                on_end(event)
            elif isinstance(event, Failure):
                on_end(_error_of(event))

        request = self._slot.engine.submit(LoadModel(model.model or None, self._slot.dtype), take, direct=True)
        submitted.set_result(request)
        return request.cancel

    @Slot(object, object)
    def _follow(self, submitted: "Future[EngineRequest]", event: EngineEvent) -> None:
        """Pass an event of the server's load to the slot, on the main thread: it lags behind `_info`."""
        self._following = True
        # The first event may come before `submit` has returned.
        self._slot.follow(submitted.result(), event)
        self._following = False
        if isinstance(event, ModelInfo | Failure):
            self._info = self._slot.info

    @Slot()
    def _on_slot_changed(self) -> None:
        if not self._following:
            self._info = self._slot.info


def _error_of(failure: Failure) -> ApiError:
    code = CONTEXT_FULL if failure.too_long else ""
    return ApiError(400 if failure.refused else 500, f"{failure.message} {failure.hint}".strip(), code=code)
