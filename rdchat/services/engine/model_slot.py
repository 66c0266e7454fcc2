"""The one model of the app: chosen, loading, loaded or failed."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.chat.settings import Settings
from rdchat.inference.api.events import LoadProgress, ModelInfo
from rdchat.inference.api.requests import Dtype, SamplingDefaults
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure, LoadModel, Unloaded, UnloadModel

_RECENT_MODELS = 8


class ModelSlot(QObject):
    """Loads and unloads models, and has the state of the last one.

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
        # The load of another program that the present state comes from, and the model and precision before it.
        self._followed: EngineRequest | None = None
        self._before: tuple[str | None, Dtype] | None = None
        engine.thread_died.connect(self._on_event)

    @property
    def name(self) -> str | None:
        """The loaded model's."""
        return self.info.name if self.info else None

    @property
    def sampling(self) -> SamplingDefaults:
        """The loaded model's sampling where the person chose none."""
        return self.info.sampling if self.info else SamplingDefaults()

    def load(self, model: str | None, dtype: Dtype | None = None, anyway: bool = False) -> None:
        """Load a model, None for the default one, in the precision chosen last if none is named.

        With `anyway` it is loaded also where it seems too large for the memory.
        """
        self._followed = None
        self._begin_load(model, dtype or self.dtype)
        self.engine.submit(LoadModel(model, self.dtype, anyway), self._on_event)

    def follow(self, request: EngineRequest, event: EngineEvent) -> None:
        """Take an event of a load that another program requested. If that fails, the model from before comes back."""
        if request is not self._followed:
            if request.reason or isinstance(event, Failure):  # the person chose another model, or it did not begin
                return
            assert isinstance(request.command, LoadModel)
            self._followed, self._before = request, (self.chosen, self.dtype) if self.info else None
            self._begin_load(request.command.model, request.command.dtype)
        if isinstance(event, Failure) and self._before is not None:
            self.load(*self._before)
        else:
            self._on_event(event)

    def _begin_load(self, model: str | None, dtype: Dtype) -> None:
        self.chosen, self.dtype = model, dtype
        self.loading, self.info, self.failure = True, None, None
        self.load_started.emit()

    def load_precision(self, dtype: Dtype) -> None:
        """Load the model that was chosen last in another precision, also where it did not load in the present one."""
        self.load(self.chosen, dtype)

    def unload(self) -> None:
        """Free the loaded model, or give up one that is being loaded; it is loaded again when the app starts."""
        self._followed = None
        self.loading, self.info, self.failure = False, None, None
        self.unload_started.emit()
        self.engine.submit(UnloadModel(), self._on_event)

    def retry(self) -> None:
        """Load the model that was chosen last."""
        self.load(self.chosen)

    def load_anyway(self) -> None:
        """Load the model that was chosen last, although it seems too large for the memory."""
        self.load(self.chosen, anyway=True)

    def remembered_in(self, settings: Settings) -> Settings:
        """Return the settings with the model to start with and, if it loaded, with it as the latest one.

        A model that another program loaded is not remembered.
        """
        if self._followed is not None:
            return settings
        model, recent = self.chosen, settings.recent_models
        if model is not None and self.info is not None:
            recent = (model, *(name for name in recent if name != model))[:_RECENT_MODELS]
        return replace(settings, model=model, dtype=self.dtype, recent_models=recent)

    def _on_event(self, event: EngineEvent) -> None:
        match event:
            case LoadProgress():
                self.load_progressed.emit(event)
            case ModelInfo():
                self.loading, self.info = False, event
                self.loaded.emit(event)
            case Unloaded():
                self.unloaded.emit(event.freed_bytes)
            case Failure():
                self.loading, self.info, self.failure = False, None, event
                self.failed.emit(event)
