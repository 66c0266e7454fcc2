"""The one model of the app: asked for, loading, loaded or failed."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.settings import Settings
from rdchat.inference.api.events import LoadProgress, ModelInfo
from rdchat.inference.api.requests import Dtype
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import Failure, Unloaded

_RECENT_MODELS = 8


class ModelSlot(QObject):
    """Follows the loading of models. `unloaded` carries the bytes of memory that came back.

    Attributes:
        chosen: The model asked for last, loaded or not; None is the default one.
        dtype: The precision asked for last.
        loading: A model is being loaded, or none was asked for yet.
        info: The loaded model.
        failure: Why there is none.
        unloading: The model is being freed.
    """

    load_started = Signal()
    load_progressed = Signal(LoadProgress)
    loaded = Signal(ModelInfo)
    failed = Signal(Failure)
    unload_started = Signal()
    unloaded = Signal(object)  # a whole number that may be beyond 32 bits

    def __init__(self, engine: EngineClient, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self.chosen = settings.model
        self.dtype = settings.dtype
        self.loading = True
        self.info: ModelInfo | None = None
        self.failure: Failure | None = None
        self.unloading = False
        engine.load_progressed.connect(self.load_progressed)
        engine.model_loaded.connect(self._on_loaded)
        engine.model_failed.connect(self._on_failed)
        engine.model_unloaded.connect(self._on_unloaded)

    @property
    def name(self) -> str | None:
        """The loaded model's."""
        return self.info.name if self.info else None

    def load(self, model: str | None, dtype: Dtype | None = None, anyway: bool = False) -> None:
        """Load a model, None for the default one, in the precision chosen last if none is named.

        With `anyway` it is loaded also where it seems too large for the memory.
        """
        self.chosen, self.dtype = model, dtype or self.dtype
        self.loading, self.info, self.failure, self.unloading = True, None, None, False
        self.load_started.emit()
        self._engine.load_model(model, self.dtype, anyway)

    def load_precision(self, dtype: Dtype) -> None:
        """Load the model that was chosen last in another precision, also where it did not load in the present one."""
        self.load(self.chosen, dtype)

    def unload(self) -> None:
        """Free the loaded model, or give up one that is being loaded; it is loaded again when the app starts."""
        self.loading, self.info, self.failure, self.unloading = False, None, None, True
        self.unload_started.emit()
        self._engine.unload_model()

    def retry(self) -> None:
        """Load what was asked for last."""
        self.load(self.chosen)

    def load_anyway(self) -> None:
        """Load what was asked for last, although it seems too large for the memory."""
        self.load(self.chosen, anyway=True)

    def remembered_in(self, settings: Settings) -> Settings:
        """Return the settings with what was asked for last to start with, and, if it loaded, as the latest one."""
        model, recent = self.chosen, settings.recent_models
        if model is not None and self.info is not None:
            recent = (model, *(name for name in recent if name != model))[:_RECENT_MODELS]
        return replace(settings, model=model, dtype=self.dtype, recent_models=recent)

    @Slot(ModelInfo)
    def _on_loaded(self, info: ModelInfo) -> None:
        self.loading, self.info = False, info
        self.loaded.emit(info)

    @Slot(Unloaded)
    def _on_unloaded(self, told: Unloaded) -> None:
        self.unloading = False
        self.unloaded.emit(told.freed_bytes)

    @Slot(Failure)
    def _on_failed(self, failure: Failure) -> None:
        self.loading, self.info, self.failure, self.unloading = False, None, failure, False
        self.failed.emit(failure)
