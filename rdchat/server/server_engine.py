"""What the server needs of the engine; `services` has the implementation for the window and the command."""

from collections.abc import Callable, Sequence
from typing import Protocol

from rdchat.inference.api.events import GenerationEvent, ModelInfo
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.server.interfaces.api_error import ApiError

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
