"""An engine without a model, for benchmarks: it writes any reply that it is given."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.inference.api.benchmark import BenchPlan, BenchRunner
from rdchat.inference.api.events import (
    DraftOptions,
    GenerationEvent,
    LoadProgress,
    ModelInfo,
    ModeOption,
    PrefixCacheFacts,
)
from rdchat.inference.api.protocol import TokenIterator
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, DraftSettings, Dtype, GenerationRequest, Mode


class StandInEngine:
    """Writes the same reply for every request.

    Args:
        reply: Makes it, from the request's id.
    """

    def __init__(self, reply: Callable[[int], TokenIterator]) -> None:
        self._reply = reply

    def load(
        self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None], anyway: bool = False
    ) -> ModelInfo:
        return ModelInfo("stand-in", Path(), "none", "none", "CPU", 8192, 100, 1000, 4000, 0.0)

    def unload(self) -> int:
        return 0

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> TokenIterator:
        return self._reply(request.request_id)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        return DraftOptions(Path(), tuple(ModeOption(mode, True) for mode in Mode))

    def load_drafters(self, settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None: ...

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        return PrefixCacheFacts(0, 0, limit_bytes or 0)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        messages = prompt.messages if isinstance(prompt, GenerationRequest) else prompt
        return sum(len(message.content) // 4 for message in messages)

    def idle(self) -> bool:
        return False

    def rest(self) -> None: ...

    def benchmark(self, plan: BenchPlan) -> BenchRunner:
        raise ModelError("This engine measures nothing.")

    def close(self) -> None: ...


class StandInReply:
    """A reply whose events `_make` yields; it waits on `_device` as a real one waits for its device."""

    def __init__(self, request_id: int) -> None:
        self._device = threading.Event()
        self._events = self._make(request_id)

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self._events

    def __next__(self) -> GenerationEvent:
        return next(self._events)

    def _make(self, request_id: int) -> Iterator[GenerationEvent]:
        raise NotImplementedError

    def update(self, settings: DraftSettings) -> None: ...

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    @property
    def statistics(self) -> Statistics:
        return Statistics()
