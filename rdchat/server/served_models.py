"""The engine as the server sees it, and the models that clients may name."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rdchat.errors import one_line
from rdchat.inference.api import DraftSettings, GenerationEvent, GenerationRequest, ModelCard, ModelInfo
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.server_settings import ServerSettings

# How long a list of the installed models is used.
_LIST_SECONDS = 10.0

Stop = Callable[[], object]
"""Asks for an early end, from any thread. The last event still comes. A later call does nothing."""


class ServerEngine(Protocol):
    """The engine as the server sees it. All methods may be called from any thread, and none waits but `installed` and
    `count_tokens`.
    """

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model; None where none is loaded."""

    @property
    def draft(self) -> DraftSettings:
        """How the person wants replies to be drafted."""

    def installed(self) -> Sequence[ModelCard]:
        """Find the models on this machine that can be loaded. This may take seconds."""

    def count_tokens(self, request: GenerationRequest) -> int:
        """Count the tokens of a request's prompt, which may take seconds; raises RdchatError if it cannot be done."""

    def generate(self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object]) -> Stop:
        """Begin a reply.

        Args:
            request: The request.
            on_event: Called on the engine thread with each event, so it must be quick. The last one is a `ReplyEnd`, or
                the error that ended the reply.
        """

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | ApiError], object]) -> Stop:
        """Load an installed model in place of the present one; `on_end` is called once, on the engine thread."""


class ServedModels:
    """Finds the model that answers for a name.

    Args:
        settings: They say which models may be loaded, and whether the loaded one answers for unknown names.
        engine: The engine.
    """

    def __init__(self, settings: ServerSettings, engine: ServerEngine) -> None:
        self._settings = settings
        self._engine = engine
        # Stands for the time of a model's last change where that is not known.
        self._since = time.time()
        # When the installed models were last listed, and the list.
        self._listed_at = float("-inf")
        self._cards = tuple[ModelCard, ...]()
        # A search starts a process, so requests that come at once wait for the same one.
        self._searching = asyncio.Lock()

    async def installed(self) -> tuple[ModelCard, ...]:
        """Return the installed models that can be loaded."""
        async with self._searching:
            if time.monotonic() - self._listed_at > _LIST_SECONDS:
                self._cards = tuple(await asyncio.to_thread(self._engine.installed))
                self._listed_at = time.monotonic()
            return self._cards

    async def listed(self) -> dict[str, float]:
        """Return the names that a client may use, with the time of each model's last change in seconds since 1970.

        The loaded model is the first.
        """
        info = self._engine.model
        models = {info.name: self._since} if info else {}
        if self._settings.may_load_models:
            models |= {card.name: card.changed or self._since for card in await self.installed()}
        return models

    async def card_to_load(self, name: str) -> ModelCard | None:
        """Return the installed model that must be loaded for a request that names a model.

        None where the loaded model answers: none is named, it is the named one (by its name, or by its path), or it
        answers in place of one that is not installed (`substitutes_models`).

        Raises:
            ApiError: If the named one is not installed and no other may answer, or if it may not be loaded.
        """
        info = self._engine.model
        if info is not None and name in ("", info.name):
            return None
        if not name:
            raise no_model()
        card = next((each for each in await self.installed() if each.name == name), None)
        if card is None and info is not None and self._settings.substitutes_models:
            return None
        if card is None:
            text = f"There is no model named {one_line(name)[:200]!r} here. /v1/models lists the names."
            raise ApiError(404, text, "model", "model_not_found")
        if info is not None and card.path == info.path:
            return None
        if not self._settings.may_load_models:
            loaded = f"{info.name} is" if info else "no model is"
            raise ApiError(
                404, f"{name} is not loaded: {loaded}. The server may not load models.", "model", "model_not_found"
            )
        return card

    def substitute(self, name: str) -> str:
        """Return the loaded model's name if it answers in place of another one, which is not installed; else empty.

        The installed models are those that `card_to_load` listed for the same request.
        """
        info = self._engine.model
        if info is None or name in ("", info.name, *(card.name for card in self._cards)):
            return ""
        return info.name


def no_model() -> ApiError:
    """Return the error for a request that no model can answer."""
    return ApiError(503, "No model is loaded.", headers={"retry-after": "5"})
