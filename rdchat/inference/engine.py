"""The engine as the engine thread drives it: one model at a time, one reply at a time."""

import gc
from collections.abc import Callable

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.events import LoadProgress, ModelInfo
from rdchat.inference.loading import load_model
from rdchat.inference.protocol import TokenIterator
from rdchat.inference.requests import Dtype, GenerationRequest
from rdchat.inference.session import ChatSession


class LocalEngine:
    """Implements `rdchat.inference.protocol.Engine` in this process. All calls belong to one thread (MLX's rule)."""

    def __init__(self) -> None:
        self._session: ChatSession | None = None

    def load(self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None]) -> ModelInfo:
        """See `Engine`."""
        self.unload()  # first: two models may not fit
        loaded = load_model(model, dtype, on_progress)
        on_progress(LoadProgress("Warming up", None))
        self._session = ChatSession(loaded)
        self._session.warm_up()
        gc.collect()
        gc.freeze()  # hundreds of thousands of long-lived objects: a collection over them would stop the window
        return loaded.info

    def generate(self, request: GenerationRequest) -> TokenIterator:
        """See `Engine`."""
        if self._session is None:
            raise ModelError("No model is loaded.", "Pick one from the menu above the chat.")
        return self._session.generate(request)

    def unload(self) -> None:
        """See `Engine`."""
        self._session = None
        gc.unfreeze()
        gc.collect()
        mx.clear_cache()
